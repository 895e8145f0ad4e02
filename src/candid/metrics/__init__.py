"""Metrics of predictive distributions and class probabilities, and scorers for model selection."""

from __future__ import annotations

from candid.metrics.calibration import calibration_curve, wasserstein_to_normal, z_scores
from candid.metrics.classification import auc, error_rate, expected_calibration_error, log_loss
from candid.metrics.regression import coverage, crps, mrmse, nll, noise_share, rmse, summary
from candid.metrics.scorers import SCORERS, crps_scorer, nll_scorer, rmse_scorer

__all__ = [
    "SCORERS",
    "auc",
    "calibration_curve",
    "coverage",
    "crps",
    "crps_scorer",
    "error_rate",
    "expected_calibration_error",
    "log_loss",
    "mrmse",
    "nll",
    "nll_scorer",
    "noise_share",
    "rmse",
    "rmse_scorer",
    "summary",
    "wasserstein_to_normal",
    "z_scores",
]
