"""Signed sums of squares against the dense formulas."""

from __future__ import annotations

import pytest
import torch

from candid.families.squares import SignedSquares, inverse_of, triangle_blocks


def lower(draw, *batch, size):
    return 0.1 * draw(*batch, size, size).tril() + torch.eye(size, dtype=torch.float64)


def dense(factor, covariance, cross):
    """kᵀL⁻ᵀ(I − S)L⁻¹k′ for all pairs of columns."""
    features = torch.linalg.solve(factor, cross)
    return features.mT @ (torch.eye(factor.shape[-1], dtype=torch.float64) - covariance) @ features


def root_of(kind, draw, *batch, size):
    """A root R as weights give it, and S = R Rᵀ; some of its eigenvalues are above one, and some below."""
    if kind == "none":
        return None, torch.zeros(size, size, dtype=torch.float64)
    if kind == "diagonal":
        root = 1 + 0.5 * draw(*batch, size)
        return root, torch.diag_embed(root.square())
    root = draw(*batch, size, size).tril() / size**0.5
    return root, root @ root.mT


@pytest.mark.parametrize("compact", [True, False])
@pytest.mark.parametrize("kind", ["none", "diagonal", "full"])
@pytest.mark.parametrize(("batch", "size", "n"), [((2,), 5, 3), ((3, 2), 4, 1), ((), 1, 2), ((1,), 300, 70)])
def test_what_q_explains(kind, compact, batch, size, n, draw):
    factor, (root, covariance) = lower(draw, *batch, size=size), root_of(kind, draw, *batch, size=size)
    cross = draw(*batch, size, n)
    squares = SignedSquares.explained(factor, root, compact)
    expected = dense(factor, covariance, cross)
    close = {"rtol": 1e-9, "atol": 1e-9 * float(expected.abs().max())}
    torch.testing.assert_close(squares.diagonal(cross), expected.diagonal(dim1=-2, dim2=-1), **close)
    torch.testing.assert_close(squares.matrix_of(cross), expected, **close)


@pytest.mark.parametrize("kind", ["none", "diagonal"])
def test_triangular_where_it_can_be(kind, draw):
    squares = SignedSquares.explained(lower(draw, size=6), root_of(kind, draw, size=6)[0])
    assert squares.triangular
    assert torch.equal(squares.matrix, squares.matrix.tril())


def test_a_posterior_that_is_the_prior_explains_nothing(draw):
    identity = torch.eye(4, dtype=torch.float64)
    squares = SignedSquares.explained(lower(draw, size=4), identity)
    assert squares.diagonal(draw(4, 3)).abs().max() < 1e-14


@pytest.mark.parametrize(("size", "n"), [(1, 1), (7, 100), (300, 10), (257, 64), (1001, 64)])
def test_blocks_leave_out_zeros_only(size, n, draw):
    matrix = draw(size, size).tril()
    covered = torch.zeros(size, size)
    for rows, columns in triangle_blocks(size, n):
        covered[rows, columns] += 1
    assert ((covered == 1) | (matrix == 0)).all()
    assert covered.max() == 1
    # Many columns: five eighths of the work.
    assert covered.mean() < (0.63 if size >= 256 and n >= 64 else 1.01)


def test_the_inverse_of_a_triangle(draw):
    matrix = lower(draw, 2, size=5)
    torch.testing.assert_close(inverse_of(matrix) @ matrix, torch.eye(5).double().expand(2, 5, 5))
