"""Rows whose parameters are sampled rather than optimised."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from candid.methods.composition import Composition
from candid.methods.method import Method
from candid.methods.papers import BSGP, MCMC_SVGP, SGHMC_GP

__all__ = ["SAMPLED", "SAMPLED_OBJECTIVES", "sampled_points"]

#: What the estimators' objectives are called elsewhere: the log of an expectation, and the expectation of the log.
SAMPLED_OBJECTIVES: Mapping[str, str] = MappingProxyType({"fitc": "predictive", "vfe": "elbo"})
# Which parameter group the names of the estimators' parameter ``sample`` stand for.
GROUPS = {"u": "weights", "z": "points", "theta": "rest", "noise": "likelihood"}
# The protocol of the paper on BSGP, in which the noise is optimised.
BSGP_PROTOCOL = MappingProxyType(
    {
        "kernel": "rbf",
        "mean": "zero",
        "n_inducing": 100,
        "init": "kmeans",
        "batch_size": 1000,
        "max_steps": 10_000,
        "lr": 0.01,
        "schedule": "constant",
        "n_chains": 1,
        "burn_in": 1000,
        "n_samples": 256,
        "thin": 32,
        "step_size": 0.01,
        "standardize": True,
    }
)


def sampled_points(
    objective: str,
    sample: Sequence[str],
    sampler: str = "sghmc",
    optimizer: str = "adam",
    hidden_widths: Sequence[int | str] = (),
) -> Composition:
    """How a GP with inducing points, or layers of such, are made if some of their parameters are sampled.

    Parameters
    ----------
    objective : {"fitc", "vfe"}
    sample : sequence of {"u", "theta", "z", "noise"}
        What is sampled: inducing values, hyper-parameters, inducing inputs, the noise.
    sampler : {"sghmc", "hmc", "auto"}
        "auto" is HMC on short tables.
    optimizer : {"adam", "window"}
        How the rest moves meanwhile.
    hidden_widths : sequence
        Of the layers below the last one, if there are any.
    """
    kind = "sghmc" if sampler == "auto" else sampler
    steppers = {group: kind if name in sample else optimizer for name, group in GROUPS.items()}
    family = "layers" if hidden_widths else "inducing"
    return Composition(family, "delta", SAMPLED_OBJECTIVES.get(objective, objective), steppers)


def _sampled(name: str, summary: str, parameters: Mapping[str, Any], paper: str = BSGP) -> Method:
    return Method(
        name=name,
        summary=summary,
        paper=paper,
        cost="(M²B + M³)W" if parameters.get("hidden_widths") else "M²B + M³",
        made_of=sampled_points(**parameters),
        estimator="BayesianGPRegressor",
        parameters=parameters,
        tasks=("regression", "classification"),
        classifier="BayesianGPClassifier",
        published=BSGP_PROTOCOL,
    )


SAMPLED = (
    _sampled(
        "bsgp",
        "fully Bayesian sparse GP, deep by hidden_widths: inducing points and hyper-parameters sampled by SGHMC",
        {"objective": "fitc", "sample": ("u", "theta", "z")},
    ),
    _sampled(
        "sghmc-gp",
        "inducing values sampled by SGHMC, the rest optimised over a moving window of samples",
        {"objective": "fitc", "sample": ("u",), "optimizer": "window"},
        SGHMC_GP,
    ),
    _sampled(
        "sghmc-dgp",
        "deep GP whose inducing values are sampled by SGHMC, the rest optimised over a moving window of samples",
        {"objective": "fitc", "sample": ("u",), "optimizer": "window", "hidden_widths": ("D",)},
        SGHMC_GP,
    ),
    _sampled(
        "mcmc-svgp",
        "inducing values and hyper-parameters sampled from the variational objective, by HMC on short tables",
        {"objective": "vfe", "sample": ("u", "theta", "noise"), "sampler": "auto"},
        MCMC_SVGP,
    ),
)
