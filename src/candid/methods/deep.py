"""Rows of deep GPs: GPs upon GPs, with a network in front of them or without."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from candid.methods.composition import layers_of_gps
from candid.methods.method import Method
from candid.methods.papers import DGP, DSPP, ROBUST

__all__ = ["DEEP"]

# The protocol of the paper on deep sigma point processes, with the wider of its two hidden layers.
PROTOCOL = MappingProxyType(
    {
        "kernel": "matern52",
        "mean": "constant",
        "hidden_widths": (5,),
        "n_inducing": 300,
        "init": "kmeans",
        "n_starts": 3,
        "batch_size": 1000,
        "max_epochs": 400,
        "optimizer": "adam",
        "lr": 0.01,
        "q_lr": 0.01,
        "schedule": "step",
        "standardize": True,
    }
)
# Of its networks, and what our recipe does about a network that can learn a table by heart.
NETWORK_PROTOCOL = MappingProxyType({"weight_decay": 1e-3})
HELD_OUT = MappingProxyType({"validation_fraction": 0.1, "patience": 100})
# Parameters of the estimator that decide what it is made of.
COMPOSING = ("objective", "covariance")


def _row(
    name: str,
    summary: str,
    parameters: Mapping[str, Any],
    candid: Mapping[str, Any],
    published: Mapping[str, Any],
    paper: str = DSPP,
) -> Method:
    return Method(
        name=name,
        summary=summary,
        paper=paper,
        cost="(M²B + M³)W + M²BS",
        made_of=layers_of_gps(**{name: parameters[name] for name in COMPOSING}),
        estimator="DeepGPRegressor",
        parameters=parameters,
        candid=candid,
        published={**PROTOCOL, **published},
    )


def _sampled(objective: str, covariance: str = "full", n_sites: int = 10) -> dict[str, Any]:
    return {"objective": objective, "covariance": covariance, "propagation": "sampling", "n_sites": n_sites}


def _sigma_points(quadrature: str, n_sites: int) -> dict[str, Any]:
    return {"objective": "predictive", "covariance": "diagonal", "quadrature": quadrature, "n_sites": n_sites}


# A grid of S points for each of W hidden GPs has S^W sites.
NARROW = MappingProxyType({"hidden_widths": (4,)})

DEEP = (
    _row(
        "dgp",
        "deep GP: the evidence lower bound with sampled hidden values",
        _sampled("elbo"),
        {"beta": 1.0},
        {"beta": 1.0},
        paper=DGP,
    ),
    _row(
        "gamma-dgp",
        "dgp with a score that trusts outliers less than the log-likelihood does",
        _sampled("robust"),
        {"beta": 1.0, "gamma": 1.03},
        {"beta": 1.0, "gamma": 1.03},
        paper=ROBUST,
    ),
    _row(
        "bpdgp",
        "deep GP with the predictive objective and sampled hidden values",
        _sampled("predictive", n_sites=32),
        {"beta": 0.2},
        {"beta": 0.2},
    ),
    _row(
        "dspp-qr1",
        "deep sigma point process with a grid of learned sites",
        _sigma_points("qr1", 3),
        {"beta": 0.05, **NARROW},
        {"beta": 0.05, **NARROW},
    ),
    _row(
        "dspp-qr2",
        "deep sigma point process with a grid of learned sites that is symmetric about zero",
        _sigma_points("qr2", 3),
        {"beta": 0.05, **NARROW},
        {"beta": 0.05, **NARROW},
    ),
    _row(
        "dspp-qr3",
        "deep sigma point process: learned sites that all hidden GPs share, mixed by learned weights",
        _sigma_points("qr3", 10),
        {"beta": 0.05},
        {"beta": 0.05},
    ),
    _row(
        "dspp-gh",
        "deep GP with the predictive objective and the fixed sites of Gauss and Hermite",
        _sigma_points("gauss-hermite", 3),
        {"beta": 0.05, **NARROW},
        {"beta": 0.05, **NARROW},
    ),
    _row(
        "nn-dgp",
        "dgp behind a network",
        {**_sampled("elbo"), "features": "dspp"},
        {"beta": 1.0, **HELD_OUT},
        {"beta": 1.0, **NETWORK_PROTOCOL},
    ),
    _row(
        "nn-dspp",
        "dspp-qr3 behind a network",
        {**_sigma_points("qr3", 10), "features": "dspp"},
        {"beta": 0.2, **HELD_OUT},
        {"beta": 0.2, **NETWORK_PROTOCOL},
    ),
)
