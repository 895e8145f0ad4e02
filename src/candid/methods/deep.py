"""Rows of deep GPs: GPs upon GPs, with a network in front of them or without."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from candid.methods.composition import layers_of_gps
from candid.methods.kind import OUR_GAMMA, Kind
from candid.methods.papers import DGP, DSPP, IPVI, ROBUST

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
# That of the authors' code for implicit posteriors; their hidden layers are as wide as the table has columns.
IMPLICIT_PROTOCOL = MappingProxyType(
    {
        "kernel": "rbf",
        "mean": "zero",
        "n_inducing": 128,
        "n_starts": 1,
        "batch_size": 10_000,
        "max_epochs": 20_000,
        "lr": 0.0025,
        "schedule": "constant",
    }
)

LAYERS = Kind(
    estimator="DeepGPRegressor",
    classifier="DeepGPClassifier",
    compose=layers_of_gps,
    composing=("objective", "covariance"),
    protocol=PROTOCOL,
    cost="(M²B + M³)W + M²BS",
    paper=DSPP,
)


def _sampled(objective: str, covariance: str = "full", n_sites: int = 10) -> dict[str, Any]:
    return {"objective": objective, "covariance": covariance, "propagation": "sampling", "n_sites": n_sites}


def _sigma_points(quadrature: str, n_sites: int) -> dict[str, Any]:
    return {"objective": "predictive", "covariance": "diagonal", "quadrature": quadrature, "n_sites": n_sites}


# A grid of S points for each of W hidden GPs has S^W sites.
NARROW = MappingProxyType({"hidden_widths": (4,)})

DEEP = (
    LAYERS.row(
        "dgp",
        "deep GP: the evidence lower bound with sampled hidden values",
        _sampled("elbo"),
        {"beta": 1.0},
        {"beta": 1.0},
        paper=DGP,
    ),
    LAYERS.row(
        "ipvi-dgp",
        "dgp whose inducing values are draws of networks; critics estimate their divergence from the prior",
        _sampled("elbo", "implicit"),
        {"beta": 1.0},
        {"beta": 1.0, **IMPLICIT_PROTOCOL},
        paper=IPVI,
    ),
    LAYERS.row(
        "gamma-dgp",
        "dgp with a score that trusts outliers less than the log-likelihood does",
        _sampled("robust"),
        {"beta": 1.0, "gamma": OUR_GAMMA},
        {"beta": 1.0, "gamma": 1.03},
        paper=ROBUST,
    ),
    LAYERS.row(
        "bpdgp",
        "deep GP with the predictive objective and sampled hidden values",
        _sampled("predictive", n_sites=32),
        {"beta": 0.2},
        {"beta": 0.2},
    ),
    LAYERS.row(
        "dspp-qr1",
        "deep sigma point process with a grid of learned sites",
        _sigma_points("qr1", 3),
        {"beta": 0.05, **NARROW},
        {"beta": 0.05, **NARROW},
    ),
    LAYERS.row(
        "dspp-qr2",
        "deep sigma point process with a grid of learned sites that is symmetric about zero",
        _sigma_points("qr2", 3),
        {"beta": 0.05, **NARROW},
        {"beta": 0.05, **NARROW},
    ),
    LAYERS.row(
        "dspp-qr3",
        "deep sigma point process: learned sites that all hidden GPs share, mixed by learned weights",
        _sigma_points("qr3", 10),
        {"beta": 0.05},
        {"beta": 0.05},
    ),
    LAYERS.row(
        "dspp-gh",
        "deep GP with the predictive objective and the fixed sites of Gauss and Hermite",
        _sigma_points("gauss-hermite", 3),
        {"beta": 0.05, **NARROW},
        {"beta": 0.05, **NARROW},
    ),
    LAYERS.row(
        "nn-dgp",
        "dgp behind a network",
        {**_sampled("elbo"), "features": "dspp"},
        {"beta": 1.0, **HELD_OUT},
        {"beta": 1.0, **NETWORK_PROTOCOL},
    ),
    LAYERS.row(
        "nn-dspp",
        "dspp-qr3 behind a network",
        {**_sigma_points("qr3", 10), "features": "dspp"},
        {"beta": 0.2, **HELD_OUT},
        {"beta": 0.2, **NETWORK_PROTOCOL},
    ),
)
