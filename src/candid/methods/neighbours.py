"""Rows with nearest neighbours."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from candid.methods.composition import NEIGHBOURS
from candid.methods.method import Method
from candid.methods.papers import ALC, DKL, LOO, SWSGP, VECCHIA

__all__ = ["NEAREST"]

# The protocol of the paper on leave-one-out losses, with the number of neighbours chosen on validation data. The number
# of steps is that of a cold start. The prior mean is a constant for numbers and zero for classes, as it is by default.
# The divergence of auxiliary variables, which classes have, counts once.
LOO_PROTOCOL = MappingProxyType(
    {
        "kernel": "matern52",
        "n_neighbors": "auto",
        "init": "cold",
        "batch_size": 128,
        "lr": 0.03,
        "schedule": "quarters",
        "standardize": True,
        "beta": 1.0,
    }
)


# As the same paper compares them: points that are an order of magnitude more than elsewhere (a cold start has 6400
# steps), and the procedure of the software for local GPs, whose kernel is Gaussian.
SWSGP_PROTOCOL = MappingProxyType({**LOO_PROTOCOL, "n_inducing": 10_000})
ALC_PROTOCOL = MappingProxyType(
    {"kernel": "rbf", "mean": "zero", "n_neighbors": 64, "init": "cold", "standardize": True}
)


def _neighbours(
    name: str,
    summary: str,
    objective: str,
    paper: str = LOO,
    published: Mapping[str, Any] = LOO_PROTOCOL,
    candid: Mapping[str, Any] = MappingProxyType({}),
    features: str | None = None,
) -> Method:
    # Other objectives know nothing but normal noise.
    classifies = objective == "loo"
    return Method(
        name=name,
        summary=summary,
        paper=paper,
        cost="k³B",
        made_of=NEIGHBOURS[objective],
        estimator="NeighborGPRegressor",
        parameters={"objective": objective, **({} if features is None else {"features": features})},
        candid=candid,
        published=published,
        tasks=("regression", "classification") if classifies else ("regression",),
        classifier="NeighborGPClassifier" if classifies else None,
    )


NEAREST = (
    _neighbours("loo-k", "nearest neighbours: the leave-one-out density of each row given k others", "loo"),
    _neighbours(
        "loo-k-dkl",
        "loo-k behind a network: neighbours are near in its features",
        "loo",
        DKL,
        # Neighbours behind networks are not published: the protocol is that of the rows in front.
        candid={"validation_fraction": 0.1, "patience": 100},
        features="dc",
    ),
    _neighbours("mll-k", "nearest neighbours: the marginal likelihood of groups of k rows", "mll"),
    _neighbours(
        "vecchia", "nearest neighbours among earlier rows: the chain rule with k rows in each term", "vecchia", VECCHIA
    ),
    _neighbours("swsgp", "many inducing points, of which each row sees the k nearest", "swsgp", SWSGP, SWSGP_PROTOCOL),
    _neighbours(
        "alc",
        "no training: for each prediction k rows are chosen, and a GP of their own is fitted to them",
        "alc",
        ALC,
        ALC_PROTOCOL,
    ),
)
