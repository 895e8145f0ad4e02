"""Nearest neighbours whose outputs are mixtures of latent functions.

A row is conditioned on all observed outputs of its k neighbours together. With the predictive objective this is the
leave-one-out density of the observed outputs of a row together. All latent functions see the same neighbours, in the
metric of :func:`~candid.families.metric.metric_of`: 1/length² is the average over latent functions, so that the one
with the shortest lengthscale decides.
"""

from __future__ import annotations

from candid.families.mixed_local import mixed_marginal
from candid.families.mixed_predictor import MixedPredictor
from candid.families.neighbour_predictor import NeighbourPredictor
from candid.families.neighbours import Neighbours
from candid.likelihoods import CoregionalisedSites
from candid.marginal import Batch, Evaluation

__all__ = ["CoregionalisedNeighbours"]


class CoregionalisedNeighbours(Neighbours):
    """W latent functions behind P outputs, one model without chains; ``sites`` are :class:`CoregionalisedSites`."""

    sites: CoregionalisedSites

    def evaluate(self, batch: Batch) -> Evaluation:
        near = self.near(batch)
        kernel, x, look_up = self._seen(batch, near)
        marginal, jitter = mixed_marginal(kernel, self.mean, self.sites.mixing, x, near, look_up, self.least_jitter)
        # The largest that any of the rows needed; latent functions share their systems.
        self.jitter.copy_(jitter.amax())
        return Evaluation(marginal, {})

    def _completed(self, predictor: NeighbourPredictor) -> MixedPredictor:
        return MixedPredictor(predictor, self.sites.mixing.detach().to(predictor.targets))
