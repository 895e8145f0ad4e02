"""Samplers on targets whose moments are known."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from candid.engines import Checkpoint, Plan, Rows, Sampling, train
from candid.engines.moment import Moment
from candid.engines.steppers import HMC, SGHMC, WindowAdam, make_steppers

N_ROWS, N_CHAINS = 60, 300
# Precision of the noise around the unknown mean: correlated, and with variances from a quarter to four.
PRECISION = torch.tensor([[4.0, 0.5, 0.0], [0.5, 1.0, 0.1], [0.0, 0.1, 0.25]], dtype=torch.float64)


class Inert(nn.Module):
    """What the loop expects of a family."""

    def __init__(self, n_chains: int) -> None:
        super().__init__()
        self.n_chains = n_chains

    def refresh(self, step: int) -> None: ...

    def n_covariances(self, n_rows: int) -> float:
        return math.inf

    def shares_rows(self, n_rows: int) -> bool:
        return False

    def common_parameters(self) -> list[nn.Parameter]:
        return []


class NormalMean(nn.Module):
    """y_n ~ N(x, Λ⁻¹), x ~ N(0, I): the posterior of x is normal, with precision I + NΛ."""

    def __init__(self, n_chains: int = N_CHAINS) -> None:
        super().__init__()
        self.x = nn.Parameter(torch.zeros(n_chains, 3, dtype=torch.float64))
        self.family, self.n_chains, self.draws = Inert(n_chains), n_chains, {}

    def losses(self, batch) -> torch.Tensor:
        error = self.x.unsqueeze(-2) - batch.y
        data = 0.5 * ((error @ PRECISION) * error).sum(-1).mean(-1)
        return data + 0.5 * self.x.square().sum(-1) / batch.total

    def loss(self, batch) -> torch.Tensor:
        return self.losses(batch).sum()

    def standing(self, rows, batch_size=None) -> float:
        return float(self.loss(rows.whole())) / self.n_chains

    def groups(self, *apart):
        return {"all": [self.x]}

    def keep(self, draws) -> None:
        self.draws = draws

    def settle(self, rows) -> None: ...

    def posterior(self, rows: Rows) -> tuple[torch.Tensor, torch.Tensor]:
        covariance = (torch.eye(3).double() + len(rows) * PRECISION).inverse()
        return covariance @ PRECISION @ rows.y.sum(0), covariance


@pytest.fixture(scope="module")
def rows() -> Rows:
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(N_ROWS, 3, dtype=torch.float64, generator=generator)
    y = torch.tensor([1.0, -2.0, 0.5]).double() + noise @ torch.linalg.cholesky(PRECISION.inverse()).mT
    return Rows(torch.zeros(N_ROWS, 1).double(), y, torch.ones(N_ROWS).double())


def draw(rows: Rows, sampler: str, batch_size: int, burn_in: int, n_samples: int, thin: int, rate: float):
    problem = NormalMean()
    sampling = Sampling({"all": sampler}, burn_in, n_samples, thin, {"all": rate})
    train(problem, rows, Plan({}, max_epochs=0, batch_size=batch_size, seed=1, sampling=sampling))  # pyright: ignore
    return problem.draws["x"].flatten(0, 1), problem.posterior(rows)


def assert_moments(samples, expected, inflation: float = 1.0, tolerance: float = 0.12):
    """Means within four standard errors of one draw for each chain, covariances, relative to variances, within 12 %."""
    mean, covariance = expected
    scale = covariance.diagonal().sqrt()
    assert (((samples.mean(0) - mean) / scale).abs() < 4 / math.sqrt(N_CHAINS)).all()
    relative = samples.T.cov() / (scale.unsqueeze(-1) * scale)
    torch.testing.assert_close(relative, inflation * covariance / (scale.unsqueeze(-1) * scale), rtol=0, atol=tolerance)


def test_sghmc_with_all_rows(rows):
    """Its own discretisation makes variances larger by 1/(1 − α/2), two and a half per cent."""
    samples, expected = draw(rows, "sghmc", N_ROWS, burn_in=700, n_samples=10, thin=60, rate=0.05)
    assert_moments(samples, expected, 1 / (1 - SGHMC.friction / 2))


def test_sghmc_with_mini_batches(rows):
    """Noise of gradients adds to that of the sampler; with small steps it is little."""
    samples, expected = draw(rows, "sghmc", 15, burn_in=700, n_samples=10, thin=60, rate=0.05)
    assert_moments(samples, expected, 1 / (1 - SGHMC.friction / 2))


def test_mini_batches_add_no_more_than_a_share_of_the_noise(rows):
    """Steps that are too long for mini-batches become shorter; otherwise the largest variance is 8 times too large.

    The stiffest direction has a third too much of it, the others less.
    """
    samples, expected = draw(rows, "sghmc", 4, burn_in=3000, n_samples=10, thin=200, rate=0.2)
    assert_moments(samples, expected, tolerance=0.4)


def test_sghmc_looks_at_mini_batches_before_it_moves(rows):
    problem = NormalMean(2)
    sampler = SGHMC([problem.x], 0.05)
    moved = []
    for step in range(SGHMC.looks + 1):
        before = problem.x.detach().clone()
        moment = Moment(problem, rows.batch(torch.randperm(N_ROWS)[:10]), step, seed=3)  # pyright: ignore
        moment()
        sampler.advance(moment)
        moved.append(bool((problem.x != before).any()))
    assert moved == [False] * (SGHMC.looks - 1) + [True] * 2


def test_hmc(rows):
    samples, expected = draw(rows, "hmc", N_ROWS, burn_in=100, n_samples=20, thin=2, rate=0.1)
    assert_moments(samples, expected)


def test_one_step_of_sghmc(rows):
    """p ← (1 − α)p − ε² M⁻¹ g + N(0, 2αε² M⁻¹/N) from a preconditioner that adapts, and then does not."""
    problem, rate, alpha, total = NormalMean(2), 0.1, SGHMC.friction, float(N_ROWS)
    sampler = SGHMC([problem.x], rate)
    momentum, average, square, horizon = 0.0, 0.0, total**-2, 1.0
    for step in range(4):
        if step == 3:
            sampler.freeze()
        moment = Moment(problem, rows.whole(), step, seed=5)  # pyright: ignore
        moment()
        gradient, before = problem.x.grad.clone(), problem.x.detach().clone()
        sampler.advance(moment)
        if step < 3:
            weight = 1 / (horizon + 1)
            horizon = 1 + horizon * (1 - average**2 / square)
            average = (1 - weight) * average + weight * gradient
            square = ((1 - weight) * square + weight * gradient**2).clamp(min=total**-2)
        change = problem.x.detach() - before
        noise = change - (1 - alpha) * momentum + rate**2 * square**-0.5 * gradient
        momentum = change
        numbers = noise / (2 * alpha * rate**2 * square**-0.5 / total).sqrt()
        # Six standard normal numbers, none of them twice.
        assert (numbers.abs() < 4).all()
        assert len(numbers.unique()) == 6


def test_no_chain_of_sghmc_flies_off(rows):
    """Where a target turns out to be far steeper than burn-in could know, chains go on around its middle."""

    class Steep(NormalMean):
        steepness = 1.0

        def losses(self, batch) -> torch.Tensor:
            return self.steepness * super().losses(batch)

    problem, widest = Steep(4), 0.0
    sampler = SGHMC([problem.x], 0.05)
    for step in range(400):
        if step == 200:
            sampler.freeze()
            problem.steepness = 1e6
        moment = Moment(problem, rows.whole(), step, seed=2)  # pyright: ignore
        moment()
        sampler.advance(moment)
        widest = (
            max(widest, float((problem.x.detach() - problem.posterior(rows)[0]).abs().max())) if step >= 200 else 0.0
        )
    # Without a limit of the momentum this is infinite after 40 steps.
    assert widest < 3


def test_random_numbers_are_functions_of_seed_and_step(rows):
    def after(seed: int, steps: list[int]) -> torch.Tensor:
        problem = NormalMean(2)
        sampler = SGHMC([problem.x], 0.01)
        for step in steps:
            moment = Moment(problem, rows.whole(), step, seed)  # pyright: ignore
            moment()
            sampler.advance(moment)
        return problem.x.detach()

    assert torch.equal(after(1, [3, 4]), after(1, [3, 4]))
    assert not torch.equal(after(1, [3, 4]), after(1, [4, 3]))
    assert not torch.equal(after(1, [3]), after(2, [3]))


def test_hmc_leaves_a_chain_where_it_is_if_the_energy_is_not_a_number(rows):
    problem = NormalMean(2)
    sampler = HMC([problem.x], 0.1)

    class Broken(Moment):
        calls = 0

        def of_chains(self) -> torch.Tensor:
            losses = super().of_chains()
            Broken.calls += 1
            return torch.where(torch.tensor([Broken.calls > 5, False]), torch.nan, losses)

    before = problem.x.detach().clone()
    loss = sampler.advance(Broken(problem, rows.whole(), 0, 1))  # pyright: ignore
    assert math.isfinite(loss)
    assert torch.equal(problem.x[0], before[0])
    assert not torch.equal(problem.x[1], before[1])


def test_groups_of_one_sampler_move_together():
    parameters = {name: [nn.Parameter(torch.zeros(2))] for name in ("weights", "points", "rest", "likelihood")}
    recipe = {"weights": "sghmc", "points": "sghmc", "rest": "adam", "likelihood": "adam"}
    steppers = make_steppers(recipe, parameters, dict.fromkeys(parameters, 0.1))
    assert list(steppers) == ["weights", "rest", "likelihood"]
    assert steppers["weights"].sampled() == [*parameters["weights"], *parameters["points"]]
    assert [stepper.samples for stepper in steppers.values()] == [True, False, False]


def test_the_window_remembers_the_last_values_and_puts_the_present_one_back():
    """Loss (a − u)²: Adam on a sees gradients at old values of u, and u stays."""

    class TwoNumbers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.u, self.a = nn.Parameter(torch.zeros(1)), nn.Parameter(torch.zeros(1))
            self.family, self.seen = self, []

        def weight_parameters(self):
            return [self.u]

        def common_parameters(self):
            return []

        def loss(self, batch) -> torch.Tensor:
            self.seen.append(float(self.u.detach()))
            return (self.a - self.u).square().sum()

    problem = TwoNumbers()
    stepper = WindowAdam([problem.a], 0.01)
    for step in range(100):
        with torch.no_grad():
            problem.u.fill_(step)
        stepper.advance(Moment(problem, None, step, 0))  # pyright: ignore
        assert float(problem.u.detach()) == step
        assert max(step - 63, 0) <= problem.seen[-1] <= step
    assert len(set(problem.seen)) > 50
    assert len(stepper.state()["window"]) == 64


@pytest.mark.parametrize("kind", ["sghmc", "hmc"])
@pytest.mark.parametrize("stop", [3, 12, 25])
def test_a_run_that_was_broken_off_goes_on_bit_for_bit(kind, stop, rows, tmp_path):
    """In training, in burn-in, and in the middle of sampling."""
    sampling = Sampling({"all": kind}, 10, 8, 2, {"all": 0.05})
    plan = Plan({"all": "adam"}, 1, 15, max_steps=8, seed=3, sampling=sampling)

    class Stop(Exception): ...

    def end(record) -> None:
        if record["step"] >= stop:
            raise Stop

    whole = NormalMean(2)
    train(whole, rows, plan)  # pyright: ignore
    path = Checkpoint(tmp_path / "run")
    path.due = lambda: True
    broken = NormalMean(2)
    with pytest.raises(Stop):
        train(broken, rows, plan, checkpoint=path, callbacks=[end])  # pyright: ignore
    resumed = NormalMean(2)
    train(resumed, rows, plan, checkpoint=Checkpoint(tmp_path / "run"))  # pyright: ignore
    assert len(resumed.draws["x"]) == 8
    assert torch.equal(resumed.draws["x"], whole.draws["x"])
    assert torch.equal(resumed.x, whole.x)


def test_phases_of_a_plan(rows):
    """Training, burn-in and samples are recorded; what is not sampled does not move once samples are collected."""
    sampling = Sampling({"all": "sghmc"}, 8, 5, 2, {"all": 0.05})
    plan = Plan({"all": "adam"}, 2, 15, seed=3, sampling=sampling)
    history = train(NormalMean(2), rows, plan)  # pyright: ignore
    phases = [record.get("phase", "training") for record in history]
    assert phases == ["training"] * 2 + ["burn-in"] * 2 + ["sampling"] * 3
    assert [record["step"] for record in history] == [4, 8, 12, 16, 20, 24, 26]
    assert history[-1]["samples"] == 5


@pytest.mark.parametrize("stop", [0, 9])
def test_a_callback_that_ends_a_run_leaves_one_sample_at_least(stop, rows):
    problem = NormalMean(2)
    plan = Plan({"all": "adam"}, 2, 15, sampling=Sampling({"all": "sghmc"}, 8, 5, 2, {"all": 0.05}))
    train(problem, rows, plan, callbacks=[lambda record: record["step"] >= stop])  # pyright: ignore
    assert len(problem.draws["x"]) == 1


def test_a_run_without_time_collects_what_it_has(rows):
    problem = NormalMean(2)
    plan = Plan({"all": "adam"}, 50, 15, time_budget=1e-9, sampling=Sampling({"all": "sghmc"}, 800, 50, 20))
    train(problem, rows, plan)  # pyright: ignore
    assert len(problem.draws["x"]) == 1
