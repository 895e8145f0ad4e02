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
    "BOUNDS",
    "COLLAPSED",
    "COLLAPSED_MOST_ROWS",
    "DECOUPLED",
    "EXACT",
    "METHODS",
    "NEIGHBOURS",
    "NETWORK",
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
SGPR = "Titsias (2009), Variational learning of inducing variables in sparse Gaussian processes"
FITC = "Snelson, Ghahramani (2006), Sparse Gaussian processes using pseudo-inputs"
BSGP = "Rossi, Heinonen, Bonilla, Shen, Filippone (2021), Sparse Gaussian processes revisited"
ROBUST = "Knoblauch (2019), Robust deep Gaussian processes"
OD = "Salimbeni, Cheng, Boots, Deisenroth (2018), Orthogonally decoupled variational Gaussian processes"
LOO = "Jankowiak, Pleiss (2022), Scalable cross validation losses for Gaussian process models"
VECCHIA = "Katzfuss, Guinness (2021), A general framework for Vecchia approximations of Gaussian processes"
DROPOUT = "Gal, Ghahramani (2016), Dropout as a Bayesian approximation"
DC = "Zhu, Wu, Maus, Gardner, Bindel (2023), Variational Gaussian processes with decoupled conditionals"

#: Row objectives that are lower bounds of an evidence: q(u) may follow natural gradients.
BOUNDS = ("elbo", "vfitc", "fitc_elbo")
#: Objectives of all rows at once, with q(u) in closed form.
COLLAPSED = ("sgpr", "fitc")
#: Which family the estimators' parameter ``decouple`` stands for.
DECOUPLED: Mapping[str | None, str] = MappingProxyType(
    {
        None: "inducing",
        "inducing": "decoupled",
        "orthogonal": "orthogonal",
        "kernel": "conditional",
        "features": "conditional",
        "mean": "centred",
    }
)

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


@dataclass(frozen=True)
class Composition:
    """What a model is made of: family × weights × objective × steppers.

    ``weights`` is None for a family without inducing values; ``steppers`` maps parameter groups to steppers.
    """

    family: str
    weights: str | None
    objective: str
    steppers: Mapping[str, str]


# Rows whose features fit into memory, several times over, at a few hundred inducing points.
COLLAPSED_MOST_ROWS = 100_000

#: How an exact GP is made.
EXACT = Composition("exact", None, "marginal_likelihood", {"all": "lbfgs"})
#: How a GP of nearest neighbours is made, by the estimator's name of its objective.
NEIGHBOURS: Mapping[str, Composition] = MappingProxyType(
    {
        "loo": Composition("neighbours", None, "predictive", {"all": "adam"}),
        "mll": Composition("neighbours", None, "marginal_likelihood", {"all": "adam"}),
        "vecchia": Composition("vecchia", None, "chain_rule", {"all": "adam"}),
    }
)
#: How a network with dropout is made.
NETWORK = Composition("network", None, "elbo", {"network": "adam", "rest": "adam"})


def inducing_points(
    objective: str, covariance: str = "full", decouple: str | None = None, optimizer: str = "auto"
) -> Composition:
    """How a GP with inducing points is made.

    Parameters
    ----------
    objective : str
    covariance : {"none", "diagonal", "full"}
        Covariance of q(u).
    decouple : {None, "inducing", "orthogonal", "kernel", "features", "mean"}
        Whether the mean has inducing points, hyper-parameters or a network of its own, or is a network.
    optimizer : {"auto", "adam", "natural"}
        How q(u) moves. "auto": along natural gradients where they are defined, which is for a full covariance of points
        that mean and variance share, and lower bounds of an evidence; elsewhere by a damped Adam.
    """
    family = DECOUPLED[decouple]
    if objective in COLLAPSED:
        return Composition(family, "solved", objective, {"all": "lbfgs"})
    natural = family in ("inducing", "conditional") and covariance == "full" and objective in BOUNDS
    if optimizer == "natural" and not natural:
        raise ValueError(
            "natural gradients are for a full covariance of q(u) at points that mean and variance share, and an "
            f"objective that bounds an evidence ({', '.join(BOUNDS)}); use optimizer='adam'"
        )
    stepper = optimizer if optimizer != "auto" else "natural" if natural else "damped"
    weights = "delta" if covariance == "none" else covariance
    return Composition(
        family, weights, objective, {"weights": stepper, "points": "adam", "network": "adam", "rest": "adam"}
    )


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


# Parameters of an estimator that decide what a GP with inducing points is made of.
COMPOSING = ("objective", "covariance", "decouple")
# The protocol of the PPGPR paper: Adam at 0.01 with step decay, k-means, a cold start.
PPGPR_PROTOCOL = MappingProxyType(
    {
        "kernel": "matern52",
        "mean": "zero",
        "n_inducing": 1000,
        "init": "kmeans",
        "batch_size": 1000,
        "max_epochs": 400,
        "optimizer": "adam",
        "lr": 0.01,
        "q_lr": 0.01,
        "schedule": "step",
        "standardize": True,
    }
)
# The protocol of the paper on decoupled conditionals, with the number of inducing points of most of its data sets.
DC_PROTOCOL = MappingProxyType(
    {
        "kernel": "rbf",
        "ard": False,
        "mean": "zero",
        "n_inducing": 500,
        "init": "random",
        "batch_size": 1024,
        "max_epochs": 300,
        "lr": 0.005,
        "q_lr": 0.005,
        "schedule": "thirds",
    }
)
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
# Published without stochastic optimisation: L-BFGS on all rows.
COLLAPSED_PROTOCOL = MappingProxyType(
    {"kernel": "matern52", "mean": "zero", "n_inducing": 1000, "init": "kmeans", "standardize": True}
)


def _sparse(
    name: str,
    summary: str,
    parameters: Mapping[str, Any],
    candid: Mapping[str, Any],
    published: Mapping[str, Any],
    paper: str = PPGPR,
) -> Method:
    collapsed = parameters["objective"] in COLLAPSED
    return Method(
        name=name,
        summary=summary,
        paper=paper,
        cost="M²N" if collapsed else "M²B + M³",
        made_of=inducing_points(**{name: parameters[name] for name in COMPOSING if name in parameters}),
        estimator="SparseGPRegressor",
        parameters=parameters,
        candid=candid,
        published={**(COLLAPSED_PROTOCOL if collapsed else PPGPR_PROTOCOL), **published},
        most_rows=COLLAPSED_MOST_ROWS if collapsed else None,
    )


def _deep(names: tuple[str, str], summary: str, parameters: Mapping[str, Any]) -> list[Method]:
    """Two rows with a network: with the evidence lower bound, and with the predictive objective."""
    return [
        _sparse(
            name,
            summary.format(plain),
            {"objective": objective, "covariance": "full", "features": "dc", **parameters},
            # A network can learn a table by heart; rows that are held out tell which epoch was the best.
            {"beta": beta, "validation_fraction": 0.1, "patience": 100},
            {"beta": 1.0, **DC_PROTOCOL, "weight_decay": 0.0},
            paper=DC,
        )
        for name, plain, objective, beta in zip(
            names, ("svgp", "ppgpr-chol"), ("elbo", "predictive"), (1.0, 0.2), strict=True
        )
    ]


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


ROWS = (
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
        "sgpr",
        "inducing points with q(u) in closed form: the collapsed bound of all rows",
        {"objective": "sgpr"},
        {},
        {},
        paper=SGPR,
    ),
    _sparse(
        "fitc",
        "inducing points with noise of their own in each row: the FITC marginal likelihood",
        {"objective": "fitc"},
        {},
        {},
        paper=FITC,
    ),
    _sparse(
        "map",
        "inducing points with point estimates of their values",
        {"objective": "elbo", "covariance": "none"},
        {"beta": 1.0},
        {"beta": 1.0},
    ),
    _sparse(
        "svgp",
        "stochastic variational GP: the evidence lower bound with a full q(u)",
        {"objective": "elbo", "covariance": "full"},
        {"beta": 1.0},
        {"beta": 1.0},
        paper=SVGP,
    ),
    _sparse(
        "gamma-robust",
        "svgp with a score that trusts outliers less than the log-likelihood does",
        {"objective": "robust", "covariance": "full"},
        {"beta": 1.0, "gamma": 1.03},
        {"beta": 1.0, "gamma": 1.03},
        paper=ROBUST,
    ),
    _sparse(
        "vfitc",
        "variational FITC: what the inducing points cannot explain counts as noise",
        {"objective": "vfitc", "covariance": "full"},
        {"beta": 0.3},
        {"beta": 0.3},
    ),
    _sparse(
        "fitc-svgp",
        "stochastic FITC with a bound on both parts of the latent variance",
        {"objective": "fitc_elbo", "covariance": "full"},
        {"beta": 1.0},
        {"beta": 1.0},
        paper=BSGP,
    ),
    _sparse(
        "od-svgp",
        "svgp with a second, orthogonal set of inducing points for the mean",
        {"objective": "elbo", "covariance": "full", "decouple": "orthogonal"},
        {"beta": 1.0},
        {"beta": 0.3},
        paper=OD,
    ),
    _sparse(
        "ppgpr-delta",
        "parametric GP regressor with point estimates of the inducing values",
        {"objective": "predictive", "covariance": "none"},
        {"beta": 0.2},
        {"beta": 1.0},
    ),
    _sparse(
        "ppgpr-mf",
        "parametric GP regressor with a diagonal q(u)",
        {"objective": "predictive", "covariance": "diagonal"},
        {"beta": 0.2},
        {"beta": 0.05},
    ),
    _sparse(
        "ppgpr-chol",
        "parametric GP regressor: the predictive log-likelihood with a full q(u)",
        {"objective": "predictive", "covariance": "full"},
        {"beta": 0.2},
        {"beta": 0.05},
    ),
    _sparse(
        "ppgpr-mfd",
        "ppgpr-mf with inducing points of their own for mean and variance",
        {"objective": "predictive", "covariance": "diagonal", "decouple": "inducing"},
        {"beta": 0.2},
        {"beta": 0.05},
    ),
    _sparse(
        "od-ppgpr",
        "ppgpr-chol with a second, orthogonal set of inducing points for the mean",
        {"objective": "predictive", "covariance": "full", "decouple": "orthogonal"},
        {"beta": 0.2},
        {"beta": 0.05},
        paper=DC,
    ),
    _sparse(
        "dcsvgp",
        "svgp in which mean and covariance have lengthscales of their own",
        {"objective": "elbo", "covariance": "full", "decouple": "kernel"},
        {"beta": 1.0},
        {"beta": 1.0, **DC_PROTOCOL},
        paper=DC,
    ),
    _sparse(
        "dcppgpr",
        "ppgpr-chol in which mean and covariance have lengthscales of their own",
        {"objective": "predictive", "covariance": "full", "decouple": "kernel"},
        {"beta": 0.2},
        {"beta": 1.0, **DC_PROTOCOL},
        paper=DC,
    ),
    *_deep(("svgp-dkl", "ppgpr-dkl"), "{} behind a network", {}),
    *_deep(
        ("svgp-dcdkl", "ppgpr-dcdkl"),
        "{} behind networks, one for the mean and one for the covariance",
        {"decouple": "features"},
    ),
    *_deep(
        ("svgp-meandkl", "ppgpr-meandkl"),
        "{} in which a network is in front of the mean's kernel only",
        {"decouple": "features", "covariance_features": None},
    ),
    *_deep(
        ("nnsvgp", "nnppgpr"),
        "network as the mean of a GP, whose inducing points shape the variance: {}",
        {"decouple": "mean"},
    ),
    _neighbours("loo-k", "nearest neighbours: the leave-one-out density of each row given k others", "loo"),
    _neighbours("mll-k", "nearest neighbours: the marginal likelihood of groups of k rows", "mll"),
    _neighbours(
        "vecchia", "nearest neighbours among earlier rows: the chain rule with k rows in each term", "vecchia", VECCHIA
    ),
    Method(
        name="mc-dropout",
        summary="network with dropout, whose thinned copies are the components of the prediction; no GP",
        paper=DROPOUT,
        cost="B × weights",
        made_of=NETWORK,
        estimator="NetworkRegressor",
        parameters={},
        # As a baseline of the PPGPR paper, which chose p, and the noise variance 1/τ (here alpha, or learned), on
        # validation data. It does not say what the weight decay was, nor the batch size of these experiments.
        published={
            "features": "ppgpr",
            "dropout": 0.1,
            "n_passes": 50,
            "batch_size": 1000,
            "max_epochs": 200,
            "lr": 0.01,
            "schedule": "step",
            "standardize": True,
        },
    ),
)
METHODS: Mapping[str, Method] = MappingProxyType({row.name: row for row in ROWS})


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
