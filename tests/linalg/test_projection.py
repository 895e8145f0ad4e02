from __future__ import annotations

import pytest
import torch

from candid.linalg import project, triangular

SHAPES = {
    "plain": ((), 4, 6),
    "one point": ((), 1, 3),
    "one row": ((), 4, 1),
    "one of each": ((), 1, 1),
    "batch": ((3,), 5, 2),
    "two batch dimensions": ((2, 3), 3, 2),
}
ROOTS = ["triangular", "diagonal", "none"]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(triangular, "LEAST_ROWS", 2)


def inputs(kind: str, shape, draw):
    batch, m, n = shape
    root = {"triangular": lambda: draw(*batch, m, m).tril(), "diagonal": lambda: draw(*batch, m)}.get(kind)
    tensors = draw(*batch, m, n), draw(*batch, m), root() if root else None
    return tuple(tensor.requires_grad_() if tensor is not None else None for tensor in tensors)


def textbook(features, mean, root):
    """From the dense S, differentiated by autograd."""
    if root is None:
        covariance = torch.zeros(*mean.shape, mean.shape[-1], dtype=mean.dtype)
    else:
        root = root.tril() if root.dim() > mean.dim() else torch.diag_embed(root)
        covariance = root @ root.mT
    spread = torch.einsum("...mn,...mk,...kn->...n", features, covariance, features)
    return torch.einsum("...mn,...m->...n", features, mean), features.square().sum(-2), spread


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("kind", ROOTS)
def test_gradcheck(kind, shape, draw):
    given = inputs(kind, shape, draw)
    # The upper triangle of a root is not read, and finite differences must not change it.
    assert torch.autograd.gradcheck(lambda a, m, r: project(a, m, r if kind != "triangular" else r.tril()), given)


def test_nothing_above_the_diagonal_of_a_root_is_read(draw):
    features, mean, root = draw(5, 3), draw(5), draw(5, 5)
    root.requires_grad_()
    spread = project(features, mean, root)[2]
    torch.testing.assert_close(spread, project(features, mean, root.tril())[2])
    assert not torch.autograd.grad(spread.sum(), root)[0].triu(1).any()


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("kind", ROOTS)
def test_values_and_gradients_are_those_of_autograd(kind, shape, draw):
    given = inputs(kind, shape, draw)
    ours, theirs = project(*given), textbook(*given)
    learned = [tensor for tensor in given if tensor is not None]
    pulls = [draw(*value.shape) for value in ours]
    for found, expected in zip(ours, theirs, strict=True):
        torch.testing.assert_close(found, expected)
    found, expected = (sum((p * v).sum() for p, v in zip(pulls, values, strict=True)) for values in (ours, theirs))
    for a, b in zip(torch.autograd.grad(found, learned), torch.autograd.grad(expected, learned), strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("kind", ROOTS)
@pytest.mark.parametrize("which", [0, 1, 2], ids=["mean", "explained", "spread"])
def test_each_result_alone(kind, which, draw):
    """The gradient of what was not used is zero."""
    given = inputs(kind, ((2,), 5, 3), draw)
    learned = [tensor for tensor in given if tensor is not None]
    pull = draw(2, 3)
    found = torch.autograd.grad((pull * project(*given)[which]).sum(), learned, allow_unused=True)
    value = (pull * textbook(*given)[which]).sum()
    expected = torch.autograd.grad(value, learned, allow_unused=True) if value.requires_grad else [None] * len(learned)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(*(torch.zeros(()).double() if t is None or not t.any() else t for t in (a, b)))


@pytest.mark.parametrize("kind", ROOTS[:2])
@pytest.mark.parametrize("needed", [0, 1, 2], ids=["features", "mean", "root"])
def test_each_gradient_alone(kind, needed, draw):
    given = tuple(tensor.detach() for tensor in inputs(kind, ((2,), 5, 3), draw))
    given[needed].requires_grad_()
    found = torch.autograd.grad(sum(value.sum() for value in project(*given)), given[needed])
    expected = torch.autograd.grad(sum(value.sum() for value in textbook(*given)), given[needed])
    torch.testing.assert_close(found, expected)


def test_equal_columns_and_equal_rows(draw):
    """Duplicate rows of the table and duplicate inducing points give equal numbers and equal gradients."""
    features, mean, root = draw(3, 4), draw(3), draw(3, 3).tril()
    features[:, 1], features[2] = features[:, 0], features[1]
    features.requires_grad_()
    for values in project(features, mean, root):
        torch.testing.assert_close(values[1], values[0])
        gradient = torch.autograd.grad(values.sum(), features, retain_graph=True)[0]
        torch.testing.assert_close(gradient[:, 1], gradient[:, 0])
    assert torch.autograd.gradcheck(lambda a: project(a, mean, root), features)


def test_spread_is_never_negative(draw):
    features = draw(6, 200).float()
    for root in (draw(6, 6).tril().float(), 1e-20 * draw(6).float()):
        assert (project(features, draw(6).float(), root)[2] >= 0).all()


def test_a_batch_of_another_shape_is_refused(draw):
    """Silently broadcast, two models with the same features would be given one."""
    with pytest.raises((ValueError, TypeError)):
        project(draw(1, 4, 3), draw(2, 4), None)
