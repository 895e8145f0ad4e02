"""Local approximate GPs: nothing is learned before there is a row to predict.

Each prediction has a GP of its own, with rows that are chosen for it, a lengthscale and an amplitude; see
:class:`~candid.families.alc_predictor.DesignPredictor`.

References
----------
R. B. Gramacy, D. W. Apley (2015), Local Gaussian process approximation for large computer experiments.
"""

from __future__ import annotations

from candid.families.alc_predictor import DesignPredictor
from candid.families.neighbour_predictor import NeighbourPredictor
from candid.families.neighbours import Neighbours

__all__ = ["ALC"]


class ALC(Neighbours):
    """What a training row is told by others is that of plain neighbours; new rows have designs of their own."""

    def _completed(self, predictor: NeighbourPredictor) -> DesignPredictor:
        return DesignPredictor(predictor)
