from __future__ import annotations

import pytest
import torch

from candid.linalg import whiten

SHAPES = {
    "plain": ((), 4, 6),
    "one point": ((), 1, 3),
    "one row": ((), 4, 1),
    "one of each": ((), 1, 1),
    "batch": ((3,), 4, 5),
    "two batch dimensions": ((2, 3), 3, 2),
}


def by_autograd(gram, cross, jitter: float = 0.0):
    """The same, with autograd through the factorisation and jitter as a constant."""
    level = jitter * gram.detach().diagonal(dim1=-2, dim2=-1).mean(-1)[..., None, None]
    lower = torch.linalg.cholesky(gram + level * torch.eye(gram.shape[-1], dtype=gram.dtype))
    return torch.linalg.solve_triangular(lower, cross, upper=False)


def covariance(root):
    """A covariance as a function of any square matrix, so that finite differences keep it symmetric."""
    return root @ root.mT + torch.eye(root.shape[-1], dtype=root.dtype)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_gradcheck(shape, draw):
    batch, m, n = shape
    root, cross = draw(*batch, m, m).requires_grad_(), draw(*batch, m, n).requires_grad_()
    assert torch.autograd.gradcheck(lambda r, c: whiten(covariance(r), c)[0], (root, cross))


@pytest.mark.parametrize("jitter", [0.0, 1e-2])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_values_and_gradients_are_those_of_autograd(shape, jitter, draw):
    batch, m, n = shape
    root, cross, pull = draw(*batch, m, m), draw(*batch, m, n), draw(*batch, m, n)
    gram = covariance(root).requires_grad_()
    cross.requires_grad_()
    ours, factor = whiten(gram, cross, jitter)
    theirs = by_autograd(gram, cross, jitter)
    torch.testing.assert_close(ours, theirs)
    assert factor.jitter.shape == batch
    found = torch.autograd.grad((pull * ours).sum(), (gram, cross))
    expected = torch.autograd.grad((pull * theirs).sum(), (gram, cross))
    torch.testing.assert_close(found[1], expected[1])
    # Autograd splits the gradient of a symmetric matrix between its triangles in its own way.
    torch.testing.assert_close(found[0] + found[0].mT, expected[0] + expected[0].mT)


def test_duplicate_points(draw):
    """A singular Gram matrix with its jitter: the gradients still agree with autograd's."""
    points = draw(4, 2)
    points = torch.cat([points, points[:2]])
    x, pull = draw(5, 2), draw(6, 5)
    points.requires_grad_()

    def loss(function):
        gram = torch.exp(-0.5 * (points.unsqueeze(0) - points.unsqueeze(1)).square().sum(-1))
        cross = torch.exp(-0.5 * (points.unsqueeze(1) - x.unsqueeze(0)).square().sum(-1))
        return (pull * function(gram, cross)).sum()

    ours = torch.autograd.grad(loss(lambda gram, cross: whiten(gram, cross, 1e-4)[0]), points)[0]
    theirs = torch.autograd.grad(loss(lambda gram, cross: by_autograd(gram, cross, 1e-4)), points)[0]
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6)


def test_only_what_is_needed_is_differentiated(draw):
    root, cross = draw(3, 3), draw(3, 2)
    gram = covariance(root)
    features, _ = whiten(gram, cross.requires_grad_())
    features.sum().backward()
    assert cross.grad is not None
    assert gram.grad is None
    gram.requires_grad_()
    features, _ = whiten(gram, cross.detach())
    features.sum().backward()
    assert gram.grad is not None
    torch.testing.assert_close(gram.grad, gram.grad.T, rtol=0, atol=0)


def test_single_precision(draw):
    gram, cross = covariance(draw(2, 5, 5)), draw(2, 5, 7)
    features, factor = whiten(gram.float(), cross.float())
    assert features.dtype == factor.lower.dtype == torch.float32
    torch.testing.assert_close(features.double(), by_autograd(gram, cross), rtol=1e-4, atol=1e-4)
