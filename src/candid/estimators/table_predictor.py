"""A predictor in the units of the user's table: the unit of save, load and export."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor, nn

from candid.estimators.observations import Latent, Observation
from candid.estimators.scaling import Standardizer
from candid.families import Joint, Predictor
from candid.marginal import Marginal
from candid.predictive import Predictive, PredictiveCategorical

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

    Parameters
    ----------
    inner : Predictor
    inputs, targets : Standardizer
        The latter of the latent function, which has the units of y where y is a real number, and none otherwise.
    observation : Observation
        How observations scatter around the latent function.
    """

    x_shift: Tensor
    x_scale: Tensor
    y_shift: Tensor
    y_scale: Tensor

    def __init__(self, inner: Predictor, inputs: Standardizer, targets: Standardizer, observation: Observation) -> None:
        super().__init__()
        self.inner, self.observation = inner, observation
        self.register_buffer("x_shift", torch.as_tensor(inputs.shift))
        self.register_buffer("x_scale", torch.as_tensor(inputs.scale))
        self.register_buffer("y_shift", torch.as_tensor(targets.shift))
        self.register_buffer("y_scale", torch.as_tensor(targets.scale))

    @property
    def dtype(self) -> torch.dtype:
        """What predictions are computed in; ``predictor.inner.float()`` trades digits for speed."""
        return self.inner.dtype

    @property
    def scalings(self) -> tuple[Standardizer, Standardizer]:
        """Of the inputs, and of the latent function."""
        pairs = (self.x_shift, self.x_scale), (self.y_shift, self.y_scale)
        inputs, latents = (Standardizer(*(part.double().numpy() for part in pair)) for pair in pairs)
        return inputs, latents

    @property
    def n_outputs(self) -> int:
        """Of the latent function: one for each target, or for each of several classes."""
        return self.y_scale.numel()

    @property
    def n_targets(self) -> int:
        """Numbers in a row of y: as many as outputs, unless these are mixed."""
        return self.observation.n_targets(self.n_outputs)

    @property
    def noise_variance(self) -> Tensor:
        """Of each output, in squared units of y, where y is a real number; averaged over sites that differ in it."""
        variance: Tensor = self.observation.noise_variance  # pyright: ignore[reportAssignmentType]
        return variance if variance.dim() == 1 else variance.mean((0, 1))

    def marginal(self, x: Tensor, mean_only: bool = False) -> Marginal:
        """Latent mean and variances at the rows of ``x`` (row × output), of each site where there are several."""
        latent = self.inner.marginal(self._standardise(x), mean_only)
        square = self.y_scale.square()
        return Marginal(
            self.y_shift + self.y_scale * latent.mean,
            square * latent.residual,
            square * latent.spread,
            latent.log_weight,
            None if latent.cross is None else self.y_scale.outer(self.y_scale) * latent.cross,
        )

    def joint(self, x: Tensor) -> Joint:
        """Latent mean (row × output) and covariance (output × row × row) of all rows together, of each site."""
        latent = self.inner.joint(self._standardise(x))
        return Joint(
            self.y_shift + self.y_scale * latent.mean,
            self.y_scale.square()[:, None, None] * latent.covariance,
            latent.log_weight,
            None if latent.cross is None else torch.einsum("w,wnvm,v->wnvm", self.y_scale, latent.cross, self.y_scale),
        )

    def moments(self, x: Tensor, mean_only: bool = False) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance (row × output) of what targets scatter around, in a table of any length.

        With ``mean_only``, the mean alone.
        """
        parts = [self.observation.of_targets(part).moments() for part in self.stream(x, mean_only)]
        mean, variance = (torch.cat(pieces).double().numpy() for pieces in zip(*parts, strict=True))
        return mean, variance

    def distribution(
        self, x: Tensor, known: np.ndarray | None = None, vector: bool = False
    ) -> Predictive | PredictiveCategorical:
        """Distributions of new observations, in the units of y, averaged over the sites of the model.

        ``known`` is what is known of how these rows are observed (row × output), instead of what the model says: noise
        variances, or numbers of trials. ``vector`` drops the axis of a single output.
        """
        parts = list(self.stream(x))
        mean, variance = (
            torch.cat([getattr(part, name) for part in parts], dim=-2).double().numpy() for name in ("mean", "variance")
        )
        log_weight = parts[0].log_weight
        weight = None if log_weight is None else log_weight.double().exp().flatten().numpy()
        crosses = [part.cross.double().numpy() for part in parts if part.cross is not None]
        cross = np.concatenate(crosses) if crosses else None
        return self.observation.distribution(Latent(mean, variance, weight, cross), known, vector)

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
