"""Which combinations of family, objective and likelihood exist."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from candid.methods.composition import COLLAPSED, DECOUPLED

__all__ = ["check_compatible", "compatible"]

#: Likelihoods that row objectives know by quadrature, if not in closed form.
LIKELIHOODS = (
    "gaussian",
    "coregionalised",
    "partly-observed",
    "student-t",
    "bernoulli",
    "probit",
    "softmax",
    "binomial",
    "negative-binomial",
)
#: Those with normal noise.
NORMAL = ("gaussian", "coregionalised", "partly-observed")
#: Those that are powers of logistic functions.
LOGISTIC = ("bernoulli", "binomial", "negative-binomial")
#: Which objectives a family can be trained with, and which likelihoods each pair supports.
COMPATIBLE: Mapping[tuple[str, str], tuple[str, ...]] = MappingProxyType(
    {
        **{(family, average): LIKELIHOODS for family in DECOUPLED.values() for average in ("elbo", "predictive")},
        **{
            (family, bound): ("gaussian", "partly-observed")
            for family in DECOUPLED.values()
            for bound in ("vfitc", "fitc_elbo")
        },
        **{(family, "robust"): NORMAL for family in DECOUPLED.values()},
        **{(family, "polya_gamma"): LOGISTIC for family in DECOUPLED.values()},
        **{("inducing", objective): ("gaussian",) for objective in COLLAPSED},
        ("exact", "marginal_likelihood"): ("gaussian",),
        ("neighbours", "predictive"): (
            *NORMAL,
            "student-t",
            "bernoulli",
            "one-against-all",
            "binomial",
            "negative-binomial",
        ),
        ("neighbours", "marginal_likelihood"): ("gaussian",),
        ("vecchia", "chain_rule"): ("gaussian",),
        ("swsgp", "elbo"): ("gaussian",),
        ("alc", "predictive"): ("gaussian",),
        ("network", "elbo"): ("gaussian",),
        **{("layers", average): LIKELIHOODS for average in ("predictive", "elbo")},
        ("layers", "robust"): NORMAL,
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
