"""Predictive distributions and metrics against scoringrules, scipy, scikit-learn and numerical integration."""

from __future__ import annotations

import numpy as np
import pytest
import scoringrules
import sklearn.metrics
from scipy import integrate, optimize, stats

from candid import metrics
from candid.predictive import JointNormal, PredictiveMixture, PredictiveNormal

N, P, J = 20, 3, 5


def components(shape, seed=0):
    rng = np.random.default_rng(seed)
    means, stds = 2 * rng.normal(size=(*shape, J)), 0.05 + rng.random((*shape, J))
    return means, stds, rng.dirichlet(np.ones(J)), 3 * rng.normal(size=shape)


def test_normal_scores_and_densities():
    rng = np.random.default_rng(0)
    mean, latent, noise, y = rng.normal(size=(4, N, P))
    latent, noise = np.abs(latent), np.abs(noise)
    p, std = PredictiveNormal(mean, latent, noise), np.sqrt(latent**2 + noise**2)
    np.testing.assert_allclose(p.crps(y), scoringrules.crps_normal(y, mean, std), rtol=1e-10)
    np.testing.assert_allclose(p.log_prob(y), stats.norm.logpdf(y, mean, std), rtol=1e-12)
    np.testing.assert_allclose(p.cdf(y), stats.norm.cdf(y, mean, std), rtol=1e-12)
    np.testing.assert_allclose(p.quantile(0.123), stats.norm.ppf(0.123, mean, std), rtol=1e-12)


@pytest.mark.parametrize("shape", [(N,), (N, P)])
def test_mixture_crps_and_densities(shape):
    means, stds, weights, y = components(shape)
    p = PredictiveMixture(means, 0.6 * stds, 0.8 * stds, weights)
    full = np.broadcast_to(weights, means.shape)
    np.testing.assert_allclose(p.crps(y), scoringrules.crps_mixnorm(y, means, stds, full), rtol=1e-10)
    density = stats.norm.logpdf(y[..., None], means, stds)
    np.testing.assert_allclose(p.log_prob(y), np.log(np.sum(weights * np.exp(density), axis=-1)), rtol=1e-9)
    np.testing.assert_allclose(p.log_prob(y), -scoringrules.logs_mixnorm(y, means, stds, full), rtol=1e-9)


def test_mixture_against_integration():
    means, stds, weights, y = components((4,), seed=1)
    p = PredictiveMixture(means, stds, 0.0, weights)
    for i in range(4):

        def density(t, i=i):
            return float(weights @ stats.norm.pdf(t, means[i], stds[i]))

        def cdf(t, i=i):
            return float(weights @ stats.norm.cdf(t, means[i], stds[i]))

        ends = (means[i] - 12 * stds[i]).min(), (means[i] + 12 * stds[i]).max()
        knots = np.unique(np.concatenate([means[i], [y[i]]])).clip(*ends)
        options = {"points": knots, "limit": 400, "epsabs": 1e-12}
        mean = integrate.quad(lambda t: t * density(t), *ends, **options)[0]
        variance = integrate.quad(lambda t, mean=mean: (t - mean) ** 2 * density(t), *ends, **options)[0]
        score = integrate.quad(lambda t, i=i: (cdf(t) - (t >= y[i])) ** 2, *ends, **options)[0]
        np.testing.assert_allclose(p.mean[i], mean, rtol=1e-9)
        np.testing.assert_allclose(p.std[i] ** 2, variance, rtol=1e-9)
        np.testing.assert_allclose(p.crps(y)[i], score, rtol=1e-8)
        np.testing.assert_allclose(p.cdf(y)[i], cdf(y[i]), rtol=1e-12)


@pytest.mark.parametrize("level", [1e-6, 0.025, 0.3, 0.5, 0.9, 0.999])
def test_mixture_quantiles_against_root_finding(level):
    means, stds, weights, _ = components((N,), seed=2)
    found = PredictiveMixture(means, stds, 0.0, weights).quantile(level)
    for i in range(N):

        def excess(t, i=i):
            if level < 0.5:
                return weights @ stats.norm.cdf(t, means[i], stds[i]) - level
            return (1 - level) - weights @ stats.norm.sf(t, means[i], stds[i])

        root = optimize.brentq(excess, -40, 40, xtol=1e-14, rtol=1e-14)
        np.testing.assert_allclose(found[i], root, rtol=1e-10, atol=1e-11)


def test_mixture_z_scores():
    means, stds, weights, _ = components((N,), seed=3)
    p = PredictiveMixture(means, stds, 0.0, weights)
    below = stats.norm.cdf(p.mean[:, None], means, stds) @ weights
    np.testing.assert_allclose(p.z_score(p.mean), stats.norm.ppf(below), rtol=1e-9)
    for level in (1e-12, 0.2, 0.7):
        np.testing.assert_allclose(p.z_score(p.quantile(level)), stats.norm.ppf(level), rtol=1e-9)
    np.testing.assert_allclose(p.z_score(p.quantile(1 - 1e-12)), stats.norm.isf(1 - (1 - 1e-12)), rtol=1e-9)


def test_joint_density():
    rng = np.random.default_rng(4)
    root, mean, y = rng.normal(size=(5, 5)), rng.normal(size=5), rng.normal(size=(3, 5))
    covariance = root @ root.T
    expected = stats.multivariate_normal(mean, covariance).logpdf(y)
    np.testing.assert_allclose(JointNormal(mean, covariance).log_prob(y), expected, rtol=1e-9)
    flat = root[:, :3] @ root[:, :3].T
    inside = mean + rng.normal(size=(3, 3)) @ root[:, :3].T
    expected = stats.multivariate_normal(mean, flat, allow_singular=True).logpdf(inside)
    np.testing.assert_allclose(JointNormal(mean, flat).log_prob(inside), expected, rtol=1e-7)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("shift", "spread"), [(0.0, 1.0), (3.0, 0.1), (-0.5, 4.0)])
def test_wasserstein_against_integration(weighted, shift, spread):
    rng = np.random.default_rng(5)
    z = np.sort(shift + spread * rng.normal(size=17))
    weight = rng.random(17) if weighted else np.ones(17)
    share = np.concatenate([[0.0], np.cumsum(weight / weight.sum())])
    edges = np.concatenate([[-14.0], z, [14.0]])
    # ∫ |F(t) − Φ(t)| dt, one integral between each two jumps of F
    pieces = [
        integrate.quad(
            lambda t, value=value: abs(value - stats.norm.cdf(t)),
            low,
            high,
            points=[min(max(stats.norm.ppf(np.clip(value, 1e-300, 1 - 1e-16)), low), high)],
            epsabs=1e-13,
        )[0]
        for value, low, high in zip(share, edges[:-1], edges[1:], strict=True)
    ]
    distance = metrics.wasserstein_to_normal(z, sample_weight=weight if weighted else None)
    np.testing.assert_allclose(distance, sum(pieces), rtol=1e-9)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n_classes", [2, 4])
def test_class_metrics(n_classes, weighted):
    rng = np.random.default_rng(6)
    y = rng.integers(n_classes, size=200)
    proba = rng.dirichlet(np.ones(n_classes), size=200)
    weight = rng.random(200) if weighted else None
    given = proba[:, 1] if n_classes == 2 else proba
    hit = sklearn.metrics.accuracy_score(y, proba.argmax(axis=1), sample_weight=weight)
    assert metrics.error_rate(y, given, sample_weight=weight) == pytest.approx(1 - hit, rel=1e-12)
    expected = sklearn.metrics.log_loss(y, proba, sample_weight=weight)
    assert metrics.log_loss(y, given, sample_weight=weight) == pytest.approx(expected, rel=1e-12)
    # Share of (row of the class, other row) pairs that the probability orders rightly
    areas = []
    for k in range(1 if n_classes == 2 else 0, n_classes):
        pairs = np.outer(y == k, y != k) * (1.0 if weight is None else np.outer(weight, weight))
        areas.append(np.sum(pairs * (proba[:, None, k] > proba[None, :, k])) / pairs.sum())
    expected = np.mean(areas)
    assert metrics.auc(y, given, sample_weight=weight) == pytest.approx(expected, rel=1e-12)


def test_regression_errors():
    rng = np.random.default_rng(7)
    y, mean = rng.normal(size=(2, 50, P))
    weight = rng.random(50)
    p = PredictiveNormal(mean, 1.0)
    squared = sklearn.metrics.mean_squared_error(y, mean, sample_weight=weight)
    assert metrics.rmse(y, p, sample_weight=weight) == pytest.approx(np.sqrt(squared), rel=1e-12)
    roots = sklearn.metrics.root_mean_squared_error(y, mean, sample_weight=weight)
    assert metrics.mrmse(y, p, sample_weight=weight) == pytest.approx(roots, rel=1e-12)
