"""Studies of the paper on leave-one-out losses, on small tables.

References
----------
M. Jankowiak, G. Pleiss (2022), Scalable cross validation losses for Gaussian process models.
"""

from candid.bench.studies.duplicates import Duplicates, duplicates
from candid.bench.studies.findings import Findings, Panel
from candid.bench.studies.misspecification import Misspecification, misspecification
from candid.bench.studies.neighbour_numbers import NeighbourNumbers, neighbour_numbers
from candid.bench.studies.objective_curves import ObjectiveCurves, objective_curves
from candid.bench.studies.picture import draw_panels

__all__ = [
    "Duplicates",
    "Findings",
    "Misspecification",
    "NeighbourNumbers",
    "ObjectiveCurves",
    "Panel",
    "draw_panels",
    "duplicates",
    "misspecification",
    "neighbour_numbers",
    "objective_curves",
]
