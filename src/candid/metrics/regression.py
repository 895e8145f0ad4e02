"""How good a predictive distribution of a real-valued target is.

Every function takes the observed ``y`` and a distribution ``p`` for the same rows (from ``predict_distribution``). With
several outputs, scores are per output dimension: an average over outputs, then over rows. ``scale`` (one number or one
per output, usually the standard deviation of the training targets) gives the result in standardised units; without it
everything is in the units of y.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from candid.metrics._checks import average, row_weights, scale_of, targets
from candid.predictive import Predictive

__all__ = ["coverage", "crps", "mrmse", "nll", "noise_share", "rmse", "summary"]


def nll(
    y: ArrayLike, p: Predictive, *, scale: ArrayLike | None = None, sample_weight: ArrayLike | None = None
) -> float:
    """Mean negative log predictive density per row and output, in nats; smaller is better.

    In standardised units it is smaller by ``log(scale)``.
    """
    values = targets(y, p)
    log_density = p.log_prob(values)
    # A density of all outputs of a row together is shared out among them.
    outputs_together = p.mean.size / max(log_density.size, 1)
    # p(y/s) = s p(y)
    return -average(log_density, sample_weight) / outputs_together - float(np.mean(np.log(scale_of(scale, p))))


def crps(
    y: ArrayLike, p: Predictive, *, scale: ArrayLike | None = None, sample_weight: ArrayLike | None = None
) -> float:
    """Mean continuous ranked probability score per row and output; smaller is better."""
    values = targets(y, p)
    return average(p.crps(values) / scale_of(scale, p), sample_weight)


def rmse(
    y: ArrayLike,
    p: Predictive,
    *,
    outputs: Literal["mean", "sum"] = "mean",
    scale: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
) -> float:
    """Root mean squared error of the predictive mean.

    With several outputs, squared errors are averaged over outputs before the mean over rows and the root;
    ``outputs="sum"`` sums them instead, which is the "RMSE" that some papers print for several outputs.
    :func:`mrmse` takes one root per output.
    """
    if outputs not in ("mean", "sum"):
        raise ValueError(f"outputs must be 'mean' or 'sum', got {outputs!r}")
    squared = ((targets(y, p) - p.mean) / scale_of(scale, p)) ** 2
    n_outputs = squared[0].size if outputs == "sum" else 1
    return float(np.sqrt(n_outputs * average(squared, sample_weight)))


def mrmse(
    y: ArrayLike, p: Predictive, *, scale: ArrayLike | None = None, sample_weight: ArrayLike | None = None
) -> float:
    """Mean over outputs of the root mean squared error of each output; :func:`rmse` where there is only one."""
    squared = ((targets(y, p) - p.mean) / scale_of(scale, p)) ** 2
    weight = row_weights(sample_weight, len(p))
    return float(np.mean(np.sqrt(weight @ squared.reshape(len(p), -1))))


def coverage(y: ArrayLike, p: Predictive, level: float = 0.95, *, sample_weight: ArrayLike | None = None) -> float:
    """Share of the targets inside the central interval of probability ``level``; the nearer to ``level`` the better."""
    values = targets(y, p)
    lower, upper = p.interval(level)
    return average(((lower <= values) & (values <= upper)).astype(np.float64), sample_weight)


def noise_share(p: Predictive, *, sample_weight: ArrayLike | None = None) -> float:
    """Mean over rows of noise variance / predictive variance: how much of the uncertainty the model calls noise.

    A row without any uncertainty has share zero.
    """
    if len(p) == 0:
        raise ValueError("there are no rows to average over")
    ratio = np.divide(p.noise_std, p.std, out=np.zeros(p.shape), where=p.std > 0)
    return average(ratio**2, sample_weight)


def summary(
    y: ArrayLike, p: Predictive, *, scale: ArrayLike | None = None, sample_weight: ArrayLike | None = None
) -> dict[str, float]:
    """The metrics that every comparison reports.

    Parameters
    ----------
    y : array of the shape of ``p.mean``
    p : predictive distribution
    scale : number or one per output, optional
        Unit of the result. With the standard deviation of y: NLL falls by ``log(scale)``, CRPS and RMSE are divided
        by it; coverage and noise share have no unit.
    sample_weight : array of shape (N,), optional

    Returns
    -------
    dict with ``nll``, ``crps``, ``rmse``, ``coverage`` (of the central 95 % interval) and ``noise_share``
    """
    return {
        "nll": nll(y, p, scale=scale, sample_weight=sample_weight),
        "crps": crps(y, p, scale=scale, sample_weight=sample_weight),
        "rmse": rmse(y, p, scale=scale, sample_weight=sample_weight),
        "coverage": coverage(y, p, sample_weight=sample_weight),
        "noise_share": noise_share(p, sample_weight=sample_weight),
    }
