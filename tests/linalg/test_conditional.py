from __future__ import annotations

import pytest
import torch
from torch.autograd.functional import hessian

from candid.linalg import condition

SHAPES = {"plain": ((), 4), "one neighbour": ((), 1), "batch": ((3,), 4), "two batch dimensions": ((2, 3), 3)}


def covariance(root):
    """A covariance as a function of any square matrix, so that finite differences keep it symmetric."""
    return root @ root.mT + torch.eye(root.shape[-1], dtype=root.dtype)


def by_solving(matrix, cross, targets):
    """The same, with autograd through the solution of linear equations."""
    alpha = torch.linalg.solve(matrix, targets.unsqueeze(-1)).squeeze(-1)
    b = torch.linalg.solve(matrix, cross.unsqueeze(-1)).squeeze(-1)
    return (cross * alpha).sum(-1), (cross * b).sum(-1)


@pytest.fixture(params=SHAPES.values(), ids=SHAPES)
def parts(request, draw):
    batch, k = request.param
    return draw(*batch, k, k), draw(*batch, k), draw(*batch, k)


def test_gradcheck(parts):
    root, cross, targets = (part.requires_grad_() for part in parts)
    assert torch.autograd.gradcheck(lambda r, k, t: condition(covariance(r), k, t)[:2], (root, cross, targets))


def test_values_and_gradients_are_those_of_autograd(parts, draw):
    root, cross, targets = parts
    leaves = [covariance(root).requires_grad_(), cross.requires_grad_(), targets.requires_grad_()]
    pulls = draw(2, *cross.shape[:-1])
    *ours, factor = condition(*leaves)
    theirs = by_solving(*leaves)
    torch.testing.assert_close(tuple(ours), theirs)
    assert ours[0].shape == factor.jitter.shape == cross.shape[:-1]
    found, expected = (
        torch.autograd.grad((pulls * torch.stack(tuple(values))).sum(), leaves) for values in (ours, theirs)
    )
    # Of a symmetric matrix only the symmetric part of the gradient matters; ours has no other.
    torch.testing.assert_close(found[0], 0.5 * (expected[0] + expected[0].mT))
    torch.testing.assert_close(found[1:], expected[1:])


@pytest.mark.parametrize("which", ["mean", "explained"])
def test_one_of_the_results_may_be_left_alone(parts, which):
    root, cross, targets = parts
    leaves = [covariance(root).requires_grad_(), cross.requires_grad_(), targets.requires_grad_()]
    position = ["mean", "explained"].index(which)
    found = torch.autograd.grad(condition(*leaves)[position].sum(), leaves)
    expected = torch.autograd.grad(by_solving(*leaves)[position].sum(), leaves, materialize_grads=True)
    torch.testing.assert_close(found[0] + found[0].mT, expected[0] + expected[0].mT)
    torch.testing.assert_close(found[1:], expected[1:])


def test_duplicates_with_jitter(draw):
    """With jitter as a constant, the gradient is that of autograd for the repaired matrix."""
    points, targets = draw(3, 2), draw(6)
    points = torch.cat([points, points]).requires_grad_()
    x = draw(1, 2)

    def gram(a, b):
        return torch.exp(-0.5 * (a.unsqueeze(1) - b.unsqueeze(0)).square().sum(-1))

    *ours, factor = condition(gram(points, points), gram(points, x).squeeze(-1), targets, 1e-3)
    repaired = gram(points, points) + 1e-3 * torch.eye(6, dtype=torch.float64)
    theirs = by_solving(repaired, gram(points, x).squeeze(-1), targets)
    torch.testing.assert_close(tuple(ours), theirs)
    assert factor.jitter == 1e-3
    for value, other in zip(ours, theirs, strict=True):
        found, expected = (torch.autograd.grad(v, points, retain_graph=True)[0] for v in (value, other))
        torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-7)


def test_only_the_singular_group_gets_jitter():
    matrices = torch.stack([torch.eye(3), torch.ones(3, 3)]).double()
    ones = torch.ones(2, 3, dtype=torch.float64)
    mean, explained, factor = condition(matrices, ones, ones)
    assert factor.jitter[0] == 0 < factor.jitter[1] < 1e-10
    torch.testing.assert_close(mean, torch.tensor([3.0, 1.0]).double())
    torch.testing.assert_close(explained, mean)


def test_nothing_to_condition_on():
    cross = torch.zeros(2, 0, dtype=torch.float64, requires_grad=True)
    mean, explained, _ = condition(torch.zeros(2, 0, 0, dtype=torch.float64), cross, cross.detach())
    assert mean.tolist() == explained.tolist() == [0.0, 0.0]
    (gradient,) = torch.autograd.grad((mean + explained).sum(), cross)
    assert gradient.shape == (2, 0)


def test_second_derivatives_are_refused(draw):
    matrix, targets = covariance(draw(3, 3)), draw(3)
    with pytest.raises(RuntimeError, match="second derivatives"):
        hessian(lambda cross: condition(matrix, cross, targets)[1], draw(3))
