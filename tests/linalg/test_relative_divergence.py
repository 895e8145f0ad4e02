"""The divergence of what two factors make of q(v), against torch's own, with autograd through both factorisations."""

from __future__ import annotations

import math

import pytest
import torch
from torch.distributions import MultivariateNormal, kl_divergence

from candid.linalg.crew import crew, each_member
from candid.linalg.relative_divergence import RelativeDivergence

SHAPES = {"plain": (1, 4), "one point": (1, 1), "several": (3, 5), "panels": (2, 131)}
CREWS = pytest.mark.parametrize("size", [None, 1, 2, 3], ids=["no crew", "crew of one", "of two", "of three"])


@pytest.fixture(params=SHAPES.values(), ids=SHAPES)
def parts(request, draw):
    """K, Q, m, R and a gradient, of which nothing above the diagonal of R counts."""
    n_gps, m = request.param
    grams = [(root := draw(n_gps, m, m)) @ root.mT / m + torch.eye(m).double() for _ in range(2)]
    root = draw(n_gps, m, m) / math.sqrt(m)
    root.diagonal(dim1=-2, dim2=-1).add_(torch.where(draw(m) > 0, 2.0, -2.0))
    return *grams, draw(n_gps, m), root, draw(n_gps)


def dense_divergence(gram, other, mean, root):
    lower, root = torch.linalg.cholesky(other), root.tril()
    turned = lower @ root
    zero = torch.zeros_like(mean)
    return kl_divergence(
        MultivariateNormal((lower @ mean.unsqueeze(-1)).squeeze(-1), turned @ turned.mT), MultivariateNormal(zero, gram)
    )


def dense_density(gram, other, mean, root):
    """−log N(J m; 0, K), as a density of m."""
    lower = torch.linalg.cholesky(other)
    prior = MultivariateNormal(torch.zeros_like(mean), gram)
    log_det = lower.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    return -prior.log_prob((lower @ mean.unsqueeze(-1)).squeeze(-1)) - log_det


def expected(dense, gram, other, mean, root, grad):
    learned = [part.clone().requires_grad_() for part in (gram, other, mean, root)]
    value = dense(*learned)
    bars = torch.autograd.grad((grad * value).sum(), learned, allow_unused=True)
    return value, bars


def found(parts, size):
    """By way of Ψ and Ψ', which are turned into gradients of the Gram matrices."""
    gram, other, mean, root, grad = parts
    factors = [torch.linalg.cholesky(matrix) for matrix in (gram, other)]
    # Anything above the diagonal of J.
    loose = factors[1] + torch.full_like(factors[1], math.nan).triu(1)
    with crew(size):
        work = RelativeDivergence(torch.linalg.inv(factors[0]).tril(), loose, mean, root)
        each_member(work.turn)
        value = work.value()
        begun = work.begin()
        each_member(work.pull_back_turn)
        each_member(work.pull_back_root)
        begun()
    gradients = work.gradients
    bars = []
    for bar, factor in zip((gradients.frame, gradients.other_frame), factors, strict=True):
        inverse, below = torch.linalg.inv(factor), bar.tril(-1)
        whole = below + below.mT + torch.diag_embed(bar.diagonal(dim1=-2, dim2=-1))
        bars.append(0.5 * grad[:, None, None] * inverse.mT @ whole @ inverse)
    of_root = None if root is None else grad[:, None, None] * gradients.root
    return value, [*bars, grad[:, None] * gradients.mean, of_root]


@CREWS
@pytest.mark.parametrize("dense", [dense_divergence, dense_density], ids=["divergence", "density"])
def test_values_and_gradients(parts, dense, size):
    gram, other, mean, root, grad = parts
    value, bars = expected(dense, *parts)
    root = None if dense is dense_density else root
    our_value, our_bars = found((gram, other, mean, root, grad), size)
    torch.testing.assert_close(our_value, value)
    for place in (0, 1):
        # Autograd splits the gradient of a symmetric matrix between its triangles in its own way.
        torch.testing.assert_close(2 * our_bars[place], bars[place] + bars[place].mT)
    for our_bar, bar in zip(our_bars[2:], bars[2:], strict=True):
        torch.testing.assert_close(our_bar, bar)


@CREWS
def test_what_is_above_the_diagonal_of_the_root_stays_where_it_is(parts, size):
    gram, other, mean, root, grad = parts
    _, bars = found(parts, size)
    assert torch.equal(bars[3], bars[3].tril())
    loose = root + torch.full_like(root, math.nan).triu(1)
    for bar, again in zip(bars, found((gram, other, mean, loose, grad), size)[1], strict=True):
        assert torch.equal(bar, again)


@CREWS
def test_equal_matrices_leave_the_divergence_from_the_standard_normal(draw, size):
    root, one = draw(1, 6, 6), torch.eye(6).double()[None]
    gram, mean = root @ root.mT + one, draw(1, 6)
    value, _ = found((gram, gram, mean, one, torch.ones(1).double()), size)
    torch.testing.assert_close(value, 0.5 * mean.square().sum(-1))


def test_single_precision(draw):
    m = 200
    root, one = draw(1, m, m), torch.eye(m).double()[None]
    parts = [root @ root.mT / m + one, 2 * one, draw(1, m), root.tril() / m + one, torch.ones(1).double()]
    exact, single = (found([part.to(dtype) for part in parts], 2) for dtype in (torch.float64, torch.float32))
    assert single[0].dtype == torch.float32
    for ours, theirs in zip((single[0], *single[1]), (exact[0], *exact[1]), strict=True):
        torch.testing.assert_close(ours.double(), theirs, rtol=1e-4, atol=1e-4)
