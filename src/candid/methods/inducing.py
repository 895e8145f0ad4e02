"""Rows with inducing points."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

from candid.methods.composition import inducing_points
from candid.methods.kind import OUR_GAMMA, Kind
from candid.methods.method import Method
from candid.methods.papers import BSGP, DC, FITC, OD, PGVI, PPGPR, ROBUST, SGPR, SVGP

__all__ = ["COLLAPSED_MOST_ROWS", "DC_PROTOCOL", "INDUCING", "inducing_row"]

# Rows whose features fit into memory, several times over, at a few hundred inducing points.
COLLAPSED_MOST_ROWS = 100_000
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
# Published without stochastic optimisation: L-BFGS on all rows.
COLLAPSED_PROTOCOL = MappingProxyType(
    {"kernel": "matern52", "mean": "zero", "n_inducing": 1000, "init": "kmeans", "standardize": True}
)


POINTS = Kind(
    estimator="SparseGPRegressor",
    classifier="SparseGPClassifier",
    compose=inducing_points,
    composing=COMPOSING,
    protocol=PPGPR_PROTOCOL,
    cost="M²B + M³",
    paper=PPGPR,
)
WHOLE_TABLE = replace(POINTS, protocol=COLLAPSED_PROTOCOL, cost="M²N", most_rows=COLLAPSED_MOST_ROWS)
inducing_row = POINTS.row

PGVI_ROW = Method(
    name="pgvi",
    summary="svgp for two classes with Pólya–Gamma variables: q(u) moves in closed form",
    paper=PGVI,
    cost="M²B + M³",
    made_of=inducing_points("polya_gamma"),
    estimator="SparseGPClassifier",
    parameters={"objective": "polya_gamma"},
    tasks=("classification",),
    candid={"beta": 1.0},
    published={
        "kernel": "rbf",
        "mean": "zero",
        "beta": 1.0,
        "n_inducing": 200,
        "init": "kmeans",
        "batch_size": 100,
        "max_epochs": 100,
        "lr": 0.01,
        "q_lr": 0.1,
        "schedule": "constant",
    },
)
INDUCING = (
    WHOLE_TABLE.row(
        "sgpr",
        "inducing points with q(u) in closed form: the collapsed bound of all rows",
        {"objective": "sgpr"},
        {},
        {},
        paper=SGPR,
    ),
    WHOLE_TABLE.row(
        "fitc",
        "inducing points with noise of their own in each row: the FITC marginal likelihood",
        {"objective": "fitc"},
        {},
        {},
        paper=FITC,
    ),
    inducing_row(
        "map",
        "inducing points with point estimates of their values",
        {"objective": "elbo", "covariance": "none"},
        {"beta": 1.0},
        {"beta": 1.0},
    ),
    inducing_row(
        "svgp",
        "stochastic variational GP: the evidence lower bound with a full q(u)",
        {"objective": "elbo", "covariance": "full"},
        {"beta": 1.0},
        {"beta": 1.0},
        paper=SVGP,
    ),
    PGVI_ROW,
    inducing_row(
        "gamma-robust",
        "svgp with a score that trusts outliers less than the log-likelihood does",
        {"objective": "robust", "covariance": "full"},
        {"beta": 1.0, "gamma": OUR_GAMMA},
        {"beta": 1.0, "gamma": 1.03},
        paper=ROBUST,
    ),
    inducing_row(
        "vfitc",
        "variational FITC: what the inducing points cannot explain counts as noise",
        {"objective": "vfitc", "covariance": "full"},
        {"beta": 0.3},
        {"beta": 0.3},
    ),
    inducing_row(
        "fitc-svgp",
        "stochastic FITC with a bound on both parts of the latent variance",
        {"objective": "fitc_elbo", "covariance": "full"},
        {"beta": 1.0},
        {"beta": 1.0},
        paper=BSGP,
    ),
    inducing_row(
        "od-svgp",
        "svgp with a second, orthogonal set of inducing points for the mean",
        {"objective": "elbo", "covariance": "full", "decouple": "orthogonal"},
        {"beta": 1.0},
        {"beta": 0.3},
        paper=OD,
    ),
    inducing_row(
        "ppgpr-delta",
        "parametric GP regressor with point estimates of the inducing values",
        {"objective": "predictive", "covariance": "none"},
        {"beta": 0.2},
        {"beta": 1.0},
    ),
    inducing_row(
        "ppgpr-mf",
        "parametric GP regressor with a diagonal q(u)",
        {"objective": "predictive", "covariance": "diagonal"},
        {"beta": 0.2},
        {"beta": 0.05},
    ),
    inducing_row(
        "ppgpr-chol",
        "parametric GP regressor: the predictive log-likelihood with a full q(u)",
        {"objective": "predictive", "covariance": "full"},
        {"beta": 0.2},
        {"beta": 0.05},
    ),
    inducing_row(
        "ppgpr-mfd",
        "ppgpr-mf with inducing points of their own for mean and variance",
        {"objective": "predictive", "covariance": "diagonal", "decouple": "inducing"},
        {"beta": 0.2},
        {"beta": 0.05},
    ),
    inducing_row(
        "od-ppgpr",
        "ppgpr-chol with a second, orthogonal set of inducing points for the mean",
        {"objective": "predictive", "covariance": "full", "decouple": "orthogonal"},
        {"beta": 0.2},
        {"beta": 0.05},
        paper=DC,
    ),
    inducing_row(
        "dcsvgp",
        "svgp in which mean and covariance have lengthscales of their own",
        {"objective": "elbo", "covariance": "full", "decouple": "kernel"},
        {"beta": 1.0},
        {"beta": 1.0, **DC_PROTOCOL},
        paper=DC,
    ),
    inducing_row(
        "dcppgpr",
        "ppgpr-chol in which mean and covariance have lengthscales of their own",
        {"objective": "predictive", "covariance": "full", "decouple": "kernel"},
        {"beta": 0.2},
        {"beta": 1.0, **DC_PROTOCOL},
        paper=DC,
    ),
)
