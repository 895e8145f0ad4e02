from __future__ import annotations

import torch

from candid.estimators.silent import wake_silent
from candid.kernels import make_kernel

NOISE = torch.ones(1, 3)


def kernel_with(amplitudes):
    kernel = make_kernel("rbf", 2, batch_shape=(3,))
    kernel.amplitude.set(torch.tensor(amplitudes))
    kernel.base.lengthscale.set(torch.tensor([[[1.0, 2.0]], [[4.0, 8.0]], [[1e-3, 1e3]]]))
    return kernel


def test_noise_takes_over_the_lengthscales_of_signals():
    kernel = kernel_with([5.0, 0.4, 1e-6])
    wake_silent(kernel, NOISE)
    torch.testing.assert_close(kernel.base.lengthscale.value[2], torch.tensor([[2.0, 4.0]]))
    torch.testing.assert_close(kernel.base.lengthscale.value[0], torch.tensor([[1.0, 2.0]]))
    torch.testing.assert_close(kernel.amplitude.value, torch.tensor([5.0, 0.4, 0.02]))


def test_what_is_fixed_stays():
    kernel = kernel_with([5.0, 0.4, 0.1])
    kernel.base.lengthscale.fix()
    wake_silent(kernel, NOISE)
    torch.testing.assert_close(kernel.base.lengthscale.value[2], torch.tensor([[1e-3, 1e3]]))
    torch.testing.assert_close(kernel.amplitude.value, torch.tensor([5.0, 0.4, 0.1]))


def test_where_all_is_noise_nothing_is_known():
    kernel = kernel_with([1e-6, 1e-6, 1e-6])
    wake_silent(kernel, NOISE)
    torch.testing.assert_close(kernel.base.lengthscale.value[2], torch.tensor([[1e-3, 1e3]]))
