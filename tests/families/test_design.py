"""Local designs against brute force: every choice is the one that leaves the least variance."""

from __future__ import annotations

import pytest
import torch

from candid.families.design import greedy_design
from candid.kernels import make_kernel

N = 50


def dense_variance(kernel, target, places, noise) -> float:
    """Posterior variance at the target, by a dense solve."""
    covariance = kernel(places)[0] + noise.diag()
    cross = kernel(places, target)[0]
    return float((kernel(target)[0] - cross.mT @ torch.linalg.solve(covariance, cross)).squeeze())


@pytest.mark.parametrize("name", ["matern52", "rbf", "matern12 + linear"])
@pytest.mark.parametrize("n_features", [1, 3])
def test_every_row_is_the_one_that_reduces_the_variance_the_most(name, n_features):
    generator = torch.Generator().manual_seed(n_features)
    x = torch.randn(N, n_features, dtype=torch.float64, generator=generator)
    target = torch.randn(1, n_features, dtype=torch.float64, generator=generator)
    noise = 0.02 + 0.1 * torch.rand(N, dtype=torch.float64, generator=generator)
    x = x[(x - target).norm(dim=-1).argsort()]
    kernel = make_kernel(name, n_features, batch_shape=(1,)).double().unit
    with torch.no_grad():
        chosen = greedy_design(kernel, target[None, None], x[None, None], noise[None, None], 15, 3)[0, 0].tolist()
        assert chosen[:3] == [0, 1, 2]
        assert len(set(chosen)) == 15
        for step in range(3, 15):
            left = {
                row: dense_variance(kernel, target, x[[*chosen[:step], row]], noise[[*chosen[:step], row]])
                for row in range(N)
                if row not in chosen[:step]
            }
            assert left[chosen[step]] == pytest.approx(min(left.values()), rel=1e-9)
            # There is something to choose.
            assert max(left.values()) > left[chosen[step]]


def test_targets_and_outputs_do_not_disturb_each_other():
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(4, 2, 30, 2, dtype=torch.float64, generator=generator)
    target = torch.randn(4, 2, 1, 2, dtype=torch.float64, generator=generator)
    noise = torch.rand(4, 2, 30, dtype=torch.float64, generator=generator) + 0.01
    kernel = make_kernel("matern32", 2, batch_shape=(2,)).double().unit
    kernel.lengthscale.set(torch.tensor([[[0.5, 1.0]], [[2.0, 0.7]]]))
    together = greedy_design(kernel, target, x, noise, 10, 2)
    for row in range(4):
        alone = greedy_design(kernel, target[row : row + 1], x[row : row + 1], noise[row : row + 1], 10, 2)
        assert torch.equal(alone[0], together[row])


def test_twins_of_a_chosen_row_can_be_chosen():
    x = torch.tensor([[0.0], [0.0], [0.0], [3.0]]).double()[None, None]
    kernel = make_kernel("rbf", 1, batch_shape=(1,)).double().unit
    noise = torch.full((1, 1, 4), 1e-12).double()
    chosen = greedy_design(kernel, torch.zeros(1, 1, 1, 1).double(), x, noise, 4, 1)
    assert sorted(chosen.flatten().tolist()) == [0, 1, 2, 3]
