"""Critics: their stepper, and posteriors that are found with their help."""

from __future__ import annotations

import pytest
import torch

from candid.engines import Plan, Problem, Rows, train
from candid.engines.moment import Moment
from candid.engines.steppers import make_steppers, take_step
from candid.likelihoods import StudentT
from candid.weights import Implicit, optimal_weights
from fragile import FragileCheckpoint, Interrupted
from small_models import implicit_problem, random_rows

# Where hyper-parameters and inducing points stay as they are, and where they do not.
MOVING = {"weights": "adam", "generator": "adam", "critic": "critic"}
STEPPERS = {**MOVING, "rest": "adam"}


@torch.no_grad()
def drawn(weights: Implicit, n_draws: int = 20_000):
    """Draws of v = m + R e, of numbers that training has not seen."""
    _, noise = weights.noise(n_draws, 99)
    return weights.mean + (weights.normal.root() @ noise.unsqueeze(-1)).squeeze(-1)


@torch.no_grad()
def posterior(problem, rows, noise: float):
    """Mean and precision of the best q(v) of a single layer, whose noise variance becomes ``noise``."""
    (layer,) = problem.family.layers
    problem.likelihood.noise.set(noise)
    features = layer.kernel.split()[0].sqrt()[:, None, None] * layer.features(rows.x)[0]
    offset = (rows.y - layer.mean(rows.x)).mT.unsqueeze(-1)
    return optimal_weights(features @ features.mT / noise, (features @ offset).squeeze(-1) / noise)


def test_groups():
    """Critics are in their own group only, and everything that is learned is in one group."""
    problem = implicit_problem(random_rows())
    groups = problem.groups()
    everything = groups.pop("all")
    names = {id(parameter): name for name, parameter in problem.named_parameters()}
    assert len(everything) == sum(map(len, groups.values())) - len(groups["critic"])
    assert all(".critic." in names[id(parameter)] for parameter in groups["critic"])
    assert all(".generator." in names[id(parameter)] for parameter in groups["generator"])
    assert all(".normal." in names[id(parameter)] for parameter in groups["weights"])
    assert len(groups["critic"]) + len(everything) == len(names)


def test_a_step_moves_each_network_along_its_own_gradient():
    """The model's by the loss of the model, critics by theirs, at the generator as the step leaves it."""
    rows = random_rows()
    problem = implicit_problem(rows)
    moment = Moment(problem, rows.whole(), step=0, seed=0)
    for name, rates in (("model", {"weights": 0.01, "generator": 0.01, "rest": 0.01}), ("critic", {"critic": 0.01})):
        before = {key: value.clone() for key, value in problem.state_dict().items()}
        steppers = make_steppers({key: STEPPERS[key] for key in rates}, problem.groups(), rates)
        loss = take_step(list(steppers.values()), moment)
        assert loss == pytest.approx(problem.loss(rows.whole()).item(), abs=1.0)
        changed = {key for key, value in problem.state_dict().items() if not torch.equal(value, before[key])}
        assert changed
        averages = {key for key in changed if key.endswith((".centre", ".variance"))}
        assert all((".critic." in key) == (name == "critic") for key in changed - averages)


def test_the_posterior_of_a_conjugate_model():
    """Mean and covariance of q(v) are those of the closed form, wherever networks and critics go meanwhile."""
    rows = random_rows(20, n_features=1)
    problem = implicit_problem(rows, (), n_draws=10)
    (layer,) = problem.family.layers
    mean, precision = posterior(problem, rows, noise=0.5)
    rates = {"weights": 0.1, "generator": 0.0005, "critic": 0.005}
    train(problem, rows, Plan(MOVING, max_epochs=200, batch_size=20, rates=rates, schedule="cosine"))
    assert layer.weights.variance.any()
    values = drawn(layer.weights)[:, 0]
    covariance = torch.linalg.inv(precision)[0]
    deviation = covariance.diagonal().sqrt()
    assert deviation.min() < 0.7
    torch.testing.assert_close(values.mean(0) / deviation, mean[0] / deviation, rtol=0, atol=0.1)
    torch.testing.assert_close(values.std(0), deviation, rtol=0.15, atol=0)
    torch.testing.assert_close(
        torch.cov((values / deviation).mT), covariance / torch.outer(deviation, deviation), rtol=0, atol=0.2
    )


def test_as_published_networks_alone_find_a_posterior():
    """From the prior, with a critic that tells q from it: one inducing value, whose posterior is half as wide."""
    rows = random_rows(6, n_features=1)
    problem = implicit_problem(rows, (), n_draws=10, learned=False, n_points=1)
    (layer,) = problem.family.layers
    mean, precision = posterior(problem, rows, noise=0.5)
    rates = {"generator": 0.003, "critic": 0.01}
    train(problem, rows, Plan(MOVING, max_epochs=300, batch_size=6, rates=rates, schedule="cosine"))
    values = drawn(layer.weights).flatten()
    deviation = precision.rsqrt().item()
    assert values.mean().item() == pytest.approx(mean.item(), abs=0.15 * deviation)
    assert values.std().item() == pytest.approx(deviation, rel=0.15)


def test_a_posterior_with_two_peaks():
    """Two observations that contradict each other, with heavy-tailed noise: either of them may be an outlier."""
    rows = Rows(torch.zeros(2, 1).double(), torch.tensor([[-1.5], [1.5]]).double(), torch.ones(2).double())
    problem = implicit_problem(rows, (), n_draws=16, n_points=1)
    (layer,), likelihood = problem.family.layers, StudentT.with_freedom(3.0, 1).double()
    likelihood.scale.set(0.25)
    with torch.no_grad():
        layer.points.zero_()
        layer.kernel.amplitude.set(1.0)
        layer.mean.constant.raw.zero_()
        # By brute force, on a grid
        values = torch.linspace(-5, 5, 2001).double().unsqueeze(-1)
        logs = [likelihood.at(None).expected_log_density(y, values, torch.zeros_like(values)) for y in rows.y]
        density = (torch.stack(logs).sum(0) - 0.5 * values.square()).softmax(0)
        deviation = (density * values.square()).sum().sqrt().item()
        kurtosis = (density * values**4).sum().item() / deviation**4
    assert kurtosis < 1.5
    plan = Plan(MOVING, max_epochs=500, batch_size=2, lr=0.02, schedule="cosine")
    train(Problem(problem.family, likelihood, "elbo").double(), rows, plan)
    found = drawn(layer.weights).flatten()
    # That of a normal distribution is three.
    assert ((found - found.mean()) ** 4).mean().item() / found.std().item() ** 4 == pytest.approx(kurtosis, abs=0.3)
    assert 0.35 < (found > 0).double().mean().item() < 0.65
    assert found.std().item() == pytest.approx(deviation, rel=0.1)


@pytest.mark.parametrize("learned", [True, False])
def test_an_interrupted_run_goes_on(tmp_path, learned):
    rows = random_rows(40)
    plan = Plan(STEPPERS, max_epochs=3, batch_size=20, lr=0.01)
    expected, problem = (implicit_problem(rows, learned=learned) for _ in range(2))
    train(expected, rows, plan)
    with pytest.raises(Interrupted):
        train(problem, rows, plan, checkpoint=FragileCheckpoint(tmp_path / "run", 3))
    resumed = implicit_problem(rows, learned=learned)
    train(resumed, rows, plan, checkpoint=FragileCheckpoint(tmp_path / "run", 100))
    for name, value in expected.state_dict().items():
        assert torch.equal(resumed.state_dict()[name], value), name
