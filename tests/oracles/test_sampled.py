"""Samples of GPs against posteriors in closed form, against the prior that data were drawn from, and other samplers."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats

from candid.engines import Plan, Problem, Rows, Sampling, train
from candid.engines.moment import Moment
from candid.engines.steppers import SGHMC
from candid.likelihoods import Bernoulli
from candid.parameters import hyperparameters
from candid.priors import LogNormal, attach
from dense_models import dense_kernel, noise_of
from small_models import chained, layers_problem, random_rows, sparse_problem

OBJECTIVES = {"fitc": "predictive", "vfe": "elbo"}


def u_posterior(problem: Problem, rows: Rows, objective: str) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of the whitened values of a conjugate GP, from dense matrices."""
    covariance, points = dense_kernel(problem), problem.family.points[0]
    with torch.no_grad():
        lower = torch.linalg.cholesky(covariance(points, points))
        features = torch.linalg.solve_triangular(lower, covariance(points, rows.x), upper=False)
        residual = covariance(rows.x, rows.x).diagonal() - features.square().sum(0)
        noise = noise_of(problem) + (residual if objective == "fitc" else 0.0)
        r = rows.y[:, 0] - problem.family.mean(rows.x)[:, 0]
        # S⁻¹ = I + A diag(1/noise) Aᵀ,  m = S A (r/noise)
        spread = (torch.eye(len(points)).double() + (features / noise) @ features.T).inverse()
        return (spread @ features @ (r / noise)).numpy(), spread.numpy()


@pytest.mark.parametrize(("sampler", "rate"), [("sghmc", 0.05), ("hmc", 0.1)])
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_inducing_values_of_a_conjugate_gp(objective, sampler, rate):
    rows = random_rows(25, n_features=1, seed=3)
    problem = sparse_problem(rows, "delta", OBJECTIVES[objective], n_points=4, seed=1)
    mean, covariance = u_posterior(problem, rows, objective)
    n_chains, few = 100, sampler == "hmc"
    chains = chained(problem, n_chains)
    sampling = Sampling({"weights": sampler}, 80 if few else 500, 10, 2 if few else 40, {"weights": rate})
    train(chains, rows, Plan({}, 0, len(rows), seed=2, sampling=sampling))
    samples = chains.draws["family.inner.weights.mean"].flatten(0, 2).numpy()
    scale = np.sqrt(covariance.diagonal())
    assert samples.shape == (10 * n_chains, 4)
    assert (np.abs(samples.mean(0) - mean) / scale < 4 / math.sqrt(n_chains)).all()
    np.testing.assert_allclose(
        np.cov(samples.T) / np.outer(scale, scale), covariance / np.outer(scale, scale), atol=0.2
    )


def test_ranks_of_what_the_data_were_drawn_from():
    """Simulation-based calibration: among its samples, the truth has any rank with the same probability.

    Each output is a table of its own, with parameters of its own that were drawn from the prior.
    """
    n_tables, n_rows, noise = 96, 12, 0.1
    generator = torch.Generator().manual_seed(11)
    x = torch.linspace(-2, 2, n_rows).double().unsqueeze(-1)
    points = torch.tensor([-1.5, 0.0, 1.5]).double().reshape(1, 3, 1).expand(n_tables, 3, 1)
    blank = Rows(x, torch.zeros(n_rows, n_tables).double(), torch.ones(n_rows).double())
    known = torch.full((n_rows, n_tables), noise).double()
    problem = sparse_problem(blank, "delta", "predictive", points=points, known=known, mean="zero")
    prior = attach(problem, {"lengthscale": LogNormal(1.0, 0.5), "amplitude": LogNormal(1.0, 0.5)})
    with torch.no_grad():
        for _, parameter in hyperparameters(problem):
            parameter.raw.copy_(0.5 * torch.randn(parameter.raw.shape, generator=generator))
        problem.family.weights.mean.copy_(torch.randn(n_tables, 3, generator=generator))
        marginal = problem.family.evaluate(blank.whole()).marginal
        spread = (marginal.residual + noise).sqrt()
        y = marginal.mean + spread * torch.randn(spread.shape, generator=generator).double()
    truth = {name: p.detach().clone() for name, p in problem.named_parameters() if p.requires_grad}
    rows = Rows(x, y, blank.weight)
    chains = chained(Problem(problem.family, problem.likelihood, "predictive", prior=prior), 1)
    n_samples = 15
    sampling = Sampling(
        {"weights": "sghmc", "rest": "sghmc"}, 400, n_samples, 60, dict.fromkeys(("weights", "rest"), 0.08)
    )
    train(chains, rows, Plan({}, 0, n_rows, seed=4, sampling=sampling))
    for name in ("kernel.base.lengthscale.raw", "kernel.amplitude.raw", "weights.mean"):
        samples, true = chains.draws[f"family.inner.{name}"][:, 0], truth[f"family.{name}"]
        ranks = (samples < true).sum(0).reshape(n_tables, -1)[:, 0]
        counts = torch.bincount(ranks // 4, minlength=4)
        assert counts.sum() == n_tables
        assert stats.chisquare(counts.numpy()).pvalue > 0.01, name


def test_the_same_moments_as_another_sampler():
    """SGHMC of the package ``posteriors``, which has no preconditioner; ours is told to do without."""
    sghmc = pytest.importorskip("posteriors.sgmcmc.sghmc")
    precision = torch.tensor([[20.0, 5.0], [5.0, 10.0]], dtype=torch.float64)
    centre, n_chains, total = torch.tensor([1.0, -1.0]).double(), 400, 50.0

    def energies(x: torch.Tensor) -> torch.Tensor:
        error = x - centre
        return 0.5 * ((error @ precision) * error).sum(-1)

    torch.manual_seed(0)
    theirs = sghmc.build(lambda x, batch: (-energies(x).sum(), torch.zeros(())), lr=0.02, alpha=5.0)
    state = theirs.init(torch.zeros(n_chains, 2).double())
    for _ in range(400):
        state, _ = theirs.update(state, None)
    x = torch.nn.Parameter(torch.zeros(n_chains, 2).double())
    ours = SGHMC([x], 0.1)
    zeros = torch.zeros(1, 2 * n_chains).double()
    ours.memory = {"momentum": zeros.clone(), "square": zeros + 1, "variance": zeros}
    ours.freeze()
    batch = random_rows(int(total)).whole()
    for step in range(800):
        (x.grad,) = torch.autograd.grad(energies(x).sum() / total, x)
        ours.advance(Moment(None, batch, step, seed=1))  # pyright: ignore
    for samples in (state.params, x.detach()):
        torch.testing.assert_close(samples.mean(0), centre, rtol=0, atol=0.06)
        torch.testing.assert_close(samples.T.cov() @ precision, torch.eye(2).double(), rtol=0, atol=0.25)


def test_a_deep_gp_that_passes_its_inputs_on():
    """Inducing values of its last layer have the posterior of a conjugate GP, those of the first layer their prior."""
    rows = random_rows(25, n_features=1, seed=3)
    deep = layers_problem(rows, (1,), weights="delta", n_points=4, jitter=1e-8, n_draws=1, beta=1.0, seed=1)
    first, last = deep.family.layers
    with torch.no_grad():
        first.kernel.amplitude.set(1e-10)
        first.mean.slope.set(1.0)
        first.mean.constant.set(0.0)
    single = sparse_problem(rows, "delta", "predictive", n_points=4)
    single.family.load_state_dict(last.state_dict())
    single.likelihood.load_state_dict(deep.likelihood.state_dict())
    mean, covariance = u_posterior(single, rows, "fitc")
    chains = chained(deep, 100)
    sampling = Sampling({"weights": "sghmc"}, 250, 8, 30, {"weights": 0.05})
    train(chains, rows, Plan({}, 0, len(rows), seed=2, sampling=sampling))
    for layer, (centre, spread) in enumerate([(np.zeros(4), np.eye(4)), (mean, covariance)]):
        samples = chains.draws[f"family.inner.layers.{layer}.weights.mean"].flatten(0, 2).numpy()
        scale = np.sqrt(spread.diagonal())
        assert (np.abs(samples.mean(0) - centre) / scale < 0.4).all()
        np.testing.assert_allclose(
            np.cov(samples.T) / np.outer(scale, scale), spread / np.outer(scale, scale), atol=0.2
        )


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_one_inducing_value_of_a_probit_model(objective):
    """Against its posterior on a grid, for which the expectations over f are taken on another one."""
    rows = random_rows(12, n_features=1, seed=6)
    rows = Rows(rows.x, (rows.y > 0).double(), rows.weight)
    model = sparse_problem(rows, "delta", "predictive", points=torch.full((1, 1, 1), 0.8).double(), mean="zero")
    problem = Problem(model.family, Bernoulli("probit"), OBJECTIVES[objective])
    grid, f = np.linspace(-6, 6, 601), np.linspace(-8, 8, 801)
    with torch.no_grad():
        model.family.weights.mean.fill_(1.0)
        marginal = model.family.evaluate(rows.whole()).marginal
    slope, residual = marginal.mean[:, 0].numpy(), marginal.residual[:, 0].numpy()
    # Rows × values of u × nodes
    latent = (slope[:, None] * grid)[..., None] + np.sqrt(residual)[:, None, None] * f
    logs = stats.norm.logcdf((2 * rows.y.numpy()[:, :, None] - 1) * latent)
    weight = stats.norm.pdf(f) / stats.norm.pdf(f).sum()
    terms = np.log(np.exp(logs) @ weight) if objective == "fitc" else logs @ weight
    density = np.exp(terms.sum(0)) * stats.norm.pdf(grid)
    density /= density.sum()
    mean = density @ grid
    deviation = math.sqrt(density @ (grid - mean) ** 2)
    chains = chained(problem, 200)
    sampling = Sampling({"weights": "sghmc"}, 120, 6, 20, {"weights": 0.05})
    train(chains, rows, Plan({}, 0, len(rows), seed=2, sampling=sampling))
    samples = chains.draws["family.inner.weights.mean"].flatten().numpy()
    assert abs(samples.mean() - mean) < 0.2 * deviation
    assert samples.std() == pytest.approx(deviation, rel=0.1)
