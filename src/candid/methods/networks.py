"""Rows with a network: in front of the kernel, as the mean, or alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from candid.methods.composition import NETWORK
from candid.methods.inducing import DC_PROTOCOL, inducing_row
from candid.methods.method import Method
from candid.methods.papers import DC, DROPOUT

__all__ = ["DEEP_KERNELS", "NETWORKS"]


def _deep(names: tuple[str, str], summary: str, parameters: Mapping[str, Any]) -> list[Method]:
    """Two rows with a network: with the evidence lower bound, and with the predictive objective."""
    return [
        inducing_row(
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


DEEP_KERNELS = (
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
)
NETWORKS = (
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
