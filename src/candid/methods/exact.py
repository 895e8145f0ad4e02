"""The exact GP."""

from candid.methods.composition import EXACT
from candid.methods.method import Method

__all__ = ["DENSE"]

DENSE = (
    Method(
        name="exact",
        summary="exact GP, fitted by the marginal likelihood; up to a few thousand rows",
        paper="Rasmussen, Williams (2006), Gaussian processes for machine learning",
        cost="N³",
        made_of=EXACT,
        estimator="ExactGPRegressor",
        parameters={},
        published={"kernel": "matern52", "mean": "zero"},
        most_rows=5000,
    ),
)
