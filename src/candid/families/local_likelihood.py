"""Lengthscales and amplitudes of small groups of rows, each by its own likelihood.

For residuals r = y − mu of k rows, K = k(X/θ, X/θ) of unit amplitude and C = K + G with a diagonal G (noise relative to
the amplitude s), the log-density of a group is, up to a constant,

    −½(rᵀC⁻¹r/s + log det C + k log s)

If G does not depend on s, the best amplitude is s = rᵀC⁻¹r/k. The maximum is searched for on a coarse grid, and then
among the neighbours of the best point so far, in steps that become shorter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from candid.kernels import Kernel, Product, Scale, Stationary, Sum
from candid.linalg import cholesky

__all__ = ["Values", "best_local_values", "improved_local_values", "profiled_values", "scalable"]

# Lengthscales of a group, relative to those of the kernel; amplitudes, relative to that of the kernel; and shares of
# noise in it, where the amplitude follows from them. All of them are multiplied from one value to the next.
SCALES = tuple(2.0**power for power in range(-4, 3))
AMPLITUDES = tuple(4.0**power for power in range(-3, 3))
NUGGETS = tuple(10.0**power for power in range(-4, 2))
# Steps of the search around the best point, relative to those of the grid.
FINE_STEPS, STEPS = (0.5, 0.25), (1.0, 0.5, 0.25, 0.125)

#: θ and the other value of each group and output.
Values = tuple[Float[Tensor, "t p"], Float[Tensor, "t p"]]


def scalable(kernel: Kernel) -> bool:
    """Whether longer inputs are the same as shorter lengthscales: all parts of the kernel are stationary."""
    if isinstance(kernel, (Sum, Product, Scale)):
        return all(map(scalable, kernel._own_parts()))
    return isinstance(kernel, Stationary)


@dataclass(frozen=True)
class Groups:
    """Rows of each of T groups and P outputs, whose likelihood is a function of θ and one more value.

    ``nugget`` gives G for that value, and ``density`` the log-density of (rᵀC⁻¹r, log det C, value).
    """

    unit: Kernel
    x: Float[Tensor, "t p k d"]
    residual: Float[Tensor, "t p k"]
    nugget: Callable[[Tensor], Tensor]
    density: Callable[[Tensor, Tensor, Tensor], Tensor]

    def best(self, thetas: Sequence[Tensor], values: Sequence[Tensor]) -> Values:
        """Of all pairs the one with the highest density, for each group."""
        shape = self.residual.shape[:-1]
        best = self.residual.new_full(shape, -torch.inf)
        best_theta, best_value = (options[0].expand(shape) for options in (thetas, values))
        for theta in thetas:
            gram = self.unit(self.x / theta.expand(shape)[..., None, None])
            for value in values:
                value = value.expand(shape)
                density = self.density(*self._terms(gram, value), value)
                better = density > best
                best_theta, best_value = torch.where(better, theta, best_theta), torch.where(better, value, best_value)
                best = torch.maximum(best, density)
        return best_theta, best_value

    def improved(self, pair: Values, factors: tuple[float, float], steps: Sequence[float]) -> Values:
        """From one pair to better ones nearby."""
        for step in steps:
            thetas, values = (
                [value * factor ** (sign * step) for sign in (0, -1, 1)]
                for value, factor in zip(pair, factors, strict=True)
            )
            pair = self.best(thetas if scalable(self.unit) else thetas[:1], values)
        return pair

    def _terms(self, gram: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """rᵀC⁻¹r and log det C."""
        lower = cholesky(gram + torch.diag_embed(self.nugget(value.unsqueeze(-1)))).lower
        rest = torch.linalg.solve_triangular(lower, self.residual.unsqueeze(-1), upper=False)
        return rest.square().sum((-2, -1)), 2 * lower.diagonal(dim1=-2, dim2=-1).log().sum(-1)


@torch.no_grad()
def best_local_values(
    unit: Kernel,
    x: Float[Tensor, "t p k d"],
    residual: Float[Tensor, "t p k"],
    noise: Float[Tensor, "t p k"],
    amplitude: Float[Tensor, " p"],
) -> Values:
    """θ and s of each group, given the noise variances of its rows; ``amplitude`` is where s is searched around."""
    groups = _with_known_noise(unit, x, residual, noise)
    start = groups.best(_scales(unit, x), [factor * amplitude for factor in AMPLITUDES])
    return groups.improved(start, (2.0, 4.0), FINE_STEPS)


@torch.no_grad()
def improved_local_values(
    unit: Kernel,
    x: Float[Tensor, "t p k d"],
    residual: Float[Tensor, "t p k"],
    noise: Float[Tensor, "t p k"],
    start: Values,
) -> Values:
    """The same, searched for around values that are known to be near."""
    return _with_known_noise(unit, x, residual, noise).improved(start, (2.0, 4.0), STEPS)


@torch.no_grad()
def profiled_values(
    unit: Kernel, x: Float[Tensor, "t p k d"], residual: Float[Tensor, "t p k"], share: Float[Tensor, "t p k"]
) -> tuple[Float[Tensor, "t p"], Float[Tensor, "t p"], Float[Tensor, "t p"]]:
    """θ, s and the noise variance of each group; ``share`` tells how much of the noise each of its rows has."""
    n_rows, least = x.shape[-2], torch.finfo(x.dtype).tiny

    def amplitude(quadratic: Tensor) -> Tensor:
        return (quadratic / n_rows).clamp_min(least)

    def density(quadratic: Tensor, log_det: Tensor, nugget: Tensor) -> Tensor:
        return -0.5 * (n_rows * amplitude(quadratic).log() + log_det)

    groups = Groups(unit, x, residual, lambda nugget: nugget * share, density)
    theta, nugget = groups.improved(groups.best(_scales(unit, x), _tensors(NUGGETS, x)), (2.0, 10.0), FINE_STEPS)
    quadratic, _ = groups._terms(unit(x / theta[..., None, None]), nugget)
    return theta, amplitude(quadratic), nugget * amplitude(quadratic)


def _with_known_noise(unit: Kernel, x: Tensor, residual: Tensor, noise: Tensor) -> Groups:
    def density(quadratic: Tensor, log_det: Tensor, s: Tensor) -> Tensor:
        return -0.5 * (quadratic / s + log_det + x.shape[-2] * s.log())

    return Groups(unit, x, residual, lambda s: noise / s, density)


def _scales(unit: Kernel, like: Tensor) -> list[Tensor]:
    return _tensors(SCALES if scalable(unit) else (1.0,), like)


def _tensors(values: Sequence[float], like: Tensor) -> list[Tensor]:
    return [like.new_tensor(value) for value in values]
