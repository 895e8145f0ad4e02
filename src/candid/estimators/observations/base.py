"""The interface of an observation: what a fitted model keeps of its likelihood."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from candid.estimators.scaling import Standardizer
from candid.likelihoods import Likelihood
from candid.marginal import Marginal
from candid.predictive import Predictive, PredictiveCategorical

__all__ = ["Latent", "Observation", "by_site", "of_draws", "of_sites", "shaped"]

# Entries of the largest intermediate array (node × site × row × output).
CHUNK_ENTRIES = 4_000_000


@dataclass(frozen=True)
class Latent:
    """Moments of the latent function at some rows, in the units of the table.

    Attributes
    ----------
    mean, variance : ndarray of shape (row, output) or (site, row, output)
    weight : ndarray of shape (site,) or None
        Of each site, where the prediction is a mixture.
    cross : ndarray of shape (row, output, output) or None
        Covariances, where the latent functions of a row depend on each other; there are no sites then.
    """

    mean: np.ndarray
    variance: np.ndarray
    weight: np.ndarray | None = None
    cross: np.ndarray | None = None

    @property
    def sites(self) -> Latent:
        """The same with an axis of sites in any case."""
        if self.weight is not None:
            return self
        return Latent(self.mean[None], self.variance[None], np.ones(1))

    def chunks(self, n_nodes: int) -> Iterator[tuple[Tensor, Tensor, slice]]:
        """Mean and variance as tensors, so many rows at a time that ``n_nodes`` arrays of them fit into memory."""
        n_rows = self.mean.shape[-2]
        step = max(1, CHUNK_ENTRIES * n_rows // max(1, n_nodes * self.mean.size))
        for start in range(0, n_rows, step):
            rows = slice(start, start + step)
            mean, variance = (torch.from_numpy(part[..., rows, :]) for part in (self.mean, self.variance))
            yield mean, variance, rows


class Observation(nn.Module, ABC):
    """How new observations scatter around the latent function, in the units of the table.

    Its tensors are buffers, and of the shapes that :meth:`to_spec` tells.
    """

    #: The name under which a file speaks of it.
    kind: str

    @abstractmethod
    def distribution(
        self, latent: Latent, known: np.ndarray | None = None, vector: bool = False
    ) -> Predictive | PredictiveCategorical:
        """Distributions of new observations, averaged over the sites of the latent function.

        ``known`` is what is known of how these rows are observed (row × output): noise variances, or numbers of trials.
        ``vector`` drops the axis of a single output.
        """

    def likelihood(self, scale: Tensor) -> Likelihood:
        """The likelihood of standardised targets that belongs to it, in float64; ``scale`` is that of f."""
        raise ValueError(
            f"a model with {self.kind} observations that was loaded from a file cannot take more rows; fit it anew"
        )

    def target_scaling(self, n_targets: int) -> Standardizer:
        """How targets were standardised that latent functions do not have the units of: not at all, unless mixed."""
        return Standardizer.identity(n_targets)

    def n_targets(self, n_latents: int) -> int:
        """How many numbers there are in a row of observations of so many latent functions."""
        return n_latents

    def of_targets(self, latent: Marginal) -> Marginal:
        """Moments of what real numbers scatter around: the latent functions themselves, unless they are mixed."""
        return latent

    def draw(self, f: np.ndarray, rng: np.random.RandomState, site: np.ndarray | None = None) -> np.ndarray:
        """Observations of latent values (row, output, draw), of which each draw may be one of a ``site``."""
        raise ValueError(f"there are no joint draws of {self.kind} observations; use predict_distribution(X).sample()")

    def to_spec(self) -> dict[str, Any]:
        """A JSON-able description, from which everything but the tensors can be rebuilt."""
        return {"type": self.kind, "shapes": {name: list(buffer.shape) for name, buffer in self.named_buffers()}}


def by_site(latent: Latent, vector: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Means, standard deviations and weights, with sites on the last axis."""
    latent = latent.sites
    assert latent.weight is not None
    mean, deviation = (np.moveaxis(part, 0, -1) for part in (latent.mean, np.sqrt(latent.variance)))
    return shaped(mean, vector), shaped(deviation, vector), latent.weight


def of_sites(values: Tensor, latent: Latent, vector: bool) -> np.ndarray:
    """Parameters (output,) or (site, 1, output) as row × output, with sites on the last axis if they have their own."""
    shape = latent.sites.mean.shape
    if values.dim() < 3:
        return shaped(np.broadcast_to(values.double().numpy(), shape[1:]), vector)
    return shaped(np.moveaxis(np.broadcast_to(values.double().numpy(), shape), 0, -1), vector)


def of_draws(values: Tensor, site: np.ndarray | None) -> np.ndarray:
    """Parameters (output,) or (site, 1, output) as (output, draw), where each draw may be one of a ``site``."""
    numbers = values.double().numpy()
    return numbers[:, None] if numbers.ndim < 3 else numbers[site, 0].T


def shaped(array: np.ndarray, vector: bool) -> np.ndarray:
    """Drop the axis of outputs, the second one, where y is a vector."""
    return array[:, 0] if vector else array
