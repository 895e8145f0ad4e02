"""A kernel told in the units of the table is the standardised kernel, rescaled."""

from __future__ import annotations

import pytest
import torch

from candid.kernels import RBF, Kernel, Linear, Matern52, Periodic, RationalQuadratic, Scale, in_units

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


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_chains_in_front_of_the_outputs(kernel) -> None:
    built = kernel.build(3, batch_shape=(4, 2)).double()
    x_scale, y_scale = torch.tensor([0.5, 3.0, 20.0]).double(), torch.tensor([4.0, 0.1]).double()
    x = torch.randn(6, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) * x_scale
    expected = y_scale.square()[:, None, None] * built(x / x_scale)
    torch.testing.assert_close(in_units(built, x_scale, y_scale)(x), expected, rtol=1e-9, atol=1e-12)


def test_the_kernel_itself_stays_as_it_is() -> None:
    kernel = Scale(Matern52(lengthscale=0.5), 2.0).build(3)
    before = {name: tensor.clone() for name, tensor in kernel.state_dict().items()}
    kernel.in_units(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([5.0]))
    assert all(torch.equal(tensor, before[name]) for name, tensor in kernel.state_dict().items())


def test_a_new_kernel_has_to_say_how_it_scales() -> None:
    class White(Kernel):
        def forward(self, x1, x2=None):
            return torch.eye(x1.shape[-2])

        def diagonal(self, x):
            return torch.ones(x.shape[:-1])

    with pytest.raises(TypeError, match="in_units"):
        White()


def test_a_kernel_without_a_lengthscale_yet_is_refused() -> None:
    with pytest.raises(ValueError, match="build"):
        in_units(Matern52(), torch.ones(2), torch.ones(1))
