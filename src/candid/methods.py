"""THE table: every method is a family × weights × objective × steppers, and nothing else.

A row says what a published method is made of, which estimator and flat parameters give it, what our own recipe changes
and what the published protocol was. Adding a method is adding a row here, or one class in one room.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

__all__ = [
    "EXACT",
    "METHODS",
    "Composition",
    "Method",
    "MethodTable",
    "check_compatible",
    "compatible",
    "find_method",
    "inducing_points",
    "methods",
]

PPGPR = "Jankowiak, Pleiss, Gardner (2020), Parametric Gaussian process regressors"
SVGP = "Hensman, Fusi, Lawrence (2013), Gaussian processes for big data"

#: Which objectives a family can be trained with, and which likelihoods each pair supports.
COMPATIBLE: Mapping[tuple[str, str], tuple[str, ...]] = MappingProxyType(
    {
        ("inducing", "elbo"): ("gaussian",),
        ("inducing", "predictive"): ("gaussian",),
        ("exact", "marginal_likelihood"): ("gaussian",),
    }
)


@dataclass(frozen=True)
class Composition:
    """What a model is made of: family × weights × objective × steppers.

    ``weights`` is None for a family without inducing values; ``steppers`` maps parameter groups to steppers.
    """

    family: str
    weights: str | None
    objective: str
    steppers: Mapping[str, str]


#: How an exact GP is made.
EXACT = Composition("exact", None, "marginal_likelihood", {"all": "lbfgs"})


def inducing_points(objective: str, covariance: str) -> Composition:
    """How a GP with inducing points is made, for a covariance of q(u) that is "none", "diagonal" or "full"."""
    weights = "delta" if covariance == "none" else covariance
    return Composition("inducing", weights, objective, {"all": "adam"})


@dataclass(frozen=True)
class Method:
    """One row of the table.

    Attributes
    ----------
    name : str
        As the papers call it.
    summary, paper, cost : str
        What it is, where it is published, and what one training step costs.
    tasks : tuple of str
    made_of : Composition
    estimator : str
        The estimator class that gives it, with these ``parameters``.
    candid : mapping
        What ``recipe="candid"`` sets beyond the estimator's defaults.
    published : mapping
        What ``recipe="paper"`` sets: the published protocol. Where the paper chose a weight β of the penalty on
        validation data, this is one value of its grid.
    most_rows : int, optional
        Longest table it can take.
    """

    name: str
    summary: str
    paper: str
    cost: str
    made_of: Composition
    estimator: str
    parameters: Mapping[str, Any]
    tasks: tuple[str, ...] = ("regression",)
    candid: Mapping[str, Any] = field(default_factory=dict)
    published: Mapping[str, Any] = field(default_factory=dict)
    most_rows: int | None = None

    @property
    def source(self) -> str:
        """Authors and year of the paper."""
        return self.paper[: self.paper.index(")") + 1]

    def __str__(self) -> str:
        chosen = ", ".join(f"{name}={value!r}" for name, value in self.parameters.items())
        facts = f"{', '.join(self.tasks)}; cost {self.cost}; {self.estimator}({chosen}); {self.source}"
        return f"{self.name:<12} {self.summary} [{facts}]"


# The protocol of the PPGPR paper: Adam at 0.01 with step decay, k-means, a cold start.
PPGPR_PROTOCOL = MappingProxyType(
    {
        "kernel": "matern52",
        "mean": "zero",
        "n_inducing": 1000,
        "init": "kmeans",
        "batch_size": 1000,
        "max_epochs": 400,
        "lr": 0.01,
        "schedule": "step",
        "standardize": True,
    }
)


def _sparse(
    name: str, objective: str, covariance: str, summary: str, candid: Mapping, published: Mapping, paper: str = PPGPR
) -> Method:
    return Method(
        name=name,
        summary=summary,
        paper=paper,
        cost="M²B + M³",
        made_of=inducing_points(objective, covariance),
        estimator="SparseGPRegressor",
        parameters={"objective": objective, "covariance": covariance},
        candid=candid,
        published={**PPGPR_PROTOCOL, **published},
    )


METHODS: Mapping[str, Method] = MappingProxyType(
    {
        row.name: row
        for row in (
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
            _sparse(
                "map",
                "elbo",
                "none",
                "inducing points with point estimates of their values",
                {"beta": 1.0},
                {"beta": 1.0},
            ),
            _sparse(
                "svgp",
                "elbo",
                "full",
                "stochastic variational GP: the evidence lower bound with a full q(u)",
                {"beta": 1.0},
                {"beta": 1.0},
                paper=SVGP,
            ),
            _sparse(
                "ppgpr-delta",
                "predictive",
                "none",
                "parametric GP regressor with point estimates of the inducing values",
                {"beta": 0.2},
                {"beta": 1.0},
            ),
            _sparse(
                "ppgpr-mf",
                "predictive",
                "diagonal",
                "parametric GP regressor with a diagonal q(u)",
                {"beta": 0.2},
                {"beta": 0.05},
            ),
            _sparse(
                "ppgpr-chol",
                "predictive",
                "full",
                "parametric GP regressor: the predictive log-likelihood with a full q(u)",
                {"beta": 0.2},
                {"beta": 0.05},
            ),
        )
    }
)


class MethodTable(tuple[Method, ...]):
    """The rows of the table, printed as one."""

    def __str__(self) -> str:
        return "\n".join(map(str, self))

    __repr__ = __str__


def methods() -> MethodTable:
    """All methods: name, paper, what each is, tasks, parameters and cost."""
    return MethodTable(METHODS.values())


def find_method(name: str) -> Method:
    """The row called ``name``; an unknown name is answered with the nearest known ones."""
    if name not in METHODS:
        near = difflib.get_close_matches(name, METHODS, n=3, cutoff=0.4)
        hint = f"did you mean {' or '.join(near)}?" if near else f"known are {', '.join(METHODS)}"
        raise ValueError(f"there is no method {name!r}; {hint}")
    return METHODS[name]


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
