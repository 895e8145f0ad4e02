"""What must be equal in theory is equal in float64; the references are dense formulas in numpy and scipy."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from scipy.special import logsumexp
from scipy.stats import multivariate_normal, norm
from sklearn.gaussian_process.kernels import ConstantKernel, Matern

from candid.engines import Plan, Problem, solve_weights, train
from candid.likelihoods import GaussianRows
from candid.marginal import Marginal
from candid.objectives import elbo, predictive
from small_models import decoupled_problem, exact_problem, orthogonal_problem, random_rows, sparse_problem

CLOSE = {"rtol": 1e-8, "atol": 1e-8}


def dense(problem: Problem, x1, x2, output: int = 0) -> np.ndarray:
    """Kernel matrix by scikit-learn."""
    ours = problem.family.kernel
    base = Matern(ours.base.lengthscale.value[output, 0].detach().numpy(), nu=2.5)
    return (ConstantKernel(ours.amplitude.value[output].item()) * base)(np.asarray(x1), np.asarray(x2))


def share_hyperparameters(source: Problem, target: Problem) -> None:
    target.family.kernel.load_state_dict(source.family.kernel.state_dict())
    target.family.mean.load_state_dict(source.family.mean.state_dict())
    target.likelihood.load_state_dict(source.likelihood.state_dict())


@pytest.mark.parametrize("weights", ["full", "solved"])
@pytest.mark.parametrize("n_outputs", [1, 2])
def test_svgp_at_all_rows_is_the_exact_gp(n_outputs, weights):
    """Z = X and the best q(v): the ELBO is the log marginal likelihood, and predictions agree."""
    rows, new = random_rows(25, n_outputs=n_outputs, seed=1), random_rows(9, seed=2).x
    exact = exact_problem(rows, seed=3)
    sparse = sparse_problem(rows, weights, points=rows.x.expand(n_outputs, 25, 2))
    share_hyperparameters(exact, sparse)
    solve_weights(sparse.family, sparse.likelihood, rows)

    torch.testing.assert_close(sparse.loss(rows.whole()), exact.loss(rows.whole()), **CLOSE)
    ours, theirs = sparse.family.predictor(), exact.family.predictor()
    torch.testing.assert_close(ours.marginal(new).mean, theirs.marginal(new).mean, rtol=1e-7, atol=1e-7)
    torch.testing.assert_close(ours.marginal(new).variance, theirs.marginal(new).variance, rtol=1e-7, atol=1e-7)
    torch.testing.assert_close(ours.joint(new).covariance, theirs.joint(new).covariance, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("weighted", [False, True])
def test_svgp_at_all_rows_is_the_exact_gp_with_known_noise(weighted):
    rows = random_rows(20, seed=4, weighted=weighted)
    known = torch.linspace(0.05, 0.4, 20, dtype=torch.float64).unsqueeze(-1)
    exact = exact_problem(rows, known=known, seed=5)
    sparse = sparse_problem(rows, points=rows.x.unsqueeze(0), known=known)
    share_hyperparameters(exact, sparse)
    solve_weights(sparse.family, sparse.likelihood, rows)
    torch.testing.assert_close(sparse.loss(rows.whole()), exact.loss(rows.whole()), **CLOSE)


def test_with_solved_weights_hyperparameters_see_the_marginal_likelihood():
    """At the best q(v) the ELBO's gradient is that of its maximum over q(v), here of log p(y); q(v) itself stays."""
    rows = random_rows(25, n_outputs=2, seed=26)
    exact = exact_problem(rows, seed=27)
    sparse = sparse_problem(rows, "solved", points=rows.x.expand(2, 25, 2))
    share_hyperparameters(exact, sparse)
    solve_weights(sparse.family, sparse.likelihood, rows)
    assert sparse.family.weight_parameters() == sparse.groups()["weights"] == []
    for problem in (exact, sparse):
        problem.loss(rows.whole()).backward()
    assert all(parameter.grad is None for parameter in sparse.family.weights.parameters())
    for part in ("family.kernel", "family.mean", "likelihood"):
        for ours, theirs in zip(*(p.get_submodule(part).parameters() for p in (sparse, exact)), strict=True):
            torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-7, atol=1e-7)


def test_solved_weights_are_not_trained_but_follow():
    """No stepper sees them; when training ends they are the best ones for what it has learned."""
    rows = random_rows(25, seed=28)
    problem = sparse_problem(rows, "solved", seed=29)
    assert not problem.groups()["weights"]
    train(problem, rows, Plan({"all": "adam"}, max_epochs=3, batch_size=10, lr=0.1))
    found = problem.family.weights.mean.clone()
    solve_weights(problem.family, problem.likelihood, rows)
    torch.testing.assert_close(found, problem.family.weights.mean)


def test_best_elbo_is_the_collapsed_bound():
    """log N(y; mu, Q + σ²I) − tr(K − Q)/(2σ²) with Q = K_xz K_zz⁻¹ K_zx."""
    rows = random_rows(40, seed=6)
    problem = sparse_problem(rows, n_points=7, seed=7)
    solve_weights(problem.family, problem.likelihood, rows)
    points = problem.family.points[0].detach()
    cross = dense(problem, rows.x, points)
    explained = cross @ np.linalg.solve(dense(problem, points, points), cross.T)
    noise, constant = problem.likelihood.noise.value.item(), problem.family.mean.constant.value.item()
    bound = multivariate_normal(np.full(40, constant), explained + noise * np.eye(40)).logpdf(rows.y[:, 0].numpy())
    bound -= (np.trace(dense(problem, rows.x, rows.x)) - np.trace(explained)) / (2 * noise)
    assert -40 * problem.loss(rows.whole()).item() == pytest.approx(bound, rel=1e-9)


@pytest.mark.parametrize("beta", [1.0, 0.3])
@pytest.mark.parametrize(
    ("build", "weights"),
    [
        (sparse_problem, "full"),
        (sparse_problem, "diagonal"),
        (sparse_problem, "delta"),
        (decoupled_problem, "full"),
        (decoupled_problem, "diagonal"),
        (orthogonal_problem, "full"),
        (orthogonal_problem, "diagonal"),
    ],
)
@pytest.mark.parametrize("known", [False, True])
def test_solved_weights_are_the_maximum(build, weights, beta, known):
    """No gradient is left in what q(v) and the mean are made of, whatever β, weights of rows and noise."""
    rows = random_rows(40, n_outputs=2, seed=8, weighted=True)
    noise = torch.linspace(0.02, 0.5, 80, dtype=torch.float64).reshape(40, 2) if known else None
    problem = build(rows, weights, "elbo", n_points=6, beta=beta, known=noise, seed=9)
    problem.loss(rows.whole()).backward()
    before = max(parameter.grad.abs().max() for parameter in problem.family.weight_parameters())
    problem.zero_grad()
    solve_weights(problem.family, problem.likelihood, rows, beta)
    problem.loss(rows.whole()).backward()
    for parameter in problem.family.weight_parameters():
        assert parameter.grad.abs().max() < 1e-8 < before


@pytest.mark.parametrize("beta", [1.0, 0.3])
def test_solved_diagonal_beats_every_other_diagonal(beta):
    """In particular the marginal variances of the full solution."""
    rows = random_rows(40, seed=10)
    problem = sparse_problem(rows, "diagonal", "elbo", n_points=6, beta=beta, seed=11)
    full = sparse_problem(rows, "full", "elbo", n_points=6, beta=beta, seed=11)
    share_hyperparameters(problem, full)
    solve_weights(problem.family, problem.likelihood, rows, beta)
    solve_weights(full.family, full.likelihood, rows, beta)
    best = problem.loss(rows.whole()).item()
    log_scale = problem.family.weights.log_scale
    root = full.family.weights.root()
    others = [0.5 * (root @ root.mT).diagonal(dim1=-2, dim2=-1).log(), log_scale + 0.05, log_scale - 0.05]
    for other in others:
        with torch.no_grad():
            rival = copy.deepcopy(problem)
            rival.family.weights.log_scale.copy_(other)
        assert rival.loss(rows.whole()).item() > best + 1e-6
    torch.testing.assert_close(problem.family.weights.mean, full.family.weights.mean, **CLOSE)


def test_ppgpr_delta_is_ppgpr_chol_without_spread():
    rows = random_rows(20, seed=12)
    chol = sparse_problem(rows, "full", "predictive", seed=13)
    delta = sparse_problem(rows, "delta", "predictive", seed=13)
    share_hyperparameters(chol, delta)
    with torch.no_grad():
        chol.family.weights.lower.zero_()
        delta.family.weights.mean.copy_(chol.family.weights.mean)
        delta.family.points.copy_(chol.family.points)
    terms = [
        predictive(problem.family.evaluate(rows.whole()).marginal, problem.likelihood.at(None), rows.y)
        for problem in (chol, delta)
    ]
    torch.testing.assert_close(*terms, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("objective", ["elbo", "predictive"])
def test_point_estimates_by_brute_force(objective):
    """``map`` is log N(r; 0, σ²) − c/(2σ²), ``ppgpr-delta`` log N(r; 0, c+σ²); both penalise by −log N(m; 0, I)."""
    rows, beta = random_rows(20, seed=14), 0.7
    problem = sparse_problem(rows, "delta", objective, beta=beta, seed=15)
    family = problem.family
    points, m = family.points[0].detach(), family.weights.mean[0].detach().numpy()
    features = np.linalg.solve(np.linalg.cholesky(dense(problem, points, points)), dense(problem, points, rows.x))
    residual = family.kernel.amplitude.value.item() - (features**2).sum(0)
    r = rows.y[:, 0].numpy() - family.mean.constant.value.item() - features.T @ m
    noise = problem.likelihood.noise.value.item()
    if objective == "elbo":
        terms = norm.logpdf(r, scale=np.sqrt(noise)) - residual / (2 * noise)
    else:
        terms = norm.logpdf(r, scale=np.sqrt(residual + noise))
    expected = -terms.mean() - beta * norm.logpdf(m).sum() / 20
    assert problem.loss(rows.whole()).item() == pytest.approx(expected, rel=1e-9)


def loss_and_gradients(problem: Problem, batch):
    problem.zero_grad()
    loss = problem.loss(batch)
    loss.backward()
    return torch.cat([loss.detach().reshape(1), *(p.grad.flatten() for p in problem.parameters())])


@pytest.mark.parametrize(("weights", "objective"), [("full", "elbo"), ("delta", "elbo"), ("diagonal", "predictive")])
def test_mini_batches_are_unbiased(weights, objective):
    """The average over the equal batches of an epoch is the full objective, exactly; so are its gradients."""
    rows = random_rows(24, n_outputs=2, seed=16)
    problem = sparse_problem(rows, weights, objective, beta=0.4, seed=17)
    order = torch.randperm(24, generator=torch.Generator().manual_seed(0))
    whole = loss_and_gradients(problem, rows.whole())
    parts = torch.stack([loss_and_gradients(problem, rows.batch(index)) for index in order.split(6)])
    torch.testing.assert_close(parts.mean(0), whole, rtol=1e-10, atol=1e-10)
    assert (parts[0] - whole).abs().max() > 1e-3


def test_mini_batches_with_weights():
    """Batches count by the sum of their weights; where that is the same for all, the plain average is unbiased too."""
    rows = random_rows(24, seed=18, weighted=True)
    problem = sparse_problem(rows, beta=0.4, seed=19)
    whole = loss_and_gradients(problem, rows.whole())
    batches = [rows.batch(index) for index in torch.arange(24).split(6)]
    shares = torch.stack([batch.weight.sum() for batch in batches]) / rows.total
    parts = torch.stack([loss_and_gradients(problem, batch) for batch in batches])
    torch.testing.assert_close(shares @ parts, whole, rtol=1e-10, atol=1e-10)

    even = type(rows)(rows.x, rows.y, torch.tensor([1.0, 3.0] * 12, dtype=torch.float64))
    whole = loss_and_gradients(problem, even.whole())
    parts = torch.stack([loss_and_gradients(problem, even.batch(index)) for index in torch.arange(24).split(6)])
    torch.testing.assert_close(parts.mean(0), whole, rtol=1e-10, atol=1e-10)


def test_weights_of_rows_are_repetitions():
    rows = random_rows(15, seed=20, weighted=True)
    index = torch.repeat_interleave(torch.arange(15), rows.weight.long())
    copies = type(rows)(rows.x[index], rows.y[index], torch.ones(len(index), dtype=torch.float64))
    problem = sparse_problem(rows, seed=21)
    weighted = loss_and_gradients(problem, rows.whole())
    torch.testing.assert_close(weighted, loss_and_gradients(problem, copies.whole()), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(("weights", "objective"), [("full", "elbo"), ("diagonal", "predictive"), ("delta", "elbo")])
def test_two_outputs_are_two_models(weights, objective):
    rows = random_rows(20, n_outputs=2, seed=22)
    both = sparse_problem(rows, weights, objective, beta=0.4, seed=23)
    losses, means, variances = [], [], []
    for output in range(2):
        own = type(rows)(rows.x, rows.y[:, output : output + 1], rows.weight)
        single = sparse_problem(own, weights, objective, beta=0.4)
        part = slice(output, output + 1)
        single.load_state_dict(
            {
                name: tensor[:, part] if name.startswith("likelihood") else tensor[part]
                for name, tensor in both.state_dict().items()
            }
        )
        losses.append(single.loss(own.whole()))
        marginal = single.family.predictor().marginal(rows.x)
        means.append(marginal.mean)
        variances.append(marginal.variance)
    torch.testing.assert_close(both.loss(rows.whole()), losses[0] + losses[1], **CLOSE)
    marginal = both.family.predictor().marginal(rows.x)
    torch.testing.assert_close(marginal.mean, torch.cat(means, 1), **CLOSE)
    torch.testing.assert_close(marginal.variance, torch.cat(variances, 1), **CLOSE)


@pytest.mark.parametrize(("weights", "objective"), [("full", "elbo"), ("diagonal", "predictive"), ("delta", "elbo")])
def test_single_precision_is_close_to_double(weights, objective):
    rows = random_rows(60, n_features=4, seed=24)
    double = sparse_problem(rows, weights, objective, n_points=12, beta=0.4, jitter=1e-6, seed=25)
    single = copy.deepcopy(double).float()
    assert single.loss(rows.to(torch.float32).whole()).dtype == torch.float32
    assert single.loss(rows.to(torch.float32).whole()).item() == pytest.approx(
        double.loss(rows.whole()).item(), rel=1e-4, abs=1e-4
    )
    ours, theirs = single.family.predictor().marginal(rows.x), double.family.predictor().marginal(rows.x)
    assert ours.mean.dtype == torch.float64
    torch.testing.assert_close(ours.mean, theirs.mean, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(ours.variance, theirs.variance, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("n_chains", [None, 3])
@pytest.mark.parametrize("weight_of_each_row", [False, True])
def test_mixtures_by_brute_force(draw, n_chains, weight_of_each_row):
    """Sites are averaged in the ELBO and mixed in the predictive objective, each with its weight; chains stay apart."""
    n_sites, n_rows, n_outputs = 4, 5, 2
    shape = (n_sites, n_rows, n_outputs) if n_chains is None else (n_chains, n_sites, n_rows, n_outputs)
    mean, variance = draw(*shape), 0.1 + draw(*shape).square()
    log_weight = torch.log_softmax(draw(n_sites, n_rows if weight_of_each_row else 1), dim=0)
    marginal = Marginal(mean, 0.3 * variance, 0.7 * variance, log_weight)
    noise, y = torch.tensor([[0.2, 0.5]], dtype=torch.float64), draw(n_rows, n_outputs)

    f, v, s2 = mean.numpy(), variance.numpy(), noise.numpy()
    expected_log = (norm.logpdf(y, f, np.sqrt(s2)) - v / (2 * s2)).sum(-1)
    log_expected = norm.logpdf(y, f, np.sqrt(s2 + v)).sum(-1)
    share = np.broadcast_to(log_weight.numpy(), (n_sites, n_rows))
    np.testing.assert_allclose(
        elbo(marginal, GaussianRows(noise), y), (np.exp(share) * expected_log).sum(-2), rtol=1e-12
    )
    np.testing.assert_allclose(
        predictive(marginal, GaussianRows(noise), y), logsumexp(share + log_expected, axis=-2), rtol=1e-12
    )
