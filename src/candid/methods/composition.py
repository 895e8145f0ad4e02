"""What methods are made of: family × weights × objective × steppers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

__all__ = [
    "BOUNDS",
    "COLLAPSED",
    "DECOUPLED",
    "EXACT",
    "NEIGHBOURS",
    "NETWORK",
    "Composition",
    "inducing_points",
    "layers_of_gps",
    "usual_beta",
]

#: Row objectives that are lower bounds of an evidence: q(u) may follow natural gradients.
BOUNDS = ("elbo", "vfitc", "fitc_elbo", "polya_gamma")
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


def usual_beta(objective: str, given: float | None = None) -> float:
    """What the KL penalty counts, unless it is given: it is part of a bound, but not of the predictive objective."""
    if given is not None:
        return given
    return 0.2 if objective == "predictive" else 1.0


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
#: How a GP of nearest neighbours is made, by the estimator's name of its objective.
NEIGHBOURS: Mapping[str, Composition] = MappingProxyType(
    {
        "loo": Composition("neighbours", None, "predictive", {"sites": "rows", "network": "adam", "rest": "adam"}),
        "mll": Composition("neighbours", None, "marginal_likelihood", {"network": "adam", "rest": "adam"}),
        "vecchia": Composition("vecchia", None, "chain_rule", {"network": "adam", "rest": "adam"}),
        "swsgp": Composition("swsgp", "diagonal", "elbo", {"weights": "adam", "points": "adam", "rest": "adam"}),
        # Without steppers nothing is trained.
        "alc": Composition("alc", None, "predictive", {}),
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


def layers_of_gps(objective: str, covariance: str = "diagonal", optimizer: str = "auto") -> Composition:
    """How a deep GP is made.

    Parameters
    ----------
    objective : {"predictive", "elbo", "robust"}
    covariance : {"none", "diagonal", "full", "implicit"}
        Covariance of q(u), in every layer; "implicit" is a q(u) of draws of a network, with a critic.
    optimizer : {"auto", "adam"}
        How q(u) moves; "auto" is a damped Adam.
    """
    weights = "delta" if covariance == "none" else covariance
    stepper = "damped" if optimizer == "auto" else optimizer
    steppers = {"weights": stepper, "points": "adam", "hidden_means": "adam", "network": "adam", "rest": "adam"}
    if covariance == "implicit":
        steppers |= {"generator": "adam", "critic": "critic"}
    return Composition("layers", weights, objective, steppers)
