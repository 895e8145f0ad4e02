"""Two layers of GPs, as deep methods train them: ours, without the estimator around it."""

from __future__ import annotations

import torch

from candid.bench.case import Case, Sample
from candid.families import Inducing, Layers, LearnedSites, MonteCarlo, Wiring, make_mean
from candid.kernels import Matern52, Scale
from candid.weights import WEIGHTS

__all__ = ["make_layers"]


def make_layers(case: Case, sample: Sample, jitter: float) -> Layers:
    """Hidden GPs with linear mean functions, and one with a constant on top of them."""
    width = case.hidden_width
    hidden = _layer(case, sample.points.expand(width, -1, -1), "linear", jitter)
    with torch.no_grad():
        hidden.mean.slope.set(sample.slopes)  # pyright: ignore[reportAttributeAccessIssue, reportCallIssue]
    last = _layer(case, sample.hidden_points[None], "constant", jitter)
    if case.row.parameters.get("propagation") == "sampling":
        rule = MonteCarlo(case.n_sites, [width])
    else:
        rule = LearnedSites(case.n_sites, [width])
        with torch.no_grad():
            rule.sites[0].copy_(sample.sites)
    return Layers([hidden, last], rule, Wiring(2))


def _layer(case: Case, points: torch.Tensor, mean: str, jitter: float) -> Inducing:
    n_gps, n_points, n_features = points.shape
    kernel = Scale(Matern52(lengthscale=case.lengthscale), case.amplitude).build(n_features, True, (n_gps,))
    weights = WEIGHTS[str(case.row.made_of.weights)](n_points, (n_gps,))
    return Inducing(kernel, make_mean(mean, n_features, n_gps), points, weights, jitter)
