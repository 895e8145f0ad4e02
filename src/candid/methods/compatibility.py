"""Which combinations of family, objective and likelihood exist."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from candid.methods.composition import BOUNDS, COLLAPSED, DECOUPLED

__all__ = ["check_compatible", "compatible"]

#: Which objectives a family can be trained with, and which likelihoods each pair supports.
COMPATIBLE: Mapping[tuple[str, str], tuple[str, ...]] = MappingProxyType(
    {
        **{(family, bound): ("gaussian",) for family in DECOUPLED.values() for bound in BOUNDS},
        **{(family, score): ("gaussian",) for family in DECOUPLED.values() for score in ("predictive", "robust")},
        **{("inducing", objective): ("gaussian",) for objective in COLLAPSED},
        ("exact", "marginal_likelihood"): ("gaussian",),
        ("neighbours", "predictive"): ("gaussian",),
        ("neighbours", "marginal_likelihood"): ("gaussian",),
        ("vecchia", "chain_rule"): ("gaussian",),
        ("network", "elbo"): ("gaussian",),
    }
)


def compatible(family: str, objective: str, likelihood: str) -> bool:
    """Whether a family can be trained with an objective under a likelihood."""
    return likelihood in COMPATIBLE.get((family, objective), ())


def check_compatible(family: str, objective: str, likelihood: str) -> None:
    """Raise, naming the nearest legal choice, where :func:`compatible` says no."""
    if compatible(family, objective, likelihood):
        return
    objectives = [o for (f, o), likelihoods in COMPATIBLE.items() if f == family and likelihood in likelihoods]
    likelihoods = COMPATIBLE.get((family, objective), ())
    if objectives:
        hint = f"with this likelihood use objective={' or '.join(map(repr, objectives))}"
    else:
        hint = f"use likelihood={' or '.join(map(repr, likelihoods or ('gaussian',)))}"
    raise ValueError(f"{family} GPs have no objective {objective!r} for a {likelihood!r} likelihood; {hint}")
