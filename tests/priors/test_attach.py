from __future__ import annotations

import pytest
import torch
from scipy import stats

from candid.engines import Plan, train
from candid.kernels import RBF, Matern52, Scale
from candid.priors import Gamma, HalfNormal, Interval, LogNormal, attach
from small_models import exact_problem, random_rows, sparse_problem


def kernel_sum():
    return (Scale(Matern52()) + Scale(RBF())).build(3)


def test_the_penalty_is_the_sum_over_all_entries():
    kernel = kernel_sum()
    prior = attach(kernel, {"lengthscale": LogNormal(1.0, 0.5), "amplitude": Gamma(2.0, 3.0)})
    lengthscale, amplitude = 3**0.5, 1.0
    expected = 6 * stats.norm(0.0, 0.5).logpdf(torch.tensor(lengthscale).log().item())
    expected += 2 * stats.gamma(2.0, scale=1 / 3).logpdf(amplitude)
    assert prior.penalty().item() == pytest.approx(-expected, rel=1e-5)


def test_a_longer_name_is_more_particular():
    kernel = kernel_sum()
    prior = attach(kernel, {"parts.1.base.lengthscale": HalfNormal(1.0)})
    assert [parameter for parameter, _ in prior.terms] == [kernel.parts[1].base.lengthscale]


def test_several_wishes_for_one_name():
    kernel = kernel_sum()
    prior = attach(kernel, {"lengthscale": (Interval(0.1, 10.0), LogNormal())})
    assert len(prior.terms) == 2
    assert kernel.parts[0].base.lengthscale.upper == 10.0


def test_without_densities_there_is_no_prior():
    assert attach(kernel_sum(), {"lengthscale": Interval(0.1, 10.0)}) is None
    assert attach(kernel_sum()) is None


def test_an_unknown_name_is_answered_with_the_known_ones():
    with pytest.raises(ValueError, match=r"no hyper-parameter 'lenghtscale'.*lengthscale"):
        attach(kernel_sum(), {"lenghtscale": LogNormal()})
    with pytest.raises(ValueError, match="no hyper-parameter 'scale'"):
        attach(kernel_sum(), fixed=["scale"])


def test_part_of_a_name_is_not_the_name():
    with pytest.raises(ValueError, match="no hyper-parameter 'scale'"):
        attach(kernel_sum(), {"scale": LogNormal()})


def test_only_priors_are_priors():
    with pytest.raises(TypeError, match=r"must come from candid\.priors"):
        attach(kernel_sum(), {"lengthscale": 3.0})


def test_the_prior_counts_once_for_the_whole_table():
    """The penalty is divided by the number of rows, like every other."""
    rows = random_rows(20, seed=1)
    problem = sparse_problem(rows, seed=2)
    without = problem.loss(rows.whole())
    problem.prior = attach(problem, {"lengthscale": LogNormal(0.5, 0.3)})
    torch.testing.assert_close(problem.loss(rows.whole()), without + problem.prior.penalty() / 20)
    problem.coefficients["prior"] = 3.0
    torch.testing.assert_close(problem.loss(rows.whole()), without + 3 * problem.prior.penalty() / 20)


@pytest.mark.parametrize("stepper", ["adam", "lbfgs"])
def test_bounds_are_kept_during_training(stepper):
    """The data want longer lengthscales and less noise than the bounds allow."""
    rows = random_rows(30, seed=3)
    problem = exact_problem(rows, seed=4)
    attach(problem, {"lengthscale": Interval(0.2, 0.5), "noise": Interval(0.3, 0.4)})
    seen = []

    def watch(record):
        seen.append((problem.family.kernel.base.lengthscale.value.tolist(), problem.likelihood.noise.value.item()))

    train(problem, rows, Plan({"all": stepper}, max_epochs=40, batch_size=30, lr=0.5), callbacks=[watch])
    for lengthscales, noise in seen:
        assert all(0.2 <= lengthscale <= 0.5 for lengthscale in lengthscales[0][0])
        assert 0.3 <= noise <= 0.4
    assert seen[-1][1] < 0.305


@pytest.mark.parametrize("stepper", ["adam", "lbfgs"])
def test_fixed_stays_bit_identical(stepper):
    rows = random_rows(30, seed=5)
    problem = exact_problem(rows, seed=6)
    attach(problem, fixed=["noise", "amplitude"])
    noise, amplitude = problem.likelihood.noise, problem.family.kernel.amplitude
    lengthscale = problem.family.kernel.base.lengthscale
    before = [p.value.detach().clone() for p in (noise, amplitude, lengthscale)]
    train(problem, rows, Plan({"all": stepper}, max_epochs=5, batch_size=30, lr=0.1))
    assert torch.equal(noise.value, before[0])
    assert torch.equal(amplitude.value, before[1])
    assert not torch.equal(lengthscale.value, before[2])


def test_a_strong_prior_wins():
    rows = random_rows(30, seed=7)
    problem = exact_problem(rows, seed=8)
    problem.prior = attach(problem, {"lengthscale": LogNormal(3.0, 1e-3)})
    train(problem, rows, Plan({"all": "lbfgs"}, max_epochs=50, batch_size=30))
    lengthscale = problem.family.kernel.base.lengthscale.value
    torch.testing.assert_close(lengthscale, torch.full_like(lengthscale, 3.0), rtol=0.01, atol=0)
