"""Signed sums of squares against the dense formulas."""

from __future__ import annotations

import pytest
import torch

from candid.families.squares import SignedSquares, inverse_of, staircase_blocks


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


@pytest.mark.parametrize("kind", ["none", "diagonal", "full"])
def test_triangular_where_it_can_be(kind, draw):
    root = root_of(kind, draw, size=6)[0]
    squares = SignedSquares.explained(lower(draw, size=6), root if kind != "full" else 0.1 * root)
    assert squares.offset == 0
    assert torch.equal(squares.matrix, squares.matrix.tril())


@pytest.mark.parametrize("n_negative", [[0, 0], [1, 3], [7, 0], [4, 3]])
def test_rows_are_as_short_as_their_signs_allow(n_negative, draw):
    matrix, signs, cross = draw(2, 7, 7), torch.ones(2, 7, dtype=torch.float64), draw(2, 7, 5)
    for entry, count in enumerate(n_negative):
        signs[entry, torch.randperm(7)[:count]] = -1
    squares = SignedSquares.shortened(matrix, signs)
    expected = SignedSquares(matrix, signs, offset=6)
    torch.testing.assert_close(squares.matrix_of(cross), expected.matrix_of(cross), rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(squares.diagonal(cross), expected.diagonal(cross), rtol=1e-11, atol=1e-11)
    # Rows of the rarer sign are those that do not fit into the triangle.
    assert squares.offset == max(min(count, 7 - count) for count in n_negative)
    assert torch.equal(squares.matrix, squares.matrix.tril(squares.offset))


@pytest.mark.parametrize("offset", [0, 3, 290, 299])
@pytest.mark.parametrize("n", [1, 20, 64, 65, 200])
def test_few_columns_and_many(offset, n, draw):
    """However the product is cut, it is the product."""
    matrix, signs, cross = draw(2, 300, 300).tril(offset), draw(2, 300).sign(), draw(2, 300, n)
    squares, features = SignedSquares(matrix, signs, offset), matrix @ cross
    expected = features.mT @ (signs.unsqueeze(-1) * features)
    close = {"rtol": 1e-11, "atol": 1e-9}
    torch.testing.assert_close(squares.matrix_of(cross), expected, **close)
    torch.testing.assert_close(squares.diagonal(cross), expected.diagonal(dim1=-2, dim2=-1), **close)


def test_a_posterior_that_is_the_prior_explains_nothing(draw):
    identity = torch.eye(4, dtype=torch.float64)
    squares = SignedSquares.explained(lower(draw, size=4), identity)
    assert squares.diagonal(draw(4, 3)).abs().max() < 1e-14


@pytest.mark.parametrize("offset", [0, 5, 2000])
@pytest.mark.parametrize(("size", "n"), [(1, 1), (7, 100), (300, 10), (257, 64), (1001, 1), (1001, 64)])
def test_blocks_leave_out_zeros_only(size, n, offset, draw):
    offset = min(offset, size - 1)
    matrix = torch.ones(size, size).tril(offset)
    covered = torch.zeros(size, size)
    for rows, columns in staircase_blocks(size, size, n, offset):
        covered[rows, columns] += 1
    assert ((covered == 1) | (matrix == 0)).all()
    assert covered.max() == 1
    # A large triangle: three quarters of the work, or five eighths.
    if offset < 10 and size == 1001:
        assert covered.mean() < (0.64 if n == 64 else 0.76)


def test_the_inverse_of_a_triangle(draw):
    matrix = lower(draw, 2, size=5)
    torch.testing.assert_close(inverse_of(matrix) @ matrix, torch.eye(5).double().expand(2, 5, 5))
