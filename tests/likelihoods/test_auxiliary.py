"""Sites with parameters: what they show of observations, and what they cost."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.stats import gamma, lognorm, norm

from candid.likelihoods import Bernoulli, Gaussian, OneAgainstAll, PolyaGammaSites, Softmax, StudentT, make_sites
from candid.likelihoods.polya_gamma import CLOSEST_LOCATION, CLOSEST_SCALE, LogNormal
from candid.marginal import Batch, Marginal

Y = torch.tensor([[1.0], [0.0], [0.0], [1.0], [1.0]]).double()
INDEX = torch.tensor([4, 0, 2])
# What other rows say of f does not matter here.
NOTHING = Marginal(*torch.zeros(3, 1, 1).double())


@pytest.fixture
def sites():
    """At random places."""
    sites = PolyaGammaSites(Y, seed=3)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for values in sites.own_parameters():
            values.add_(0.3 * torch.randn(values.shape, generator=generator).double())
    return sites


def batch_of(index, weight) -> Batch:
    x = torch.zeros(len(index), 1).double()
    return Batch(x, Y[index], torch.tensor(weight).double(), total=40.0, index=index)


class TestObservations:
    def test_targets_and_noise_belong_to_each_other(self, sites):
        """±1/(2ω) with variance 1/ω."""
        targets, variance = sites(INDEX)
        sign = 2 * Y[INDEX] - 1
        torch.testing.assert_close(targets, 0.5 * sign * variance)

    def test_samples_are_those_of_q(self):
        sites = PolyaGammaSites(torch.ones(50_000, 1).double())
        with torch.no_grad():
            _, variance = sites(torch.arange(50_000))
        log_omega = -variance.log()
        assert abs(float(log_omega.mean()) - CLOSEST_LOCATION) < 0.02
        assert abs(float(log_omega.std()) - CLOSEST_SCALE) < 0.02

    def test_a_row_of_weight_w_has_the_average_of_w_variables(self):
        sites = PolyaGammaSites(torch.ones(50_000, 1).double(), torch.full((50_000,), 5.0).double())
        one = LogNormal(*(torch.tensor(value).double() for value in (CLOSEST_LOCATION, CLOSEST_SCALE)))
        draws = one.sample(torch.randn(50_000, 5, generator=torch.Generator().manual_seed(0)).double()).mean(-1)
        with torch.no_grad():
            omega = sites(torch.arange(50_000))[1].reciprocal().squeeze(-1)
            settled = sites.settled(torch.tensor([0]))[1].squeeze()
        torch.testing.assert_close(omega.mean(), draws.mean(), rtol=0.01, atol=0)
        torch.testing.assert_close(omega.std(), draws.std(), rtol=0.03, atol=0)
        torch.testing.assert_close(settled, draws.reciprocal().mean(), rtol=0.01, atol=0)

    def test_samples_follow_from_seed_and_step(self, sites):
        first = sites(INDEX)[1]
        torch.testing.assert_close(sites(INDEX.flip(0))[1], first.flip(0), rtol=0, atol=0)
        sites.refresh(1)
        assert (sites(INDEX)[1] != first).all()
        sites.refresh(0)
        torch.testing.assert_close(sites(INDEX)[1], first, rtol=0, atol=0)

    def test_without_gradients_they_are_the_same_at_every_step(self, sites):
        with torch.no_grad():
            first = sites(INDEX)[1]
            sites.refresh(7)
            torch.testing.assert_close(sites(INDEX)[1], first, rtol=0, atol=0)

    def test_predictions_use_averages_of_targets_and_variances(self, sites):
        q = LogNormal(sites.location[INDEX], sites.log_scale[INDEX].exp())
        draws = q.sample(torch.randn(200_000, 3, 1, generator=torch.Generator().manual_seed(0)).double())
        for found, expected in zip(sites.settled(INDEX), sites._observed(INDEX, draws), strict=True):
            torch.testing.assert_close(found, expected.mean(0), rtol=0.02, atol=0)


class TestStudentT:
    @pytest.fixture
    def sites(self):
        likelihood = StudentT(scale=0.5, freedom=5.0).double()
        return make_sites(likelihood, Y, seed=2)

    def test_noise_is_scaled(self, sites):
        targets, variance = sites(INDEX)
        torch.testing.assert_close(targets, Y[INDEX])
        omega = LogNormal(sites.location[INDEX], sites.log_scale[INDEX].exp())
        torch.testing.assert_close(sites.settled(INDEX)[1], 0.25 / omega.moment(1))
        assert ((variance > 0) & (variance != 0.25)).all()

    def test_divergence_from_the_gamma_distribution(self, sites):
        with torch.no_grad():
            sites.location.add_(torch.linspace(-2, 1, 5).double().unsqueeze(-1))
            sites.log_scale.add_(torch.linspace(0.5, -1, 5).double().unsqueeze(-1))
        found = sites._divergence(torch.arange(5), sites._q(torch.arange(5))).detach().squeeze(-1)
        for row in range(5):
            q = lognorm(float(sites.log_scale[row].exp().detach()), scale=float(sites.location[row].exp().detach()))
            expected = q.expect(lambda v, q=q: q.logpdf(v) - gamma(2.5, scale=0.4).logpdf(v), epsabs=1e-10, limit=300)
            assert float(found[row]) == pytest.approx(expected, abs=1e-6)

    def test_it_starts_at_the_least_divergence(self, sites):
        penalty = sites.penalties(batch_of(torch.arange(5), [1.0] * 5), NOTHING)["kl_aux"]
        for gradient in torch.autograd.grad(penalty, sites.own_parameters()):
            assert gradient.to_dense().abs().max() < 1e-6

    def test_entries_begin_with_the_average_that_the_other_rows_imply(self, sites):
        """Also alone, where f may be anything: were y believed first, it would be believed for ever."""
        before = sites.settled(torch.arange(5))[1].detach()
        where = torch.tensor([[True], [False], [True], [False], [True]])
        mean = Y + torch.tensor([[0.1], [9.0], [9.0], [9.0], [-30.0]]).double()
        variance = torch.tensor([[0.01], [4.0], [0.1], [0.1], [4.0]]).double()
        sites.begin(where, mean, variance)
        noise = sites.settled(torch.arange(5))[1].detach()
        torch.testing.assert_close(noise[~where], before[~where], rtol=0, atol=0)
        for row in (0, 2, 4):
            distance, spread = float((Y - mean)[row]), float(variance[row])

            def density(u, distance=distance, spread=spread):
                value = np.exp(u)
                density_of_y = norm(scale=np.sqrt(spread + 0.25 / value)).pdf(distance)
                return gamma(2.5, scale=0.4).pdf(value) * value * density_of_y

            whole, first = (quad(lambda u, p=p: density(u) * np.exp(p * u), -16, 3, limit=400)[0] for p in (0, 1))
            assert float(0.25 / noise[row]) == pytest.approx(first / whole, rel=1e-4)


class TestPenalty:
    def test_it_is_the_average_of_the_batch_for_all_rows(self, sites):
        weight = [1.0, 3.0, 0.5]
        divergence = LogNormal(sites.location, sites.log_scale.exp()).divergence()[INDEX].squeeze(-1)
        expected = 40.0 * (torch.tensor(weight).double() @ divergence) / sum(weight)
        torch.testing.assert_close(sites.penalties(batch_of(INDEX, weight), NOTHING)["kl_aux"], expected)

    def test_classes_are_added_up(self):
        y = torch.tensor([[0.0], [2.0]]).double()
        sites = make_sites(OneAgainstAll(3), y)
        torch.testing.assert_close(sites.targets, torch.eye(3).double()[[0, 2]])
        batch = batch_of(torch.arange(2), [1.0, 1.0])
        one = make_sites(Bernoulli(), y.clamp_max(1)).penalties(batch, NOTHING)["kl_aux"]
        torch.testing.assert_close(sites.penalties(batch, NOTHING)["kl_aux"], 3 * one)

    def test_its_gradient_has_no_noise(self):
        """At its minimum the gradient vanishes; that of samples has that average, and scatters widely about it."""
        location, scale = (torch.full((20_000,), value, dtype=torch.float64, requires_grad=True) for value in OPTIMUM)
        exact, sampled = (
            torch.autograd.grad(divergence.sum(), (location, scale))
            for divergence in (
                LogNormal(location, scale).divergence(),
                LogNormal(location, scale).sampled_divergence(
                    torch.randn(20_000, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
                ),
            )
        )
        for one, other in zip(exact, sampled, strict=True):
            assert one.abs().max() < 1e-5
            assert one.std() < 1e-12
            assert abs(float(other.mean())) < 4 * other.std() / 20_000**0.5
            assert other.std() > 1.0

    def test_gradients_are_those_of_the_rows_of_the_batch(self, sites):
        sum(sites.penalties(batch_of(INDEX, [1.0, 1.0, 1.0]), NOTHING).values()).backward()
        gradient = sites.location.grad
        assert gradient.is_sparse
        assert set(gradient.coalesce().indices()[0].tolist()) == set(INDEX.tolist())


# Location and scale of the log-normal distribution that is closest to PG(1, 0), to six digits
OPTIMUM = (-1.689457, 0.766501)


def test_sites_of_likelihoods():
    assert make_sites(Gaussian(), Y).own_parameters() == []
    with pytest.raises(TypeError, match="Softmax"):
        make_sites(Softmax(3), Y)
    with pytest.raises(TypeError, match="Bernoulli"):
        make_sites(Bernoulli("probit"), Y)
