"""Rows with nearest neighbours."""

from __future__ import annotations

from types import MappingProxyType

from candid.methods.composition import NEIGHBOURS
from candid.methods.method import Method
from candid.methods.papers import LOO, VECCHIA

__all__ = ["NEAREST"]

# The protocol of the paper on leave-one-out losses, with the number of neighbours chosen on validation data. The number
# of steps is that of a cold start.
LOO_PROTOCOL = MappingProxyType(
    {
        "kernel": "matern52",
        "mean": "constant",
        "n_neighbors": "auto",
        "init": "cold",
        "batch_size": 128,
        "lr": 0.03,
        "schedule": "quarters",
        "standardize": True,
    }
)


def _neighbours(name: str, summary: str, objective: str, paper: str = LOO) -> Method:
    return Method(
        name=name,
        summary=summary,
        paper=paper,
        cost="k³B",
        made_of=NEIGHBOURS[objective],
        estimator="NeighborGPRegressor",
        parameters={"objective": objective},
        published=LOO_PROTOCOL,
    )


NEAREST = (
    _neighbours("loo-k", "nearest neighbours: the leave-one-out density of each row given k others", "loo"),
    _neighbours("mll-k", "nearest neighbours: the marginal likelihood of groups of k rows", "mll"),
    _neighbours(
        "vecchia", "nearest neighbours among earlier rows: the chain rule with k rows in each term", "vecchia", VECCHIA
    ),
)
