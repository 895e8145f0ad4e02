from __future__ import annotations

import pytest
import torch
from scipy.stats import multivariate_normal

from candid.likelihoods import GaussianRows
from candid.marginal import JointPrior, LowRankPrior, Marginal
from candid.objectives import chain_rule, fitc, marginal_likelihood, sgpr


@pytest.fixture
def prior(draw) -> JointPrior:
    root = draw(2, 6, 6)
    return JointPrior(draw(6, 2), root @ root.mT + 0.1 * torch.eye(6).double())


def test_joint_density_of_each_output(prior, draw):
    noise, y = torch.tensor([[0.3, 0.6]], dtype=torch.float64), draw(6, 2)
    expected = sum(
        multivariate_normal(
            prior.mean[:, k].numpy(), (prior.covariance[k] + noise[0, k] * torch.eye(6).double()).numpy()
        ).logpdf(y[:, k].numpy())
        for k in range(2)
    )
    found = marginal_likelihood(prior, GaussianRows(noise), y, torch.ones(6, dtype=torch.float64))
    assert found.item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("own_noise", [False, True])
def test_weights_are_repetitions(prior, draw, own_noise):
    """Against the density of the vector in which every row literally occurs as often as its weight says."""
    weight = torch.tensor([1, 3, 1, 2, 5, 1])
    noise = torch.rand(6, 2, generator=torch.Generator().manual_seed(0)).double() + 0.1
    noise = noise if own_noise else noise[:1]
    y = draw(6, 2)
    index = torch.repeat_interleave(torch.arange(6), weight)
    copies = JointPrior(prior.mean[index], prior.covariance[:, index][:, :, index])
    repeated_noise = noise[index] if own_noise else noise
    expected = marginal_likelihood(
        copies, GaussianRows(repeated_noise), y[index], torch.ones(len(index), dtype=torch.float64)
    )
    found = marginal_likelihood(prior, GaussianRows(noise), y, weight.double())
    torch.testing.assert_close(found, expected)


def test_gradients(prior, draw):
    weight = torch.tensor([1.0, 3.0, 1.0, 2.0, 5.0, 1.0], dtype=torch.float64)
    mean, root = prior.mean.clone().requires_grad_(), draw(2, 6, 6).requires_grad_()
    noise, y = torch.tensor([[0.3, 0.6]], dtype=torch.float64, requires_grad=True), draw(6, 2)
    assert torch.autograd.gradcheck(
        lambda m, r, s: marginal_likelihood(JointPrior(m, r @ r.mT), GaussianRows(s), y, weight), (mean, root, noise)
    )


def test_groups_stay_apart(draw):
    """Each has rows, weights and noise of its own."""
    root, mean, y, weight = draw(3, 2, 4, 4), draw(3, 4, 2), draw(3, 4, 2), 1.0 + draw(3, 4).square()
    covariance, noise = root @ root.mT, 0.1 + draw(3, 4, 2).square()
    together = marginal_likelihood(JointPrior(mean, covariance), GaussianRows(noise), y, weight)
    for group in range(3):
        alone = JointPrior(mean[group], covariance[group])
        expected = marginal_likelihood(alone, GaussianRows(noise[group]), y[group], weight[group])
        torch.testing.assert_close(together[group], expected)


class TestChainRule:
    @pytest.mark.parametrize("own_noise", [False, True])
    def test_weights_are_repetitions(self, own_noise, draw):
        """Given what comes before, the copies of a row share its latent value, and different rows nothing."""
        mean, variance, y, weight = draw(4, 2), draw(4, 2).square(), draw(4, 2), torch.tensor([1, 3, 2, 1])
        noise = 0.1 + draw(4, 2).square()[: 4 if own_noise else 1]
        found = chain_rule(Marginal(mean, variance, 0 * variance), GaussianRows(noise), y, weight.double())
        index = torch.repeat_interleave(torch.arange(4), weight)
        shared = (index.unsqueeze(-1) == index) * variance[index].mT.unsqueeze(-1)
        repeated = JointPrior(mean[index], shared)
        every = GaussianRows(noise[index] if own_noise else noise)
        expected = marginal_likelihood(repeated, every, y[index], torch.ones(len(index)).double())
        torch.testing.assert_close(found, expected)

    def test_gradients(self, draw):
        mean, root, noise = draw(4, 2).requires_grad_(), draw(4, 2).requires_grad_(), 0.1 + draw(1, 2).square()
        y, weight = draw(4, 2), 1.0 + draw(4).square()

        def value(mean, root, noise):
            return chain_rule(Marginal(mean, root.square(), 0 * root), GaussianRows(noise), y, weight)

        assert torch.autograd.gradcheck(value, (mean, root, noise.requires_grad_()))


def test_chains_stay_apart(draw):
    """Also where they share the mean, or have noise of their own."""
    root, y, weight = draw(3, 2, 6, 6), draw(6, 2), 1.0 + draw(6).square()
    covariance = root @ root.mT + 0.1 * torch.eye(6).double()
    for mean in (draw(6, 2), draw(3, 6, 2)):
        for noise in (0.1 + draw(1, 2).square(), 0.1 + draw(3, 1, 2).square()):
            found = marginal_likelihood(JointPrior(mean, covariance), GaussianRows(noise), y, weight)
            for chain in range(3):
                own = JointPrior(mean.expand(3, 6, 2)[chain], covariance[chain])
                rows = GaussianRows(noise.expand(3, 1, 2)[chain])
                torch.testing.assert_close(found[chain], marginal_likelihood(own, rows, y, weight))


@pytest.fixture
def low_rank(draw) -> LowRankPrior:
    return LowRankPrior(draw(6, 2), draw(2, 3, 6), draw(6, 2).square())


def test_low_rank_evidences_are_marginal_likelihoods(low_rank, draw):
    """FITC's has the residuals on the diagonal; Titsias' has none and pays for them."""
    noise, y, ones = GaussianRows(0.1 + draw(6, 2).square()), draw(6, 2), torch.ones(6, dtype=torch.float64)
    explained = low_rank.features.mT @ low_rank.features
    with_residual = JointPrior(low_rank.mean, explained + torch.diag_embed(low_rank.residual.mT))
    torch.testing.assert_close(fitc(low_rank, noise, y, ones), marginal_likelihood(with_residual, noise, y, ones))
    without = marginal_likelihood(JointPrior(low_rank.mean, explained), noise, y, ones)
    trace = (low_rank.residual / (2 * noise.variance)).sum()
    torch.testing.assert_close(sgpr(low_rank, noise, y, ones), without - trace)


@pytest.mark.parametrize("evidence", [sgpr, fitc])
@pytest.mark.parametrize("own_noise", [False, True])
def test_weights_are_repetitions_on_a_low_rank_prior(evidence, low_rank, draw, own_noise):
    weight, noise, y = torch.tensor([1, 3, 1, 2, 5, 1]), 0.1 + draw(6, 2).square(), draw(6, 2)
    noise = noise if own_noise else noise[:1]
    index = torch.repeat_interleave(torch.arange(6), weight)
    copies = LowRankPrior(low_rank.mean[index], low_rank.features[..., index], low_rank.residual[index])
    repeated = GaussianRows(noise[index] if own_noise else noise)
    expected = evidence(copies, repeated, y[index], torch.ones(len(index), dtype=torch.float64))
    torch.testing.assert_close(evidence(low_rank, GaussianRows(noise), y, weight.double()), expected)


@pytest.mark.parametrize("evidence", [sgpr, fitc])
def test_gradients_on_a_low_rank_prior(evidence, low_rank, draw):
    weight, y = 1.0 + draw(6).square(), draw(6, 2)
    parts = [low_rank.mean, low_rank.features, 0.1 + low_rank.residual, 0.1 + draw(1, 2).square()]
    assert torch.autograd.gradcheck(
        lambda *parts: evidence(LowRankPrior(*parts[:3]), GaussianRows(parts[3]), y, weight),
        [part.requires_grad_() for part in parts],
    )
