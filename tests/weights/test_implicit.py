"""Draws of networks: what a critic learns of them, and what layers see."""

from __future__ import annotations

import copy

import pytest
import torch
from torch.distributions import MultivariateNormal, Normal, kl_divergence

from candid.weights import Critic, Full, Implicit
from candid.weights import implicit as implicit_module
from candid.weights.critic import classification_loss

N_GPS, N_POINTS, N_FEATURES = 2, 4, 3


def normal_part(draw, n_gps: int = N_GPS, n_points: int = N_POINTS) -> Full:
    normal = Full(n_points, (n_gps,)).double()
    with torch.no_grad():
        for parameter in normal.parameters():
            parameter.add_(0.3 * draw(*parameter.shape))
    return normal


def make(draw, n_draws: int = 6, **options) -> Implicit:
    points = torch.nn.Parameter(draw(N_GPS, N_POINTS, N_FEATURES))
    return Implicit(normal_part(draw), points, n_draws, 8, seed=3, **options).double()


@torch.no_grad()
def shake(weights: Implicit, draw) -> None:
    """Networks that are not silent."""
    for parameter in [*weights.generator.parameters(), *weights.critic.parameters()]:
        parameter.add_(0.2 * draw(*parameter.shape))


def fit_critic(critic: Critic, loss, n_steps: int, rate: float = 0.01) -> None:
    """By plain Adam, at a rate that ends at zero."""
    optimizer = torch.optim.Adam(critic.parameters(), lr=rate)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, n_steps)
    for step in range(n_steps):
        optimizer.zero_grad()
        loss(step).backward()
        optimizer.step()
        schedule.step()


def test_a_critic_learns_the_log_ratio_of_two_densities():
    """t = log q/r, with its sign, for two normals, of which it sees the quantiles."""
    q, r = Normal(0.6, 0.7), Normal(0.0, 1.0)
    critic, points = Critic(1, 1, seed=0), torch.zeros(1, 1, 1)
    levels = ((torch.arange(400) + 0.5) / 400).reshape(-1, 1, 1)
    ours, others = q.icdf(levels), r.icdf(levels)
    fit_critic(critic, lambda step: classification_loss(critic(ours, points), critic(others, points)), 200)
    grid = torch.linspace(-1.0, 2.0, 7)
    found, expected = critic(grid[:, None, None], points).detach(), q.log_prob(grid) - r.log_prob(grid)
    assert expected.max() - expected.min() > 2
    torch.testing.assert_close(found, expected, rtol=0, atol=0.2)
    assert critic(ours, points).mean().item() == pytest.approx(kl_divergence(q, r).item(), abs=0.05)


def test_the_loss_of_a_critic_is_least_at_the_log_ratio():
    """Of constants, for distributions that are alike: where it knows nothing."""
    losses = [classification_loss(t, t).item() for t in torch.linspace(-1, 1, 5).unsqueeze(-1)]
    assert min(losses) == losses[2] == pytest.approx(2 * torch.tensor(2.0).log().item())
    assert classification_loss(torch.ones(3), -torch.ones(3)) < classification_loss(-torch.ones(3), torch.ones(3))


def narrow(weights: Implicit, shift: float, log_width: float) -> None:
    """e = shift + exp(log_width) ε."""
    weights.generator.shift.biases[-1].data.fill_(shift)
    weights.generator.log_width.biases[-1].data.fill_(log_width)


def test_as_published_the_penalty_is_what_the_critic_tells_from_the_prior(monkeypatch):
    """KL(N(c, s²) ‖ N(0, 1)) of each of the values."""
    prior, points = Full(3, (1,)), torch.nn.Parameter(torch.linspace(-1, 1, 3).reshape(1, 3, 1))
    weights = Implicit(prior, points, 10, 8, learned=False, seed=1)
    assert not weights.penalty().detach().any()
    narrow(weights, 0.5, -0.4)

    def loss(step: int):
        weights.refresh(step)
        return weights.contrast()

    fit_critic(weights.critic, loss, 500)
    expected = 3 * kl_divergence(Normal(0.5, torch.tensor(-0.4).exp()), Normal(0.0, 1.0))
    monkeypatch.setattr(implicit_module, "N_AVERAGED", 2000)
    assert weights.penalty().item() == pytest.approx(expected.item(), rel=0.15)


def test_all_but_the_log_ratio_of_noise_is_known(draw, monkeypatch):
    """With the true t in place of the critic's, the penalty of v = m + R(c + sε) is a divergence of normals."""
    weights, shift, width = make(draw, learned=False), 0.7, 0.6
    narrow(weights, shift, torch.tensor(width).log().item())
    q, r = Normal(torch.tensor(shift).double(), width), Normal(torch.tensor(0.0).double(), 1.0)
    monkeypatch.setattr(weights.critic, "forward", lambda e, *_, **__: (q.log_prob(e) - r.log_prob(e)).sum((1, 2)))
    monkeypatch.setattr(implicit_module, "N_AVERAGED", 20_000)
    mean = weights.mean + weights.normal.root() @ torch.full((N_POINTS,), shift).double()
    prior = MultivariateNormal(torch.zeros(N_POINTS).double(), torch.eye(N_POINTS).double())
    expected = kl_divergence(MultivariateNormal(mean, weights.root() @ weights.root().mT), prior).sum()
    assert weights.penalty().item() == pytest.approx(expected.item(), rel=0.01)


@pytest.mark.parametrize("learned", [True, False])
def test_silent_networks_leave_the_normal_part(draw, learned):
    weights, features = make(draw, learned=learned), draw(N_GPS, N_POINTS, 5)
    torch.testing.assert_close(weights.penalty(), weights.normal.penalty())
    for found, expected in zip(weights.moments(features), weights.normal.moments(features), strict=True):
        assert found.shape == (6, N_GPS, 5)
        torch.testing.assert_close(found, expected.expand_as(found))


def test_rows_of_each_draw_and_rows_that_all_draws_meet(draw):
    """A layer above others sees the rows of each draw apart; both sees what v given ζ makes of its features."""
    weights, features = make(draw), draw(N_GPS, N_POINTS, 5)
    shake(weights, draw)
    mean, explained, spread = weights.moments(features)
    assert mean.std(0).min() > 1e-3
    settled = copy.deepcopy(weights)
    settled.n_settled, settled.above = 6, True
    blocks = features.repeat(1, 1, 6)
    for flat, crossed in zip(settled.moments(blocks), (mean, explained, spread), strict=True):
        torch.testing.assert_close(flat.unflatten(-1, (6, 5)).movedim(1, 0), crossed)
    torch.testing.assert_close(spread[0], (weights.root().mT @ features).square().sum(-2))


def test_moments_are_those_of_draws(draw):
    """Means for draws of ζ, together with the spread for a given ζ, have mean and variance of aᵀv."""
    weights, features = make(draw, n_draws=20_000), draw(N_GPS, N_POINTS, 3)
    shake(weights, draw)
    weights.centre.copy_(0.3 * draw(N_GPS, N_POINTS))
    weights.variance.copy_(draw(N_GPS, N_POINTS).square())
    with torch.no_grad():
        mean, _, spread = weights.moments(features)
        values = weights._mapped(weights.noise(20_000, 99)[1]).movedim(0, 1) @ features
    torch.testing.assert_close(mean.mean(0), values.mean(1), rtol=0.02, atol=0.02)
    torch.testing.assert_close(mean.var(0) + spread[0], values.var(1), rtol=0.05, atol=0.01)


def test_noise_is_standardised(draw):
    weights = make(draw)
    with torch.no_grad():
        for parameter in weights.generator.parameters():
            parameter.add_(0.5 * draw(*parameter.shape))
    for step in range(60):
        weights.refresh(step)
        weights.observe()
    _, noise = weights.noise(5000, 99)
    assert weights.variance.min() > 0.05
    torch.testing.assert_close(noise.mean(0), torch.zeros(N_GPS, N_POINTS).double(), rtol=0, atol=0.1)
    torch.testing.assert_close(noise.std(0), torch.ones(N_GPS, N_POINTS).double(), rtol=0.1, atol=0)
    published = make(draw, learned=False)
    published.observe()
    assert not published.centre.any()
    assert not published.variance.any()


def test_draws_follow_from_seed_and_step(draw):
    weights, features = make(draw), draw(N_GPS, N_POINTS, 5)
    shake(weights, draw)
    first = weights.moments(features)[0]
    assert torch.equal(weights.moments(features)[0], first)
    weights.refresh(1)
    assert not torch.equal(weights.moments(features)[0], first)
    with torch.no_grad():
        standing = weights.penalty(), weights.moments(features)[0]
        weights.refresh(0)
        assert torch.equal(weights.penalty(), standing[0])
        assert torch.equal(weights.moments(features)[0], standing[1])
    plain, _ = weights.noise(6, 99)
    assert torch.equal(plain[:3], -plain[3:])
    assert len(weights.noise(5, 99)[0]) == 5


def test_settled_draws_share_nothing(draw):
    weights = make(draw)
    shake(weights, draw)
    settled = weights.settled()
    assert settled.mean.shape == (8, N_GPS, N_POINTS)
    torch.testing.assert_close(settled.root(), weights.root().detach())
    before = settled.mean.detach().clone()
    weights.assign(torch.zeros(N_GPS, N_POINTS).double(), torch.eye(N_POINTS).double().expand(N_GPS, -1, -1))
    assert torch.equal(settled.mean, before)
    assert not weights.mean.any()


@pytest.mark.parametrize("learned", [True, False])
def test_each_gradient_reaches_its_own_network(draw, learned):
    weights, features = make(draw, learned=learned), draw(N_GPS, N_POINTS, 5)
    shake(weights, draw)
    (weights.moments(features)[0].square().sum() + weights.penalty()).backward()
    assert all(parameter.grad.any() for parameter in weights.generator.parameters())
    assert all((parameter.grad is not None) == learned for parameter in weights.normal.parameters())
    assert all(parameter.grad is None for parameter in weights.critic.parameters())
    assert weights._seen[0].grad is None
    for parameter in weights.parameters():
        parameter.grad = None
    weights.contrast().backward()
    assert all(parameter.grad.any() for parameter in weights.critic.parameters())
    others = [*weights.generator.parameters(), *weights.normal.parameters()]
    assert all(parameter.grad is None for parameter in others)


def test_copies_see_their_own_points(draw):
    """Points belong to the layer, which is copied together with its weights."""
    weights = make(draw)
    layer = torch.nn.Module()
    layer.points, layer.weights = weights._seen[0], weights
    copied = copy.deepcopy(layer)
    assert copied.weights._seen[0] is copied.points
    assert copied.points is not layer.points
    assert all(parameter is not layer.points for parameter in weights.parameters())
