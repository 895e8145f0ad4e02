from __future__ import annotations

import math

import pytest
import torch
from scipy import stats

from candid.engines import Plan, train
from candid.families import make_mean
from candid.kernels import RBF, Matern52, Scale
from candid.likelihoods import Gaussian, StudentT
from candid.parameters import Hyperparameter, hyperparameters, positive
from candid.priors import Gamma, HalfNormal, HyperPrior, Interval, LogNormal, Normal, Prior, attach, complete
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


@pytest.mark.parametrize(
    ("interval", "expected"),
    [
        (Interval(), (1e-4, math.inf)),
        (Interval(0.0, 0.4), (1e-4, 0.4)),
        (Interval(0.3, 0.4), (0.3, 0.4)),
        (Interval(-1.0, 2.0), (1e-4, 2.0)),
    ],
)
def test_an_interval_leaves_the_noise_its_floor(interval, expected):
    likelihood = Gaussian(0.35)
    attach(likelihood, {"noise": interval})
    assert (likelihood.noise.lower, likelihood.noise.upper) == expected
    assert likelihood.noise.value.item() == pytest.approx(0.35)


def test_two_intervals_are_their_intersection():
    kernel = kernel_sum()
    attach(kernel, {"lengthscale": [Interval(0.1, 10.0), Interval(1.0, 20.0)]})
    lengthscale = kernel.parts[0].base.lengthscale
    assert (lengthscale.lower, lengthscale.upper) == (1.0, 10.0)


def test_an_interval_outside_the_domain_is_refused():
    likelihood = Gaussian()
    with pytest.raises(
        ValueError, match=r"'noise' always lies between 0.0001 and inf.*choose an interval that overlaps"
    ):
        attach(likelihood, {"noise": Interval(-2.0, -1.0)})
    with pytest.raises(ValueError, match="choose an interval that overlaps"):
        attach(likelihood, {"noise": [Interval(0.1, 0.2), Interval(0.2, 0.3)]})


class Blind(Prior):
    def log_density(self, value):
        return torch.full_like(value, math.nan)


@pytest.mark.parametrize(
    "prior", [LogNormal(), Gamma(), Gamma(1.0, 1.0), HalfNormal(), Blind()], ids=lambda prior: type(prior).__name__
)
def test_a_prior_without_density_where_the_parameter_may_be_is_refused(prior):
    """A mean constant may be zero or negative."""
    with pytest.raises(ValueError, match=r"does not fit 'constant'.*Use a Normal prior, or add an Interval"):
        attach(make_mean("constant", 3, 2), {"constant": prior})
    assert attach(make_mean("constant", 3, 2), {"constant": Normal()}) is not None


@pytest.mark.parametrize("order", [1, -1])
def test_an_interval_makes_room_for_a_prior(order):
    mean = make_mean("constant", 3, 2)
    prior = attach(mean, {"constant": [Interval(0.1, 2.0), LogNormal()][::order]})
    assert torch.isfinite(prior.penalty())


def test_density_of_one_parameter_at_a_given_value():
    kernel = kernel_sum()
    wishes = {"amplitude": (Gamma(2.0, 3.0), HalfNormal(2.0)), "lengthscale": LogNormal(1.0, 0.5)}
    prior = attach(kernel, wishes)
    own = stats.gamma(2.0, scale=1 / 3).logpdf(0.7) + stats.halfnorm(scale=2.0).logpdf(0.7)
    first = kernel.parts[0]
    assert prior.log_density_of(first.amplitude, 0.7) == pytest.approx(own, rel=1e-12)
    values = torch.tensor([0.7, 0.7], dtype=torch.float64)
    assert prior.log_density_of(first.amplitude, values) == pytest.approx(2 * own, rel=1e-12)
    assert prior.log_density_of(first.base.lengthscale, math.exp(0.5)) == pytest.approx(stats.norm(0, 0.5).logpdf(0.5))
    assert prior.log_density_of(positive(0.7), 0.7) == 0.0


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


def test_everything_that_is_not_fixed_gets_a_prior():
    """The paper's for lengthscales and amplitudes, on the scale of logarithms; what the user gave stays."""
    parts = torch.nn.ModuleDict(
        {
            "kernel": (Scale(Matern52()) + Scale(RBF())).build(2),
            "mean": make_mean("constant", 2, 1),
            "noise": Gaussian(),
            "outliers": StudentT(),
        }
    )
    given = attach(parts, {"parts.1.base.lengthscale": Gamma(2.0, 3.0)}, fixed=("parts.0.amplitude",))
    prior = complete(parts, given)
    found = {name: density for name, p in hyperparameters(parts) for owner, density in prior.terms if owner is p}
    assert found == {
        "kernel.parts.0.base.lengthscale": LogNormal(1.0),
        "kernel.parts.1.amplitude": LogNormal(0.05),
        "kernel.parts.1.base.lengthscale": Gamma(2.0, 3.0),
        "mean.constant": Normal(),
        "noise.noise": LogNormal(0.1),
        "outliers.freedom": LogNormal(10.0),
        "outliers.scale": LogNormal(0.3),
    }


def test_nothing_to_give_a_prior_to():
    assert complete(torch.nn.ModuleDict(), None) is None


DOMAINS = {
    "positive": (0.0, math.inf),
    "floor": (0.1, math.inf),
    "between": (0.5, 2.0),
    "from zero": (0.0, 3.0),
}


@pytest.mark.parametrize("domain", DOMAINS.values(), ids=DOMAINS)
@pytest.mark.parametrize("prior", [Gamma(3.0, 2.0), HalfNormal(1.0), Normal(1.0, 0.4), LogNormal(0.8, 0.6)], ids=repr)
def test_what_is_sampled_has_the_density_of_the_prior(prior, domain):
    """Of raw values: its integral is the prior's probability of the domain."""
    parameter = Hyperparameter(torch.ones(4001, 1, dtype=torch.float64), *domain).double()
    raw = torch.linspace(-30, 30, 4001, dtype=torch.float64)
    parameter.raw.data.copy_(raw.unsqueeze(-1))
    joint = HyperPrior([(parameter, prior), (parameter, Normal(0.0, 1e8))])
    joint.chains = (4001,)
    values = parameter.value.detach().squeeze(-1)
    # A prior that is flat counts as a factor, and the volume counts once.
    density = (-joint.penalty() - Normal(0.0, 1e8).log_density(values)).exp().detach()
    own = prior.log_density(values).exp()
    expected = torch.trapezoid(own, values.log() if isinstance(prior, LogNormal) else values)
    torch.testing.assert_close(torch.trapezoid(density, raw), expected, rtol=2e-3, atol=1e-6)
    # Where nothing is sampled, the mode is that of the prior.
    alone = HyperPrior([(parameter, prior)])
    torch.testing.assert_close(alone.penalty(), -prior.log_density(values).sum())
