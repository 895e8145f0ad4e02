"""Products by BLAS, against plain ones, for matrices that are stored in every way that occurs."""

from __future__ import annotations

import pytest
import torch

from candid.linalg import blas
from candid.linalg.blas import blas_takes, multiply_by_lower
from candid.linalg.crew import crew
from candid.linalg.triangular import add_lower_times, inverse_of, lower_times, transposed_lower_times

TOLERANCES = {torch.float32: {"rtol": 1e-4, "atol": 1e-4}, torch.float64: {"rtol": 1e-12, "atol": 1e-12}}


@pytest.fixture(params=[torch.float32, torch.float64], ids=["float32", "float64"])
def dtype(request):
    return request.param


@pytest.fixture(params=["by rows", "by columns", "part of another"])
def lower(request, draw, dtype):
    """L with a diagonal away from zero, 7×7."""
    matrix = (0.3 * draw(7, 7).tril() + torch.eye(7)).to(dtype)
    if request.param == "part of another":
        whole = torch.full((9, 12), 5.0, dtype=dtype)
        whole[1:8, 2:9] = matrix
        return whole[1:8, 2:9]
    return matrix if request.param == "by rows" else matrix.mT.contiguous().mT


@pytest.mark.parametrize("columns", [0, 1, 5])
@pytest.mark.parametrize("transposed", [False, True])
def test_products_in_place(lower, draw, columns, transposed):
    x = draw(7, columns + 2).to(lower.dtype)
    expected = (lower.mT if transposed else lower) @ x[:, :columns]
    rest = x[:, columns:].clone()
    multiply_by_lower(lower, x[:, :columns], transposed)
    torch.testing.assert_close(x[:, :columns], expected, **TOLERANCES[lower.dtype])
    torch.testing.assert_close(x[:, columns:], rest)


def test_what_is_above_the_diagonal_is_not_read(lower, draw):
    x = draw(7, 3).to(lower.dtype)
    expected = lower.clone() @ x
    lower += torch.ones_like(lower).triu(1)
    multiply_by_lower(lower, x)
    torch.testing.assert_close(x, expected, **TOLERANCES[lower.dtype])


def test_nan_stays_what_it_is(dtype):
    matrix = torch.eye(3, dtype=dtype)
    matrix[1, 1] = torch.nan
    with crew(1):
        assert inverse_of(matrix)[1, 1].isnan()
        assert lower_times(matrix, torch.ones(3, 2, dtype=dtype))[1].isnan().all()


@pytest.mark.parametrize("batch", [(), (1,), (5,), (2, 3)])
@pytest.mark.parametrize("size", [1, 2])
def test_a_crew_computes_what_torch_does(batch, size, draw, dtype):
    lower = (0.3 * draw(*batch, 7, 7).tril() + torch.eye(7)).to(dtype)
    x = draw(*batch, 7, 4).to(dtype)

    def all_of_them() -> list[torch.Tensor]:
        total = x.flatten(0, -3).clone() if batch else x[None].clone()
        flat = [values.reshape(len(total), 7, -1) for values in (lower, x)]
        add_lower_times(total, *flat, alpha=2.0, beta=-3.0)
        products = lower_times(lower, x), transposed_lower_times(lower, x)
        return [inverse_of(lower), *products, lower_times(lower, x.mT.contiguous().mT), total]

    expected = all_of_them()
    with crew(size):
        assert blas_takes(lower, x)
        found = all_of_them()
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, **TOLERANCES[dtype])


def test_spare_matrices_may_be_overwritten_and_others_are_not(draw):
    lower, x = draw(4, 4).tril(), draw(4, 3)
    before = x.clone()
    with crew(1):
        expected = lower_times(lower, x)
        torch.testing.assert_close(x, before)
        torch.testing.assert_close(lower_times(lower, x, spare=True), expected)
        torch.testing.assert_close(transposed_lower_times(lower, before.clone(), spare=True), lower.mT @ before)


def test_a_single_row_may_have_any_stride(draw):
    x = torch.as_strided(draw(1, 9), (1, 6), (2, 1))
    expected = 2 * x
    multiply_by_lower(torch.as_strided(torch.full((1,), 2.0).double(), (1, 1), (0, 1)), x)
    torch.testing.assert_close(x, expected)


def test_what_it_does_not_take(draw):
    lower, x = draw(4, 4).tril(), draw(4, 3)
    assert not blas_takes(lower, x)
    with crew(1):
        assert blas_takes(lower, x)
        assert not blas_takes(lower.half(), x)
        assert not blas_takes(lower.requires_grad_(), x)
        assert not blas_takes(draw(8, 8)[::2, ::2], x)


def test_large_products_are_for_wider_instructions(always_onednn, monkeypatch):
    lower, x = torch.randn(4, 4).tril(), torch.randn(4, 3)
    with crew(1):
        assert blas_takes(lower, x)
        monkeypatch.setattr(blas, "MOST_WORK", 40)
        assert not blas_takes(lower, x)
        assert blas_takes(lower.double(), x.double())
