"""Where hidden values are taken."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
import torch
from scipy.stats import norm

from candid.families import FixedSites, LearnedGrid, LearnedSites, MonteCarlo, make_rule
from candid.families.sites import gauss_hermite

RULES = ("qr1", "qr2", "qr3", "gauss-hermite")


def moments(n_rows: int = 3, width: int = 2, n_sites: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    mean = torch.randn(n_sites, n_rows, width, generator=generator).double()
    return mean, torch.rand(n_sites, n_rows, width, generator=generator).double() + 0.1


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("widths", [(2,), (2, 1)])
def test_weights_add_up_and_there_is_one_for_each_site(name, widths):
    rule = make_rule(name, 3, widths, seed=1).double()
    values, (mean, variance) = None, moments()
    for layer, width in enumerate(widths):
        mean, variance = moments(width=width, n_sites=1 if values is None else len(values))
        values = rule.propagate(layer, mean, variance)
    n_sites = 3 if name == "qr3" else 3 ** sum(widths)
    assert values.shape == (n_sites, 3, widths[-1])
    assert rule.log_weight().shape == (n_sites, 1)
    torch.testing.assert_close(rule.log_weight().exp().sum(), torch.tensor(1.0).double())


def test_lined_up_sites_by_hand():
    rule = LearnedSites(4, [2, 2], seed=3).double()
    mean, variance = moments()
    first = rule.propagate(0, mean, variance)
    torch.testing.assert_close(first, mean + rule.sites[0][:, None] * variance.sqrt())
    mean, variance = moments(n_sites=4)
    torch.testing.assert_close(rule.propagate(1, mean, variance), mean + rule.sites[1][:, None] * variance.sqrt())


def test_the_sites_of_a_gp_start_as_normal_quantiles():
    points = LearnedSites(9, [3], seed=2, scale=0.5).sites[0]
    quantiles = torch.tensor(0.5 * norm.ppf((np.arange(9) + 0.5) / 9)).float()
    torch.testing.assert_close(points.sort(0).values, quantiles[:, None].expand(-1, 3))
    assert len({tuple(column.tolist()) for column in points.T}) == 3


def test_a_grid_has_every_combination_and_layers_cross():
    rule = LearnedGrid(3, [2, 1]).double()
    with torch.no_grad():
        for nodes in rule.nodes:
            nodes.add_(torch.randn(nodes.shape, generator=torch.Generator().manual_seed(1)))
    mean, variance = moments()
    first, (a, b) = rule.propagate(0, mean, variance), rule.line(0).T.detach()
    expected = [mean[0] + torch.stack([x, y]) * variance[0].sqrt() for x, y in product(a, b)]
    torch.testing.assert_close(first, torch.stack(expected))
    mean, variance = moments(width=1, n_sites=9)
    second, line = rule.propagate(1, mean, variance), rule.line(1)[:, 0].detach()
    expected = [mean[site] + x * variance[site].sqrt() for site in range(9) for x in line]
    torch.testing.assert_close(second, torch.stack(expected))


@pytest.mark.parametrize("n_sites", [1, 2, 3, 4, 5])
def test_symmetric_sites_stay_symmetric(n_sites):
    rule = LearnedGrid(n_sites, [2], symmetric=True)
    with torch.no_grad():
        rule.nodes[0].add_(torch.randn(rule.nodes[0].shape, generator=torch.Generator().manual_seed(4)))
    line = rule.line(0)
    assert line.shape == (n_sites, 2)
    assert torch.equal(line, -line.flip(0))
    if n_sites % 2:
        assert not line[n_sites // 2].any()
    assert sum(parameter.numel() for parameter in rule.nodes) == n_sites // 2 * 2


def test_gauss_hermite():
    nodes, weights = gauss_hermite(3)
    np.testing.assert_allclose(nodes, [-math.sqrt(3), 0, math.sqrt(3)], rtol=1e-6)
    np.testing.assert_allclose(weights, [1 / 6, 2 / 3, 1 / 6], rtol=1e-6)
    rule = make_rule("gauss-hermite", 5, [2]).double()
    points, weight = rule.points(0, 1).squeeze(-2), rule.log_weight().exp()
    # E x⁴y² = 3
    torch.testing.assert_close((weight[:, 0] * points[:, 0] ** 4 * points[:, 1] ** 2).sum(), torch.tensor(3.0).double())
    assert not list(rule.parameters())


def test_random_sites_follow_from_seed_and_step():
    def draw(seed: int = 0, step: int = 0, layer: int = 0) -> torch.Tensor:
        rule = MonteCarlo(5, [2, 2], seed=seed)
        rule.refresh(step)
        return rule.points(layer, 7)

    assert draw().shape == (5, 7, 2)
    assert torch.equal(draw(step=3), draw(step=3))
    others = [draw(step=1), draw(seed=1), draw(layer=1)]
    with torch.no_grad():
        assert torch.equal(draw(step=1), draw(step=2))
        others.append(draw())
    assert all(not torch.equal(draw(), other) for other in others)


def test_random_sites_are_standard_normal():
    points = MonteCarlo(50, [3]).points(0, 2000)
    assert float(points.mean()) == pytest.approx(0.0, abs=0.01)
    assert float(points.var()) == pytest.approx(1.0, abs=0.01)
    settled = MonteCarlo(4, [3, 2], n_settled=512).settled()
    for layer, width in enumerate((3, 2)):
        points = settled.points(layer)
        assert points.shape == (512, 1, width)
        torch.testing.assert_close(points.mean(0), torch.zeros(1, width), atol=0.03, rtol=0)
        torch.testing.assert_close(points.var(0), torch.ones(1, width), atol=0.1, rtol=0)


@pytest.mark.parametrize("name", RULES)
def test_what_is_settled_is_the_same_and_shares_nothing(name):
    rule = make_rule(name, 3, [2], seed=1)
    settled, (mean, variance) = rule.settled(), moments()
    assert isinstance(settled, FixedSites)
    expected = rule.propagate(0, mean, variance).detach().clone()
    with torch.no_grad():
        for tensor in rule.state_dict().values():
            tensor.fill_(7.0)
    torch.testing.assert_close(settled.propagate(0, mean, variance), expected)
    assert not any(parameter.requires_grad for parameter in settled.parameters())


@pytest.mark.parametrize("rule", [*(make_rule(name, 3, [2, 1]) for name in RULES), MonteCarlo(3, [2], n_settled=11)])
def test_settled_weights_add_up_to_one_in_float64(rule):
    # Means of a million would be off by a tenth if they did so in float32 alone.
    total = rule.float().settled().double().log_weight().exp().sum(-2)
    torch.testing.assert_close(total, torch.ones_like(total), rtol=0, atol=1e-14)


def test_values_that_are_certain_have_a_gradient():
    rule = LearnedSites(3, [1]).double()
    variance = torch.zeros(1, 2, 1).double().requires_grad_()
    rule.propagate(0, torch.zeros(1, 2, 1).double(), variance).square().sum().backward()
    assert bool(variance.grad.isfinite().all())


def test_mistakes():
    with pytest.raises(ValueError, match="unknown quadrature rule 'qr4'; choose one of qr1"):
        make_rule("qr4", 3, [2])
    with pytest.raises(ValueError, match=r"has 59049 sites.*'qr3'"):
        make_rule("qr1", 3, [5, 5])


def test_models_side_by_side_have_random_sites_of_their_own():
    rule = MonteCarlo(2, [3], n_settled=4, seed=1)
    rule.even = rule.even.expand(5, 2, 1)
    points = rule.points(0, 7)
    assert points.shape == (5, 2, 7, 3)
    assert len(points.unique()) == points.numel()
    settled = rule.settled()
    assert settled.points(0).shape == (5, 4, 1, 3)
    assert len(settled.points(0).unique()) == 60
    torch.testing.assert_close(settled.log_weight().exp().sum(1), torch.ones(5, 1).double())


@pytest.mark.parametrize("name", ["qr1", "qr2", "qr3"])
def test_weights_that_were_learned_in_float32_add_up_in_float64(name):
    rule = make_rule(name, 3, (2,), seed=1)
    with torch.no_grad():
        rule.logits.copy_(torch.linspace(-2.3, 3.1, len(rule.logits)))
    total = rule.settled().double().log_weight().exp().sum()
    torch.testing.assert_close(total, torch.ones_like(total), rtol=0, atol=1e-14)
