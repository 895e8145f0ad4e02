from __future__ import annotations

import numpy as np
import pytest
import torch

from candid.engines import (
    Problem,
    Rows,
    fit_by_evidence,
    fit_by_neighbours,
    fit_points,
    initialise,
    nearest_rows,
    place_points,
)
from candid.families import Inducing, make_mean
from candid.kernels import make_kernel
from candid.likelihoods import Gaussian
from candid.parameters import hyperparameters
from candid.priors import LogNormal, attach
from candid.weights import Solved
from small_models import exact_problem, random_rows

X = np.random.default_rng(0).normal(size=(200, 3))


@pytest.mark.parametrize("how", ["kmeans", "random"])
def test_points_are_distinct_repeatable_and_as_many_as_asked(how):
    points = place_points(X, 20, how, seed=1)
    assert points.shape == (20, 3)
    assert len(np.unique(points, axis=0)) == 20
    np.testing.assert_array_equal(points, place_points(X, 20, how, seed=1))
    assert not np.array_equal(points, place_points(X, 20, how, seed=2))


def test_random_points_are_rows():
    rows = {tuple(row) for row in X}
    assert all(tuple(point) in rows for point in place_points(X, 20, "random", seed=1))


def test_kmeans_is_nearer_to_the_rows_than_a_random_choice():
    def distance(points):
        return np.square(X[:, None] - points[None]).sum(-1).min(1).mean()

    assert distance(place_points(X, 20, "kmeans", 1)) < 0.8 * distance(place_points(X, 20, "random", 1))


@pytest.mark.parametrize("how", ["kmeans", "random"])
def test_never_more_points_than_distinct_rows(how):
    repeated = np.repeat(X[:5], 10, axis=0)
    points = place_points(repeated, 20, how, seed=0)
    np.testing.assert_array_equal(points, np.unique(X[:5], axis=0))


def parts(rows: Rows, dtype=torch.float32, noise: float = 0.5):
    width, outputs = rows.x.shape[1], rows.y.shape[1]
    kernel = make_kernel("matern52", width, batch_shape=(outputs,)).to(dtype)
    return kernel, make_mean("constant", width, outputs).to(dtype), Gaussian(noise, outputs).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_hyperparameters_are_those_of_the_marginal_likelihood(dtype):
    """With all rows as the subset: no gradient of the exact evidence is left."""
    rows = random_rows(60, seed=1)
    kernel, mean, likelihood = parts(rows, dtype)
    fit_by_evidence(kernel, mean, likelihood, None, rows.to(dtype), seed=0, max_epochs=60)
    assert all(
        parameter.raw.dtype == dtype for part in (kernel, mean, likelihood) for _, parameter in hyperparameters(part)
    )
    exact = exact_problem(rows)
    exact.family.kernel.load_state_dict(kernel.state_dict())
    exact.family.mean.load_state_dict(mean.state_dict())
    exact.likelihood.load_state_dict(likelihood.state_dict())
    exact.loss(rows.whole()).backward()
    assert max(parameter.grad.abs().max() for parameter in exact.parameters()) < 1e-3
    assert likelihood.noise.value.sqrt().item() == pytest.approx(0.2, rel=0.4)


def test_fixed_hyperparameters_stay_bit_identical_in_single_precision():
    rows = random_rows(40, seed=2)
    kernel, mean, likelihood = parts(rows, noise=0.1234567)
    likelihood.noise.fix()
    kernel.amplitude.set(0.7654321)
    kernel.amplitude.fix()
    before = likelihood.noise.raw.clone(), kernel.amplitude.raw.clone(), kernel.base.lengthscale.raw.clone()
    fit_by_evidence(kernel, mean, likelihood, None, rows.to(torch.float32), seed=0)
    assert torch.equal(likelihood.noise.raw, before[0])
    assert torch.equal(kernel.amplitude.raw, before[1])
    assert not torch.equal(kernel.base.lengthscale.raw, before[2])


def test_noise_free_data_reach_the_floor_without_harm():
    """In float32 the noise may round onto its floor."""
    rows = random_rows(60, seed=3)
    rows = Rows(rows.x, rows.x[:, :1], rows.weight).to(torch.float32)
    kernel, mean, likelihood = parts(rows)
    fit_by_evidence(kernel, mean, likelihood, None, rows, seed=0, max_epochs=40)
    assert 0.999e-4 < likelihood.noise.value.item() < 1e-3
    assert all(torch.isfinite(p.value).all() for part in (kernel, mean, likelihood) for _, p in hyperparameters(part))


def test_priors_count():
    rows = random_rows(40, seed=4)
    kernel, mean, likelihood = parts(rows, torch.float64)
    prior = attach(kernel, {"lengthscale": LogNormal(5.0, 1e-3)})
    fit_by_evidence(kernel, mean, likelihood, prior, rows, seed=0, max_epochs=40)
    lengthscale = kernel.base.lengthscale.value
    torch.testing.assert_close(lengthscale, torch.full_like(lengthscale, 5.0), rtol=0.02, atol=0)


def test_known_noise_counts():
    """Rows with absurd noise say nothing: hyper-parameters are those of the others."""
    rows = random_rows(60, seed=5)
    known = torch.full((60, 1), 1e6, dtype=torch.float64)
    known[:40] = 0.04
    kernel, mean, _ = parts(rows, torch.float64)
    fit_by_evidence(kernel, mean, Gaussian(known=known), None, rows, seed=7, max_epochs=40)
    subset = rows.subset(torch.arange(40))
    exact = exact_problem(subset, known=known[:40])
    exact.family.kernel.load_state_dict(kernel.state_dict())
    exact.family.mean.load_state_dict(mean.state_dict())
    exact.loss(subset.whole()).backward()
    assert max(p.grad.abs().max() for p in exact.parameters()) < 1e-2


def test_points_are_placed_in_units_of_lengths():
    """A feature of very long lengthscale does not count: the centres differ in the other one only."""
    lengths = np.array([1.0, 1e6, 1e6])
    points = place_points(X, 4, "kmeans", 0, lengths)
    assert points[:, 0].std() > 0.5
    assert points[:, 1].std() < 0.3
    assert place_points(X, 4, "kmeans", 0)[:, 1].std() > 0.3


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_neighbours_find_lengthscale_and_noise(dtype):
    """A quick ripple in one dimension."""
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(1000, 1, dtype=torch.float64, generator=generator) * 4 - 2
    y = torch.sin(40 * x) + 0.05 * torch.randn(1000, 1, dtype=torch.float64, generator=generator)
    rows = Rows(x, y, torch.ones(1000, dtype=torch.float64)).to(dtype)
    kernel, mean, likelihood = parts(rows, dtype)
    fit_by_neighbours(kernel, mean, likelihood, None, rows, seed=0)
    assert likelihood.noise.value.sqrt().item() == pytest.approx(0.05, rel=0.5)
    assert kernel.base.lengthscale.value.item() < 0.2
    assert kernel.base.lengthscale.raw.dtype == dtype


def test_the_rows_next_to_some_places_each_once():
    x = np.array([[0.0, 0.0], [1.0, 0.0], [5.0, 5.0]])
    assert nearest_rows(x, np.array([[0.9, 0.1], [0.1, 0.1], [0.0, -1.0]])).tolist() == [0, 1]


def evidence_problem(rows: Rows, dtype: torch.dtype, objective: str) -> Problem:
    """Four inducing points that have been moved."""
    kernel, mean, likelihood = parts(rows, dtype, noise=0.05)
    points = rows.x[:4].to(dtype).unsqueeze(0)
    family = Inducing(kernel, mean, points, Solved(4, (1,)), 1e-8).to(dtype)
    fit_points(family, likelihood, None, rows.to(dtype), objective, seed=0, max_epochs=60)
    assert family.points.dtype == dtype
    assert (family.points.detach() - points).abs().max() > 0.1
    return Problem(family, likelihood, objective).double()


@pytest.mark.parametrize(("share", "counts"), [(1.0, True), (1e-12, False)])
def test_a_prior_counts_as_much_as_the_share_of_rows(share, counts):
    rows = random_rows(40, seed=4)
    kernel, mean, likelihood = parts(rows, torch.float64)
    family = Inducing(kernel, mean, rows.x[:4].unsqueeze(0), Solved(4, (1,)), 1e-8).double()
    prior = attach(kernel, {"lengthscale": LogNormal(5.0, 1e-3)})
    fit_points(family, likelihood, prior, rows, "sgpr", seed=0, share=share)
    at_the_prior = bool(((kernel.base.lengthscale.value - 5.0).abs() < 0.1).all())
    assert at_the_prior == counts


def test_points_move_as_long_as_it_pays(monkeypatch):
    """A few epochs in any case, then until one gains little; here that is long before the last."""
    epochs, judge = [], initialise._WhileItPays.__call__

    def told(self, record):
        epochs.append(record["epoch"])
        return judge(self, record)

    monkeypatch.setattr(initialise._WhileItPays, "__call__", told)
    evidence_problem(random_rows(60, seed=6), torch.float64, "fitc")
    assert initialise.FIRST_EPOCHS < len(epochs) < 60


@pytest.mark.parametrize("objective", ["fitc", "sgpr"])
def test_points_move_to_the_maximum_of_an_evidence(objective):
    """With kernel and mean: no gradient of the evidence is left. Single precision gets nearly as far; noise rests."""
    rows = random_rows(60, seed=6)
    problem = evidence_problem(rows, torch.float64, objective)
    loss = problem.loss(rows.whole())
    loss.backward()
    assert (
        max(parameter.grad.abs().max() for parameter in problem.family.parameters() if parameter.requires_grad) < 2e-3
    )
    assert problem.likelihood.noise.value.item() == pytest.approx(0.05)
    assert abs(evidence_problem(rows, torch.float32, objective).loss(rows.whole()) - loss) < 1e-3
