from __future__ import annotations

import pytest
import torch
from torch.distributions import MultivariateNormal, kl_divergence

from candid.linalg import divergence_from_standard

BATCHES = [(), (2,), (3, 2)]


def factor(draw, *shape: int) -> torch.Tensor:
    """Lower-triangular, with a diagonal of both signs away from zero."""
    lower = 0.4 * draw(*shape, shape[-1]).tril(-1)
    diagonal = draw(*shape)
    return lower + torch.diag_embed(diagonal + 0.5 * diagonal.sign())


@pytest.mark.parametrize("m", [1, 4])
@pytest.mark.parametrize("batch", BATCHES)
def test_values(batch, m, draw):
    mean, root = draw(*batch, m), factor(draw, *batch, m)
    standard = MultivariateNormal(torch.zeros(m).double(), torch.eye(m).double())
    expected = kl_divergence(MultivariateNormal(mean, root @ root.mT), standard)
    torch.testing.assert_close(divergence_from_standard(mean, root), expected)


@pytest.mark.parametrize("m", [1, 3])
@pytest.mark.parametrize("batch", BATCHES)
def test_gradcheck(batch, m, draw):
    mean, root = draw(*batch, m).requires_grad_(), factor(draw, *batch, m).requires_grad_()
    assert torch.autograd.gradcheck(divergence_from_standard, (mean, root))


def test_the_upper_triangle_does_not_count(draw):
    mean, root = draw(4), factor(draw, 4)
    spoiled = (root + draw(4, 4).triu(1)).requires_grad_()
    found = divergence_from_standard(mean, spoiled)
    assert torch.equal(found, divergence_from_standard(mean, root))
    gradient = torch.autograd.grad(found, spoiled)[0]
    assert torch.equal(gradient, gradient.tril())


@pytest.mark.parametrize("needed", [0, 1])
def test_each_gradient_alone(needed, draw):
    given = [draw(2, 3), factor(draw, 2, 3)]
    given[needed].requires_grad_()
    gradient = torch.autograd.grad(divergence_from_standard(*given).sum(), given[needed])[0]
    gradients = given[0], given[1] - torch.diag_embed(1 / given[1].diagonal(dim1=-2, dim2=-1))
    torch.testing.assert_close(gradient, gradients[needed])
