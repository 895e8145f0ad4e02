"""Dense formulas for comparisons: nothing here uses our kernels or linear algebra."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from candid.engines import Problem

__all__ = ["assert_same_gradients", "dense_kernel", "noise_of"]


def dense_kernel(problem: Problem) -> Callable[[Tensor, Tensor], Tensor]:
    """Matérn 5/2 of the first output with the family's hyper-parameters, differentiable by autograd."""
    kernel = problem.family.kernel
    amplitude, lengthscale = kernel.amplitude.value[0], kernel.base.lengthscale.value[0]

    def covariance(x1: Tensor, x2: Tensor) -> Tensor:
        squares = ((x1 / lengthscale).unsqueeze(1) - (x2 / lengthscale).unsqueeze(0)).square().sum(-1)
        # The root has no gradient at zero, where the kernel's is zero.
        apart = squares > 0
        d = torch.where(apart, torch.where(apart, squares, 1.0).sqrt(), 0.0) * 5**0.5
        return amplitude * (1 + d + d.square() / 3) * torch.exp(-d)

    return covariance


def noise_of(problem: Problem) -> Tensor:
    return problem.likelihood.noise.value[0, 0]


def assert_same_gradients(problem: Problem, ours: Tensor, theirs: Tensor) -> None:
    """Of two losses with respect to everything that is learned."""
    learned = {name: parameter for name, parameter in problem.named_parameters() if parameter.requires_grad}
    pairs = zip(*(torch.autograd.grad(loss, list(learned.values())) for loss in (ours, theirs)), strict=True)
    for name, (found, expected) in zip(learned, pairs, strict=True):
        assert expected.abs().max() > 0, name
        torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-9, msg=lambda text, name=name: f"{name}: {text}")
