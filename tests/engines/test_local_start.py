"""Typical values of small groups of rows, for models that are not trained."""

from __future__ import annotations

import pytest
import torch

from candid.engines import Rows, fit_locally
from candid.families import make_mean
from candid.kernels import Matern52, make_kernel
from candid.likelihoods import Gaussian

LENGTH, NOISE = 0.6, 0.01


@pytest.fixture(scope="module")
def rows() -> Rows:
    """A draw of a GP on the plane."""
    generator = torch.Generator().manual_seed(0)
    x = 4 * torch.rand(900, 2, dtype=torch.float64, generator=generator)
    kernel = Matern52(lengthscale=LENGTH).build(2).double()
    covariance = kernel(x).detach() + NOISE * torch.eye(900).double()
    y = torch.linalg.cholesky(covariance) @ torch.randn(900, 1, dtype=torch.float64, generator=generator)
    return Rows(x, y, torch.ones(900).double())


def started(rows: Rows, n_outputs: int = 1):
    parts = (
        make_kernel("matern52", 2, batch_shape=(n_outputs,)),
        make_mean("zero", 2, n_outputs),
        Gaussian(0.1, n_outputs),
    )
    return [part.to(rows.x) for part in parts]


def test_values_are_near_those_of_the_draw(rows):
    kernel, mean, likelihood = started(rows)
    fit_locally(kernel, mean, likelihood, rows, seed=0)
    lengths = kernel.base.lengthscale.value.detach().flatten()
    assert lengths.unique().numel() == 1
    assert float(lengths[0]) == pytest.approx(LENGTH, rel=0.6)
    assert likelihood.noise.value.item() == pytest.approx(NOISE, rel=0.4)


def test_each_output_has_its_own_and_the_seed_decides(rows):
    both = Rows(rows.x.float(), torch.cat([rows.y, 5 * rows.y], -1).float(), rows.weight.float())
    first, second = started(both, n_outputs=2), started(both, n_outputs=2)
    for kernel, mean, likelihood in (first, second):
        fit_locally(kernel, mean, likelihood, both, seed=3)
    assert torch.equal(first[0].amplitude.value, second[0].amplitude.value)
    torch.testing.assert_close(first[0].amplitude.value[1], 25 * first[0].amplitude.value[0], rtol=1e-3, atol=0)
    torch.testing.assert_close(first[2].noise.value[0, 1], 25 * first[2].noise.value[0, 0], rtol=0.05, atol=0)
    assert first[0].amplitude.value.dtype == torch.float32


def test_what_is_fixed_or_bounded_stays_so(rows):
    kernel, mean, likelihood = started(rows)
    kernel.base.lengthscale.fix()
    likelihood.noise.restrict(0.05, 0.2)
    before = kernel.base.lengthscale.value.clone()
    fit_locally(kernel, mean, likelihood, rows, seed=0)
    assert torch.equal(kernel.base.lengthscale.value, before)
    assert 0.05 < likelihood.noise.value.item() < 0.06
