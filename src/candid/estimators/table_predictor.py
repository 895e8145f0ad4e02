"""A predictor in the units of the user's table: the unit of save, load and export."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from candid.estimators.scaling import Standardizer
from candid.families import Joint, Predictor
from candid.marginal import Marginal
from candid.predictive import PredictiveMixture, PredictiveNormal

__all__ = ["TablePredictor"]

# Entries of the largest intermediate array (output × point × row): memory stays bounded however long the table is.
CHUNK_ENTRIES = 4_000_000
# Beyond so many standard deviations, all inputs are equally far away; their squares fit into float32.
FARTHEST = 1e15


class TablePredictor(nn.Module):
    """Standardises inputs, asks the family's predictor and returns to the units of y.

    Differentiable with respect to the inputs: give ``marginal`` a float64 tensor that requires gradients. Inputs are
    standardised in float64 whatever the precision of the inner predictor: a column of dates or coordinates has few
    digits left in float32.

    Attributes
    ----------
    noise_variance : Tensor
        Of each output, in squared units of y.
    """

    x_shift: Tensor
    x_scale: Tensor
    y_shift: Tensor
    y_scale: Tensor
    noise_variance: Tensor

    def __init__(self, inner: Predictor, inputs: Standardizer, targets: Standardizer, noise_variance: Tensor) -> None:
        super().__init__()
        self.inner = inner
        self.register_buffer("x_shift", torch.as_tensor(inputs.shift))
        self.register_buffer("x_scale", torch.as_tensor(inputs.scale))
        self.register_buffer("y_shift", torch.as_tensor(targets.shift))
        self.register_buffer("y_scale", torch.as_tensor(targets.scale))
        self.register_buffer("noise_variance", noise_variance)

    @property
    def dtype(self) -> torch.dtype:
        """What predictions are computed in; ``predictor.inner.float()`` trades digits for speed."""
        return self.inner.dtype

    @property
    def n_outputs(self) -> int:
        return self.y_scale.numel()

    def marginal(self, x: Tensor, mean_only: bool = False) -> Marginal:
        """Latent mean and variances at the rows of ``x`` (row × output), of each site where there are several."""
        latent = self.inner.marginal(self._standardise(x), mean_only)
        square = self.y_scale.square()
        return Marginal(
            self.y_shift + self.y_scale * latent.mean,
            square * latent.residual,
            square * latent.spread,
            latent.log_weight,
        )

    def joint(self, x: Tensor) -> Joint:
        """Latent mean (row × output) and covariance (output × row × row) of all rows together, of each site."""
        latent = self.inner.joint(self._standardise(x))
        return Joint(
            self.y_shift + self.y_scale * latent.mean,
            self.y_scale.square()[:, None, None] * latent.covariance,
            latent.log_weight,
        )

    def moments(self, x: Tensor, mean_only: bool = False) -> tuple[np.ndarray, np.ndarray]:
        """Latent mean and variance (row × output) of a table of any length; with ``mean_only``, of the mean alone."""
        parts = [part.moments() for part in self.stream(x, mean_only)]
        mean, variance = (torch.cat(pieces).double().numpy() for pieces in zip(*parts, strict=True))
        return mean, variance

    def distribution(
        self, x: Tensor, noise: np.ndarray | None = None, vector: bool = False
    ) -> PredictiveNormal | PredictiveMixture:
        """Distributions of new observations, in the units of y: where the model has several sites, mixtures of them.

        ``noise`` holds known noise variances of these rows (row × output), instead of those of the model; ``vector``
        drops the axis of a single output.
        """
        parts = list(self.stream(x))
        mean, variance = (
            torch.cat([getattr(part, name) for part in parts], dim=-2).double().numpy() for name in ("mean", "variance")
        )
        noise = self.noise_variance.double().numpy() if noise is None else noise
        noise_std = np.broadcast_to(np.sqrt(noise), mean.shape[-2:])
        log_weight = parts[0].log_weight
        if log_weight is None:
            return PredictiveNormal(*(_shaped(array, vector) for array in (mean, np.sqrt(variance), noise_std)))
        by_site = (np.moveaxis(array, 0, -1) for array in (mean, np.sqrt(variance)))
        means, latent_stds, noise_std = (_shaped(array, vector) for array in (*by_site, noise_std))
        return PredictiveMixture(means, latent_stds, noise_std, log_weight.double().exp().flatten().numpy())

    def stream(self, x: Tensor, mean_only: bool = False) -> Iterator[Marginal]:
        """Marginals of a table of any length, some rows at a time; without gradients."""
        n_rows = max(1, CHUNK_ENTRIES // (self.inner.n_points * self.n_outputs))
        for rows in x.split(n_rows):
            with torch.inference_mode():
                part = self.marginal(rows, mean_only)
            yield part

    def _standardise(self, x: Tensor) -> Tensor:
        standardised = (x.double() - self.x_shift) / self.x_scale
        return standardised.clamp(-FARTHEST, FARTHEST).to(self.dtype)

    def to_spec(self) -> dict[str, Any]:
        return self.inner.to_spec()


def _shaped(array: np.ndarray, vector: bool) -> np.ndarray:
    """Drop the axis of outputs, the second one, where y is a vector."""
    return array[:, 0] if vector else array
