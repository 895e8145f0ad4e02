"""Whether predicted probabilities come true: normal scores of the targets and their distance from N(0, 1)."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri

from candid.metrics._checks import row_weights, targets
from candid.predictive import Predictive

__all__ = ["calibration_curve", "wasserstein_to_normal", "z_scores"]


def z_scores(y: ArrayLike, p: Predictive) -> np.ndarray:
    """Normal scores ``z = Φ⁻¹(F(y))``, in the shape of the predictions.

    For a normal distribution this is ``(y − mean) / std``. Calibrated predictions give standard normal scores: a wider
    spread of z means overconfidence, a narrower one means that the model claims too little.
    """
    return p.z_score(targets(y, p))


def wasserstein_to_normal(z: ArrayLike, *, sample_weight: ArrayLike | None = None) -> float:
    """1-Wasserstein distance between the empirical distribution of ``z`` and N(0, 1); 0 is perfect calibration.

    Parameters
    ----------
    z : array of shape (N,) or (N, P)
        Scores as from :func:`z_scores`; several outputs are pooled.
    sample_weight : array of shape (N,), optional
    """
    z, weight = _pooled(z, sample_weight)
    if np.isinf(z[weight > 0]).any():
        return float("inf")
    z, weight = z[weight > 0], weight[weight > 0]
    # W₁ = ∫₀¹ |F⁻¹(u) − Φ⁻¹(u)| du, where F⁻¹(u) = zᵢ for u in (aᵢ, bᵢ). With x = Φ⁻¹(u) and G(x) = zᵢ Φ(x) + φ(x), the
    # primitive of (zᵢ − x) φ(x), each piece is 2 G(zᵢ, moved into the interval) − G(left end) − G(right end).
    edges = np.concatenate([[0.0], np.cumsum(weight)[:-1].clip(max=1.0), [1.0]])
    left, right = ndtri(edges[:-1]), ndtri(edges[1:])
    kink = np.clip(z, left, right)
    pieces = (
        z * (2 * ndtr(kink) - edges[:-1] - edges[1:]) + 2 * _normal_density(kink)
        - _normal_density(left) - _normal_density(right)
    )  # fmt: skip
    return float(pieces.sum())


def calibration_curve(
    y: ArrayLike, p: Predictive, *, levels: ArrayLike | None = None, sample_weight: ArrayLike | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Predicted against observed cumulative probability; calibrated predictions lie on the diagonal.

    Parameters
    ----------
    y : array of the shape of ``p.mean``
    p : predictive distribution
    levels : increasing array, optional
        Probabilities at which to read the curve. By default every target gives one point.
    sample_weight : array of shape (N,), optional

    Returns
    -------
    levels : ndarray
        ``Φ(z)`` of the sorted scores, that is ``F(y)``; or the given levels.
    observed : ndarray
        Share of the targets whose ``F(y)`` is at most that level; several outputs are pooled.
    """
    z, weight = _pooled(z_scores(y, p), sample_weight)
    probability = ndtr(z)
    at = probability if levels is None else np.asarray(levels, dtype=np.float64)
    share = np.concatenate([[0.0], np.cumsum(weight)[:-1], [1.0]])
    return at, share[np.searchsorted(probability, at, side="right")]


def _pooled(z: ArrayLike, sample_weight: ArrayLike | None) -> tuple[np.ndarray, np.ndarray]:
    """All scores in increasing order, with weights that sum to one."""
    z = np.asarray(z, dtype=np.float64)
    if z.ndim not in (1, 2) or z.size == 0:
        raise ValueError(f"scores must have shape (N,) or (N, P) with at least one row, got {z.shape}")
    if np.isnan(z).any():
        raise ValueError("the scores contain NaN")
    weight = np.repeat(row_weights(sample_weight, len(z)), z.size // len(z))
    order = np.argsort(z, axis=None, kind="stable")
    return z.ravel()[order], weight[order] / weight.sum()


def _normal_density(x: np.ndarray) -> np.ndarray:
    return np.exp(-0.5 * x * x) / np.sqrt(2 * np.pi)
