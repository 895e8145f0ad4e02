"""The exact GP against scikit-learn: log marginal likelihood, its gradient, and predictions, in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern, WhiteKernel

from candid.engines import Problem, Rows
from small_models import exact_problem, random_rows

BASES = {
    "rbf": RBF,
    "matern32": lambda lengthscale: Matern(lengthscale, nu=1.5),
    "matern52": lambda lengthscale: Matern(lengthscale, nu=2.5),
}
CLOSE = {"rtol": 1e-8, "atol": 1e-8}


def their_kernel(problem: Problem, kernel: str, output: int = 0, white: bool = False):
    """scikit-learn's kernel with the hyper-parameters of one output of ours."""
    ours = problem.family.kernel
    lengthscale = ours.base.lengthscale.value[output, 0].detach().numpy()
    theirs = ConstantKernel(ours.amplitude.value[output].item()) * BASES[kernel](lengthscale)
    return theirs + WhiteKernel(noise_of(problem, output)) if white else theirs


def noise_of(problem: Problem, output: int = 0) -> float:
    return problem.likelihood.noise.value[0, output].item()


def fitted(kernel, x, y, alpha) -> GaussianProcessRegressor:
    return GaussianProcessRegressor(kernel, alpha=alpha, optimizer=None).fit(x.numpy(), y.numpy())


def repeated(rows: Rows) -> Rows:
    """Every row as often as its weight says."""
    index = torch.repeat_interleave(torch.arange(len(rows)), rows.weight.long())
    return Rows(rows.x[index], rows.y[index], torch.ones(len(index), dtype=torch.float64))


@pytest.mark.parametrize("kernel", BASES)
def test_log_marginal_likelihood_and_its_gradient(kernel):
    rows = random_rows(30, n_features=3, seed=1)
    problem = exact_problem(rows, kernel, mean="zero", seed=2)
    loss = problem.loss(rows.whole())
    loss.backward()

    theirs = their_kernel(problem, kernel, white=True)
    model = fitted(theirs, rows.x, rows.y[:, 0], alpha=0.0)
    value, gradient = model.log_marginal_likelihood(theirs.theta, eval_gradient=True)
    assert -30 * loss.item() == pytest.approx(value, rel=1e-10)

    # Their theta is log amplitude, log lengthscales, log noise. Ours differs in the noise: variance = floor + exp(raw).
    ours, noise = problem.family.kernel, problem.likelihood.noise
    to_log = noise.value / noise.raw.exp()
    found = torch.cat([ours.amplitude.raw.grad, ours.base.lengthscale.raw.grad.flatten(), (noise.raw.grad * to_log)[0]])
    np.testing.assert_allclose(-30 * found.detach().numpy(), gradient, **CLOSE)


@pytest.mark.parametrize("kernel", BASES)
def test_predictions_at_fixed_hyperparameters(kernel):
    rows, new = random_rows(30, n_features=2, n_outputs=2, seed=3), random_rows(12, n_features=2, seed=4).x
    problem = exact_problem(rows, kernel, mean="zero", seed=5)
    predictor = problem.family.predictor()
    marginal, joint = predictor.marginal(new), predictor.joint(new)
    for output in range(2):
        model = fitted(their_kernel(problem, kernel, output), rows.x, rows.y[:, output], noise_of(problem, output))
        mean, std = model.predict(new.numpy(), return_std=True)
        _, covariance = model.predict(new.numpy(), return_cov=True)
        np.testing.assert_allclose(marginal.mean[:, output], mean, **CLOSE)
        np.testing.assert_allclose(marginal.variance[:, output].sqrt(), std, **CLOSE)
        np.testing.assert_allclose(joint.mean[:, output], mean, **CLOSE)
        np.testing.assert_allclose(joint.covariance[output], covariance, **CLOSE)


def test_constant_mean_is_subtracted():
    rows, new = random_rows(25, seed=6), random_rows(5, seed=7).x
    problem = exact_problem(rows, seed=8)
    constant = problem.family.mean.constant.value.item()
    assert abs(constant) > 0.01
    model = fitted(their_kernel(problem, "matern52"), rows.x, rows.y[:, 0] - constant, noise_of(problem))
    assert -25 * problem.loss(rows.whole()).item() == pytest.approx(model.log_marginal_likelihood_value_, rel=1e-10)
    np.testing.assert_allclose(
        problem.family.predictor().marginal(new).mean[:, 0], model.predict(new.numpy()) + constant, **CLOSE
    )


def test_weighted_rows_are_repeated_rows():
    """Weights 1 to 4 against the table in which rows literally occur that often, fitted by scikit-learn."""
    rows, new = random_rows(20, seed=9, weighted=True), random_rows(6, seed=10).x
    assert rows.weight.unique().numel() > 2
    problem = exact_problem(rows, mean="zero", seed=11)
    copies = repeated(rows)
    model = fitted(their_kernel(problem, "matern52"), copies.x, copies.y[:, 0], noise_of(problem))
    value = -rows.total * problem.loss(rows.whole()).item()
    assert value == pytest.approx(model.log_marginal_likelihood_value_, rel=1e-9)
    mean, std = model.predict(new.numpy(), return_std=True)
    marginal = problem.family.predictor().marginal(new)
    np.testing.assert_allclose(marginal.mean[:, 0], mean, **CLOSE)
    np.testing.assert_allclose(marginal.variance[:, 0].sqrt(), std, **CLOSE)


def test_known_noise_of_each_row():
    rows, new = random_rows(25, seed=12), random_rows(6, seed=13).x
    known = torch.linspace(0.01, 0.5, 25, dtype=torch.float64).unsqueeze(-1)
    problem = exact_problem(rows, mean="zero", known=known, seed=14)
    model = fitted(their_kernel(problem, "matern52"), rows.x, rows.y[:, 0], known[:, 0].numpy())
    assert -25 * problem.loss(rows.whole()).item() == pytest.approx(model.log_marginal_likelihood_value_, rel=1e-10)
    mean, std = model.predict(new.numpy(), return_std=True)
    marginal = problem.family.predictor().marginal(new)
    np.testing.assert_allclose(marginal.mean[:, 0], mean, **CLOSE)
    np.testing.assert_allclose(marginal.variance[:, 0].sqrt(), std, **CLOSE)


def test_known_noise_with_weights():
    rows = random_rows(15, seed=15, weighted=True)
    known = torch.linspace(0.05, 0.5, 15, dtype=torch.float64).unsqueeze(-1)
    problem = exact_problem(rows, mean="zero", known=known, seed=16)
    copies = repeated(rows)
    alpha = torch.repeat_interleave(known[:, 0], rows.weight.long()).numpy()
    model = fitted(their_kernel(problem, "matern52"), copies.x, copies.y[:, 0], alpha)
    value = -rows.total * problem.loss(rows.whole()).item()
    assert value == pytest.approx(model.log_marginal_likelihood_value_, rel=1e-9)


def test_several_outputs_add_up():
    """The evidence of two outputs is the sum of two densities, here from scipy."""
    rows = random_rows(12, n_outputs=2, seed=17)
    problem = exact_problem(rows, seed=18)
    expected = 0.0
    for output in range(2):
        covariance = their_kernel(problem, "matern52", output, white=True)(rows.x.numpy())
        constant = problem.family.mean.constant.value[output].item()
        expected += multivariate_normal(np.full(12, constant), covariance).logpdf(rows.y[:, output].numpy())
    assert -12 * problem.loss(rows.whole()).item() == pytest.approx(expected, rel=1e-10)
