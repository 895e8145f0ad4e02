from __future__ import annotations

import pytest
import torch

from candid.linalg import triangular
from candid.linalg.crew import crew
from candid.linalg.triangular import (
    add_lower_times,
    add_product_below_diagonal,
    congruence,
    half_congruence_with,
    inverse_of,
    loose_lower_times,
    lower_half_of_product,
    lower_times,
    mirror_below_diagonal,
    product_below_diagonal,
    solve_lower,
    solve_lower_transposed,
    transposed_lower_times,
)

# Batch, size of L, columns. Blocks have three rows or more here; systems and inverses of more than four have halves.
SHAPES = {
    "one number": ((), 1, 1),
    "one column": ((), 5, 1),
    "one block": ((), 3, 4),
    "a block and one row": ((), 4, 7),
    "many blocks": ((), 20, 6),
    "batch": ((2,), 13, 5),
    "two batch dimensions": ((3, 2), 8, 4),
    "batch of one": ((1,), 10, 3),
}


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(triangular, "LEAST_ROWS", 3)
    monkeypatch.setattr(triangular, "LARGEST_SYSTEM", 4)
    monkeypatch.setattr(triangular, "LARGEST_INVERSE", 4)


@pytest.fixture(params=SHAPES.values(), ids=SHAPES)
def matrices(request, draw):
    """L with a diagonal away from zero, X and Y."""
    batch, m, n = request.param
    lower = 0.3 * draw(*batch, m, m).tril() + torch.eye(m).double()
    return lower, draw(*batch, m, n), draw(*batch, m, n)


def test_products(matrices):
    lower, x, y = matrices
    torch.testing.assert_close(lower_times(lower, x), lower @ x)
    torch.testing.assert_close(transposed_lower_times(lower, x), lower.mT @ x)
    torch.testing.assert_close(lower_half_of_product(x, y), (x @ y.mT).tril())
    torch.testing.assert_close(product_below_diagonal(x, y).tril(), (x @ y.mT).tril())


@pytest.mark.parametrize("size", [None, 2], ids=["no crew", "crew of two"])
def test_anything_may_be_above_the_diagonal(matrices, size):
    lower, x, _ = matrices
    loose = lower + torch.full_like(lower, torch.nan).triu(1)
    with crew(size):
        torch.testing.assert_close(loose_lower_times(loose, x), lower @ x)
        torch.testing.assert_close(loose_lower_times(loose, x, transposed=True), lower.mT @ x)


def test_products_that_are_needed_below_the_diagonal_only(matrices, draw):
    lower, *_ = matrices
    square = draw(*lower.shape)
    torch.testing.assert_close(lower_times(lower, square, lower_half=True).tril(), (lower @ square).tril())
    torch.testing.assert_close(lower_times(lower, lower, lower_half=True), lower @ lower)


def test_products_that_are_added(draw):
    lower, x, before = draw(2, 11, 11).tril(), draw(2, 11, 5), draw(2, 11, 5)
    total = before.clone()
    add_lower_times(total, lower, x, alpha=-2.0, beta=3.0)
    torch.testing.assert_close(total, 3 * before - 2 * lower @ x)
    before, square = draw(2, 11, 11), draw(2, 11, 11)
    total = before.clone()
    add_lower_times(total, lower, square, alpha=1.0, lower_half=True)
    torch.testing.assert_close(total.tril(), (before + lower @ square).tril())


@pytest.mark.parametrize("more_rows", [0, 1, 5])
def test_sums_of_symmetric_products_are_completed(draw, more_rows):
    x, more = draw(8, 5), draw(more_rows, 5)
    total = torch.zeros(1, 8 + more_rows, 8, dtype=torch.float64)
    for part in (slice(0, 2), slice(2, 5)):
        add_product_below_diagonal(total[0], torch.cat([x, more])[:, part], x[:, part])
    mirror_below_diagonal(total)
    torch.testing.assert_close(total[0], torch.cat([x, more]) @ x.mT)


def test_products_with_more_rows(draw):
    x, y = draw(11, 5), draw(8, 5)
    total = torch.ones(11, 8, dtype=torch.float64)
    add_product_below_diagonal(total, x, y)
    torch.testing.assert_close(total.tril(), (1 + x @ y.mT).tril())


def test_solves(matrices):
    lower, x, _ = matrices
    inverse = torch.linalg.inv(lower)
    torch.testing.assert_close(inverse_of(lower), inverse)
    torch.testing.assert_close(solve_lower(lower, x), inverse @ x)
    torch.testing.assert_close(solve_lower_transposed(lower, x), inverse.mT @ x)
    # Solutions are stored by rows, as the products that follow want them.
    assert solve_lower(lower, x).is_contiguous()


def test_congruence(matrices, draw):
    """Also of a matrix with something else in its upper triangle, which does not count."""
    lower, *_ = matrices
    root = draw(*lower.shape)
    symmetric, inverse = root + root.mT, torch.linalg.inv(lower)
    given = symmetric.tril() + draw(*lower.shape).triu(1)
    expected, found = inverse.mT @ symmetric @ inverse, congruence(lower, given)
    torch.testing.assert_close(found, expected)
    assert torch.equal(found, found.mT)
    half = half_congruence_with(inverse_of(lower), given)
    torch.testing.assert_close(half + half.mT, expected)


def test_matrices_that_are_stored_by_columns(draw):
    lower, x = torch.eye(7).double() + draw(7, 7).tril(-1), draw(5, 7).mT
    by_columns = lower.mT.contiguous().mT
    torch.testing.assert_close(lower_times(by_columns, x), lower @ x)
    torch.testing.assert_close(transposed_lower_times(by_columns, x), lower.mT @ x)
    torch.testing.assert_close(lower_half_of_product(x, x), (x @ x.mT).tril())
    torch.testing.assert_close(solve_lower(by_columns, x), torch.linalg.inv(lower) @ x)


def test_congruence_is_as_accurate_as_two_solves_in_float32(monkeypatch):
    """With the factor of an RBF Gram matrix whose condition number is 10⁶."""
    monkeypatch.setattr(triangular, "LARGEST_SYSTEM", 16)
    monkeypatch.setattr(triangular, "LARGEST_INVERSE", 16)
    points = torch.linspace(-2, 2, 120, dtype=torch.float64).unsqueeze(-1)
    gram = torch.exp(-0.5 * (points - points.mT).square()) + 1e-4 * torch.eye(120).double()
    lower = torch.linalg.cholesky(gram).float()
    features = torch.linalg.solve_triangular(lower.double(), gram[:, ::7], upper=False)
    symmetric = (features @ features.mT).float()
    exact = torch.linalg.solve_triangular(lower.double().mT, symmetric.double(), upper=True)
    exact = torch.linalg.solve_triangular(lower.double(), exact, upper=False, left=False)
    solved = torch.linalg.solve_triangular(lower.mT, symmetric, upper=True)
    solved = torch.linalg.solve_triangular(lower, solved, upper=False, left=False)
    half = half_congruence_with(inverse_of(lower), symmetric)
    ways = (solved, congruence(lower, symmetric), half + half.mT)
    plain_error, *errors = ((found.double() - exact).norm() for found in ways)
    assert max(errors) < 3 * plain_error


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("columns", [False, True], ids=["by rows", "by columns"])
def test_in_single_precision_by_onednn(shape, columns, draw, always_onednn, monkeypatch):
    """Which also solves systems, block by block."""
    monkeypatch.setattr(triangular, "LEAST_SYSTEM", 1)
    monkeypatch.setattr(triangular, "LARGEST_BLOCK", 3)
    batch, m, n = shape
    lower, x, y = 0.3 * draw(*batch, m, m).tril() / m**0.5 + torch.eye(m).double(), *draw(2, *batch, m, m + n)
    single, first, second = (part.mT.contiguous().mT.float() if columns else part.float() for part in (lower, x, y))
    inverse, symmetric = torch.linalg.inv(lower), x @ x.mT
    expected = {
        lower @ x: lower_times(single, first),
        lower.mT @ x: transposed_lower_times(single, first),
        inverse @ x: solve_lower(single, first),
        inverse.mT @ x: solve_lower_transposed(single, first),
        inverse: inverse_of(single),
        (x @ y.mT).tril(): lower_half_of_product(first, second),
        inverse.mT @ symmetric @ inverse: congruence(single, symmetric.float()),
    }
    for exact, found in expected.items():
        assert found.dtype == torch.float32
        torch.testing.assert_close(found.double(), exact, rtol=1e-4, atol=1e-4)
