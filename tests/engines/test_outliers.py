"""Outliers among the targets, found by what their neighbours say."""

from __future__ import annotations

import copy

import pytest
import torch

from candid.engines import Rows, find_outliers
from candid.families import make_mean
from candid.kernels import make_kernel
from candid.likelihoods import StudentT

N_ROWS = 60
NOISE = torch.tensor([[0.01]], dtype=torch.float64)


@pytest.fixture
def model():
    return make_kernel("rbf", 1, batch_shape=(1,)).double(), make_mean("zero", 1, 1).double()


def rows_of(y) -> Rows:
    n = len(y)
    return Rows(torch.linspace(-3, 3, n).double().unsqueeze(-1), y, torch.ones(n).double())


def wave(n=N_ROWS):
    """A sine with noise of deviation 0.1."""
    x = torch.linspace(-3, 3, n).double().unsqueeze(-1)
    return torch.sin(2 * x) + 0.1 * torch.randn(n, 1, generator=torch.Generator().manual_seed(0)).double()


def found_in(model, y, noise=NOISE):
    return find_outliers(*model, noise, rows_of(y), StudentT().surrogate(y).targets)


def test_gross_outliers_are_all_that_is_found(model):
    y, outlying = wave(), torch.tensor([5, 6, 20, 41, 59])
    y[outlying] += torch.tensor([[30.0], [30.0], [-8.0], [6.0], [-500.0]])
    found = found_in(model, y)
    assert found.where.squeeze(-1).nonzero().squeeze(-1).tolist() == outlying.tolist()
    rest = ~found.where
    torch.testing.assert_close(found.targets[rest], y[rest], rtol=0, atol=0)
    torch.testing.assert_close(found.targets[outlying], wave()[outlying], rtol=0, atol=0.8)


def test_with_too_much_noise_too(model):
    """As it is while outliers still count: the scores of all others are then small."""
    y = wave()
    y[::12] += 10
    assert torch.equal(found_in(model, y, 25 * torch.ones_like(NOISE)).where, y > 5)


def test_what_is_said_is_said_by_the_other_rows_without_outliers(model):
    y = wave(20)
    y[7] += 50
    found, rows = found_in(model, y), rows_of(y)
    gram = model[0](rows.x, rows.x).squeeze(0).detach()
    for row in (6, 7):
        others = [other for other in range(20) if other != row]
        cross = gram[row, others]
        solved = torch.linalg.solve(gram[others][:, others] + NOISE * torch.eye(19), cross)
        # In the last round, the others show what the one before has made of them.
        torch.testing.assert_close(found.mean[row, 0], solved @ found.targets[others, 0], rtol=0, atol=1e-3)
        torch.testing.assert_close(found.variance[row, 0], gram[row, row] - solved @ cross, rtol=1e-6, atol=1e-9)


def test_a_target_among_the_others_is_no_outlier(model):
    """Though its score is ten times larger than usual: the noise may not be the same everywhere."""
    y = wave()
    y[20] += 1.3
    found = found_in(model, y)
    assert not found.where.any()
    assert float((y - found.mean)[20]) > 8 * (found.variance[20] + NOISE).sqrt()


def test_without_outliers_targets_stay(model):
    """Those that a surrogate has moved are moved back."""
    y = torch.exp(2 * wave())
    assert (StudentT().surrogate(y).targets < y).any()
    torch.testing.assert_close(found_in(model, y).targets, y, rtol=0, atol=0)


@pytest.mark.parametrize("n", [1, 2, 30])
def test_equal_targets_have_none(model, n):
    """Whatever the others are: nothing tells how far apart targets usually are."""
    y = torch.ones(n, 1).double()
    y[:1] += 50 * (n > 2)
    assert not found_in(model, y).where.any()


def test_outputs_have_their_own():
    y = wave().repeat(1, 2)
    y[3, 0], y[9, 1] = 20.0, 40.0
    two = make_kernel("rbf", 1, batch_shape=(2,)).double(), make_mean("zero", 1, 2).double()
    found = find_outliers(*two, NOISE.expand(1, 2), rows_of(y), StudentT(n_outputs=2).surrogate(y).targets)
    assert found.where.nonzero().tolist() == [[3, 0], [9, 1]]


def test_parts_stay_as_they_are(model):
    kernel, mean = (copy.deepcopy(part).float() for part in model)
    before = copy.deepcopy(kernel.state_dict())
    y = wave().float()
    found = find_outliers(kernel, mean, NOISE.float(), rows_of(y.double()).to(torch.float32), y)
    assert found.targets.dtype == found.mean.dtype == found.variance.dtype == torch.float32
    torch.testing.assert_close(dict(kernel.state_dict()), dict(before), rtol=0, atol=0)
