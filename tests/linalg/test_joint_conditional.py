from __future__ import annotations

import pytest
import torch

from candid.linalg import condition, condition_together

SHAPES = {"plain": ((), 4, 3), "one of each": ((), 1, 1), "batch": ((3,), 4, 2), "two batch dimensions": ((2, 3), 3, 2)}


def covariance(root):
    """A covariance as a function of any square matrix, so that finite differences keep it symmetric."""
    return root @ root.mT + torch.eye(root.shape[-1], dtype=root.dtype)


def by_solving(matrix, cross, targets):
    """The same, with autograd through the solution of linear equations."""
    solved = torch.linalg.solve(matrix, cross)
    return (solved.mT @ targets.unsqueeze(-1)).squeeze(-1), cross.mT @ solved


@pytest.fixture(params=SHAPES.values(), ids=SHAPES)
def parts(request, draw):
    batch, k, w = request.param
    return draw(*batch, k, k), draw(*batch, k, w), draw(*batch, k)


def test_gradcheck(parts):
    leaves = [part.requires_grad_() for part in parts]
    assert torch.autograd.gradcheck(lambda r, k, t: condition_together(covariance(r), k, t)[:2], leaves)


def test_values_and_gradients_are_those_of_autograd(parts, draw):
    root, cross, targets = parts
    leaves = [covariance(root).requires_grad_(), cross.requires_grad_(), targets.requires_grad_()]
    *ours, factor = condition_together(*leaves)
    theirs = by_solving(*leaves)
    torch.testing.assert_close(tuple(ours), theirs)
    assert factor.jitter.shape == cross.shape[:-2]
    pulls = [draw(*value.shape) for value in ours]
    found, expected = (
        torch.autograd.grad(sum((p * v).sum() for p, v in zip(pulls, values, strict=True)), leaves)
        for values in (ours, theirs)
    )
    # Of a symmetric matrix only the symmetric part of the gradient matters; ours has no other.
    torch.testing.assert_close(found[0], 0.5 * (expected[0] + expected[0].mT))
    torch.testing.assert_close(found[1:], expected[1:])


def test_one_variable_is_the_plain_case(parts):
    root, cross, targets = parts
    mean, explained, _ = condition_together(covariance(root), cross[..., :1], targets)
    plain_mean, plain_explained, _ = condition(covariance(root), cross[..., 0], targets)
    torch.testing.assert_close(mean.squeeze(-1), plain_mean)
    torch.testing.assert_close(explained.squeeze(-1).squeeze(-1), plain_explained)
