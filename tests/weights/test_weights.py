from __future__ import annotations

import pytest
import torch
from torch.distributions import MultivariateNormal, kl_divergence

from candid.weights import WEIGHTS, Delta, Diagonal, Full, Solved, optimal_weights

KINDS = [Delta, Diagonal, Full]
BATCHES = [(), (2,), (3, 2)]


def at_random(kind, batch, draw, m: int = 4):
    weights = kind(m, batch).double()
    with torch.no_grad():
        for parameter in weights.parameters():
            parameter.add_(0.4 * draw(*parameter.shape))
    return weights


def covariance(weights) -> torch.Tensor:
    """S as a dense matrix, from the parameters."""
    if isinstance(weights, Full):
        lower = torch.tril(weights.lower)
        return lower @ lower.mT
    if isinstance(weights, Diagonal):
        return torch.diag_embed(weights.log_scale.exp().square())
    return torch.zeros(*weights.mean.shape, weights.mean.shape[-1], dtype=torch.float64)


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("kind", KINDS)
def test_moments(kind, batch, draw):
    """aᵀm, aᵀa and aᵀSa for every column a."""
    weights, features = at_random(kind, batch, draw), draw(*batch, 4, 5)
    mean, explained, spread = weights.moments(features)
    torch.testing.assert_close(explained, torch.einsum("...mn,...mn->...n", features, features))
    torch.testing.assert_close(mean, torch.einsum("...mn,...m->...n", features, weights.mean))
    expected = torch.einsum("...mn,...mk,...kn->...n", features, covariance(weights), features)
    torch.testing.assert_close(spread, expected)


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("kind", KINDS)
def test_penalty(kind, batch, draw):
    """Summed over the GPs, which are the last batch dimension, and never over chains."""
    weights = at_random(kind, batch, draw)
    prior = MultivariateNormal(torch.zeros(4).double(), torch.eye(4).double())
    if kind is Delta:
        expected = -prior.log_prob(weights.mean)
    else:
        expected = kl_divergence(MultivariateNormal(weights.mean, covariance(weights)), prior)
    torch.testing.assert_close(weights.penalty(), expected.sum(-1) if batch else expected)
    assert weights.penalty().shape == batch[:-1]


@pytest.mark.parametrize("kind", [Diagonal, Full])
def test_a_fresh_q_is_the_prior(kind):
    assert kind(6, (2,)).penalty().item() == 0


@pytest.mark.parametrize("kind", KINDS)
def test_root(kind, draw):
    weights = at_random(kind, (2,), draw)
    root = weights.root()
    if kind is Delta:
        assert root is None
    else:
        root = torch.diag_embed(root) if kind is Diagonal else root
        torch.testing.assert_close(root @ root.mT, covariance(weights))


class Numbers(torch.nn.Module):
    """All that a q(v) computes, as one function."""

    def __init__(self, weights) -> None:
        super().__init__()
        self.weights = weights

    def forward(self, features):
        return *self.weights.moments(features), self.weights.penalty()


@pytest.mark.parametrize("kind", KINDS)
def test_gradients(kind, draw):
    numbers, features = Numbers(at_random(kind, (2,), draw)), draw(2, 4, 3)
    names, values = zip(*numbers.named_parameters(), strict=True)

    def at(*parameters):
        return torch.func.functional_call(numbers, dict(zip(names, parameters, strict=True)), (features,))

    assert torch.autograd.gradcheck(at, tuple(value.detach().clone().requires_grad_() for value in values))


def test_the_sign_of_the_diagonal_does_not_matter(draw):
    weights = at_random(Full, (), draw)
    mirrored = Full(4).double()
    with torch.no_grad():
        mirrored.mean.copy_(weights.mean)
        mirrored.lower.copy_(-weights.lower)
    torch.testing.assert_close(mirrored.penalty(), weights.penalty())
    features = draw(4, 3)
    for ours, theirs in zip(mirrored.moments(features), weights.moments(features), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_the_upper_triangle_does_not_matter(draw):
    """Neither for values nor for gradients, so steps of any kind leave it alone."""
    numbers, features = Numbers(at_random(Full, (), draw)), draw(4, 3)
    before = numbers(features)
    with torch.no_grad():
        numbers.weights.lower.add_(torch.triu(torch.ones(4, 4), 1))
    after = numbers(features)
    for found, expected in zip(after, before, strict=True):
        assert torch.equal(found, expected)
    sum(value.sum() for value in after).backward()
    gradient = numbers.weights.lower.grad
    assert torch.equal(gradient, gradient.tril())
    assert gradient.tril().any()


@pytest.mark.parametrize("batch", [(), (2,)])
@pytest.mark.parametrize("kind", KINDS)
def test_assign_is_the_nearest_of_its_kind(kind, batch, draw):
    """KL(q ‖ N(m, precision⁻¹)) has no gradient left."""
    root = draw(*batch, 4, 4)
    precision, mean = root @ root.mT + torch.eye(4).double(), draw(*batch, 4)
    weights = kind(4, batch).double()
    weights.assign(mean, precision)
    torch.testing.assert_close(weights.mean.detach(), mean)
    if kind is not Delta:
        target = MultivariateNormal(mean, precision_matrix=precision)
        kl_divergence(MultivariateNormal(weights.mean, covariance(weights)), target).sum().backward()
        for parameter in weights.parameters():
            assert parameter.grad.abs().max() < 1e-10
    if kind is Full:
        torch.testing.assert_close(covariance(weights).detach(), torch.linalg.inv(precision))


def test_assign_in_single_precision_is_as_good_as_float32_allows(draw):
    """A precision with condition number 10⁸, as warm starts give it."""
    rotation, _ = torch.linalg.qr(draw(6, 6))
    precision = rotation @ torch.diag(torch.logspace(0, 8, 6, dtype=torch.float64)) @ rotation.T
    weights = Full(6)
    weights.assign(draw(6), precision)
    assert weights.lower.dtype == torch.float32
    expected = torch.linalg.inv(precision)
    torch.testing.assert_close(covariance(weights).double().detach(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("batch", [(), (3, 2)])
def test_assign_gives_the_factor_of_the_dense_inverse(batch, draw):
    """Lower-triangular with a positive diagonal, so the Cholesky factor itself."""
    root = draw(*batch, 5, 5)
    precision = root @ root.mT + 0.1 * torch.eye(5).double()
    weights = Full(5, batch).double()
    weights.assign(draw(*batch, 5), precision)
    expected = torch.linalg.cholesky(torch.linalg.inv(precision))
    torch.testing.assert_close(weights.lower.detach(), expected, rtol=1e-9, atol=1e-9)


def test_assign_survives_a_precision_that_is_singular_to_rounding(draw):
    """Two directions that the data fix to 10⁻²⁰ of the prior's variance; beside them the prior is lost in rounding."""
    features = draw(6, 2)
    precision = 1e20 * features @ features.T + torch.eye(6).double()
    assert torch.linalg.cholesky_ex(precision).info > 0
    weights = Full(6).double()
    weights.assign(draw(6), precision)
    found = covariance(weights).detach()
    assert torch.isfinite(found).all()
    assert torch.equal(weights.lower, weights.lower.tril())
    # What the data say is kept: 1/(10²⁰ eigenvalue) in both of their directions, never more than the prior elsewhere.
    values, basis = torch.linalg.eigh(features @ features.T)
    for value, direction in zip(values[-2:], basis.T[-2:], strict=True):
        assert (direction @ found @ direction).item() == pytest.approx(1e-20 / value.item(), rel=0.1)
    assert torch.linalg.eigvalsh(found).max() <= 1


def test_the_table_of_names():
    assert {"delta": Delta, "diagonal": Diagonal, "full": Full, "solved": Solved} == WEIGHTS


def test_solved_weights_are_not_learned():
    assert not any(parameter.requires_grad for parameter in Solved(3, (1,)).parameters())


@pytest.mark.parametrize("batch", [(), (2,)])
def test_optimal_weights_are_a_linear_regression(batch, draw):
    """With v ~ N(0, I) and y = Aᵀv + ε the posterior of v, from the covariance form by numpy's rules."""
    features, noise, y = draw(*batch, 3, 8), 0.1 + draw(*batch, 8).square(), draw(*batch, 8)
    scaled = features / noise.unsqueeze(-2)
    mean, precision = optimal_weights(scaled @ features.mT, (scaled @ y.unsqueeze(-1)).squeeze(-1))
    # Condition the joint normal of (v, y) on y.
    gain = features @ torch.linalg.inv(features.mT @ features + torch.diag_embed(noise))
    torch.testing.assert_close(mean, (gain @ y.unsqueeze(-1)).squeeze(-1))
    torch.testing.assert_close(torch.linalg.inv(precision), torch.eye(3).double() - gain @ features.mT)
