from __future__ import annotations

from importlib import import_module

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from candid.linalg import NotPositiveDefinite, cholesky

# The package has a function of the same name.
cholesky_room = import_module("candid.linalg.cholesky")


def with_eigenvalues(*eigenvalues: float) -> torch.Tensor:
    """A matrix with these eigenvalues and no structure."""
    generator = torch.Generator().manual_seed(1)
    n = len(eigenvalues)
    rotation, _ = torch.linalg.qr(torch.randn(n, n, dtype=torch.float64, generator=generator))
    matrix = rotation @ torch.diag(torch.tensor(eigenvalues, dtype=torch.float64)) @ rotation.T
    return 0.5 * (matrix + matrix.T)


@pytest.fixture
def factorised_dtypes(monkeypatch):
    """The dtypes in which matrices are factorised, in order."""
    seen = []
    original = torch.linalg.cholesky_ex

    def spy(matrix, *args, **kwargs):
        seen.append(matrix.dtype)
        return original(matrix, *args, **kwargs)

    monkeypatch.setattr(torch.linalg, "cholesky_ex", spy)
    return seen


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("batch", [(), (3,), (2, 1)])
@pytest.mark.parametrize("n", [1, 5])
def test_a_good_matrix_gets_no_jitter(dtype, batch, n, draw):
    root = draw(*batch, n, n).to(dtype)
    matrix = root @ root.mT + torch.eye(n, dtype=dtype)
    factor = cholesky(matrix)
    torch.testing.assert_close(factor.lower, torch.linalg.cholesky(matrix), rtol=0, atol=0)
    assert factor.jitter.shape == batch
    assert (factor.jitter == 0).all()


def test_jitter_is_a_share_of_the_mean_of_the_diagonal():
    matrix = torch.diag(torch.tensor([1.0, 2.0, 6.0]).double())
    factor = cholesky(matrix, jitter=0.1)
    torch.testing.assert_close(factor.lower @ factor.lower.T, matrix + 0.3 * torch.eye(3).double())
    assert factor.jitter == 0.1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_only_the_singular_matrix_of_a_batch_gets_jitter(dtype):
    good, singular = with_eigenvalues(1.0, 2.0, 3.0).to(dtype), torch.ones(3, 3, dtype=dtype)
    factor = cholesky(torch.stack([good, singular, good]))
    assert factor.jitter[0] == factor.jitter[2] == 0
    assert 0 < factor.jitter[1] < 1e-3
    for position in (0, 2):
        torch.testing.assert_close(factor.lower[position], torch.linalg.cholesky(good), rtol=0, atol=0)
    repaired = singular + factor.jitter[1] * torch.eye(3, dtype=dtype)
    torch.testing.assert_close(factor.lower[1] @ factor.lower[1].T, repaired)


def test_a_matrix_starts_from_its_own_jitter():
    singular = torch.ones(2, 2, dtype=torch.float64)
    start = torch.tensor([1e-3, 0.0], dtype=torch.float64)
    factor = cholesky(torch.stack([singular, singular]), start)
    assert factor.jitter[0] == start[0]
    assert 0 < factor.jitter[1] < 1e-10


def test_jitter_grows_tenfold_until_it_suffices():
    """The smallest eigenvalue is −2e-7 of the mean of the diagonal, so 1e-7 is too little and 1e-6 is enough."""
    matrix = with_eigenvalues(-2e-7, 1.0, 2.0)
    assert cholesky(matrix, jitter=1e-8).jitter == pytest.approx(1e-6)


def test_a_stubborn_single_precision_matrix_is_factorised_in_double(factorised_dtypes):
    matrix = with_eigenvalues(-4e-3, 1.0, 2.0).float()
    factor = cholesky(matrix)
    assert factorised_dtypes[0] == torch.float32
    assert factorised_dtypes[-1] == torch.float64
    assert factor.lower.dtype == factor.jitter.dtype == torch.float32
    repaired = matrix + factor.jitter * matrix.diagonal().mean() * torch.eye(3)
    torch.testing.assert_close(factor.lower @ factor.lower.T, repaired)


def test_a_mildly_singular_matrix_stays_in_single_precision(factorised_dtypes):
    cholesky(torch.ones(3, 3))
    assert set(factorised_dtypes) == {torch.float32}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_an_indefinite_matrix_is_refused(dtype):
    with pytest.raises(NotPositiveDefinite, match="3×3 covariance"):
        cholesky(with_eigenvalues(-1.0, 1.0, 2.0).to(dtype))


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_numbers_that_are_none_are_refused_at_once(bad, factorised_dtypes):
    matrix = torch.eye(3).repeat(2, 1, 1)
    matrix[1, 0, 2] = bad
    with pytest.raises(NotPositiveDefinite, match="NaN or infinity"):
        cholesky(matrix)
    assert not factorised_dtypes


def test_duplicate_points_do_not_crash():
    x = torch.randn(10, 2, generator=torch.Generator().manual_seed(0))
    x = torch.cat([x, x])
    gram = torch.exp(-0.5 * torch.cdist(x, x).square())
    factor = cholesky(gram)
    assert 0 < factor.jitter < 1e-3
    torch.testing.assert_close(factor.lower @ factor.lower.T, gram, rtol=0, atol=2e-3)


def test_the_matrix_is_left_alone_and_no_gradient_flows():
    matrix = torch.ones(2, 2, dtype=torch.float64, requires_grad=True)
    factor = cholesky(matrix, jitter=1e-6)
    assert not factor.lower.requires_grad
    assert (matrix == 1).all()


@settings(max_examples=60)
@given(
    n=st.integers(1, 6),
    rank=st.integers(1, 6),
    exponent=st.integers(-6, 6),
    single=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_every_covariance_has_a_factor(n, rank, exponent, single, seed):
    """Of any scale, full or low rank; what was added is what ``jitter`` says, and does not depend on the scale."""
    dtype = torch.float32 if single else torch.float64
    root = torch.randn(n, rank, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    matrix = (root @ root.T).to(dtype)
    scale = 4.0**exponent  # whose square root is exact, so that rounding is the same
    factor, scaled = cholesky(matrix), cholesky(scale * matrix)
    assert (factor.lower.triu(1) == 0).all()
    repaired = matrix + factor.jitter * matrix.diagonal().mean() * torch.eye(n, dtype=dtype)
    rounding = 20 * torch.finfo(dtype).eps * matrix.diagonal().sum().item()
    torch.testing.assert_close(factor.lower @ factor.lower.T, repaired, rtol=0, atol=rounding)
    assert factor.jitter <= 1e-3
    assert scaled.jitter == factor.jitter


@pytest.mark.parametrize("size", [4, 7, 8])
@pytest.mark.parametrize("batch", [(), (3,), (2, 3)], ids=str)
def test_sizes_that_crowd_the_cache(size, batch, draw, monkeypatch):
    """Factors of more rows, of which the first ones are the same as ever, also where some of a batch have none."""
    root = draw(*batch, size, size)
    good = root @ root.mT + torch.eye(size)
    mixed = good.clone()
    mixed.view(-1, size, size)[-1] -= 100 * torch.eye(size)
    expected = torch.linalg.cholesky(good)
    monkeypatch.setattr(cholesky_room, "CROWDED", 4)
    lower, info = cholesky_room._factorise(good)
    torch.testing.assert_close(lower, expected)
    assert lower.shape == good.shape
    assert lower.stride() == expected.stride()
    assert not info.any()
    _, info = cholesky_room._factorise(mixed)
    assert info.flatten().bool().tolist() == [False] * (info.numel() - 1) + [True]
    torch.testing.assert_close(cholesky(good).lower, expected)
