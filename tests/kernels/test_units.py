"""A kernel told in the units of the table is the standardised kernel, rescaled."""

from __future__ import annotations

import pytest
import torch

from candid.kernels import RBF, Linear, Matern52, Periodic, RationalQuadratic, Scale, in_units

KERNELS = [
    Scale(Matern52(lengthscale=[0.5, 1.5, 2.0]), 1.7),
    RBF(lengthscale=0.8),
    Scale(RationalQuadratic(lengthscale=1.2, alpha=0.7), 0.3) + Scale(Linear([0.2, 0.5, 1.0]), 2.0),
    Scale(Matern52(lengthscale=0.9) * Periodic(period=[1.0, 2.0, 3.0], lengthscale=0.7), 1.1),
]


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_equals_rescaled_standardised_kernel(kernel) -> None:
    torch.manual_seed(0)
    built = kernel.build(3, ard=False, batch_shape=(2,)).double()
    x_scale = torch.tensor([0.5, 3.0, 20.0], dtype=torch.float64)
    y_scale = torch.tensor([4.0, 0.1], dtype=torch.float64)
    x = torch.randn(6, 3, dtype=torch.float64) * x_scale
    expected = y_scale.square()[:, None, None] * built(x / x_scale)
    torch.testing.assert_close(in_units(built, x_scale, y_scale)(x), expected, rtol=1e-9, atol=1e-12)
