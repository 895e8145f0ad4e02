"""KL divergence of a normal distribution from the standard one, with its gradient in closed form.

With S = R Rᵀ and a lower-triangular R, whose diagonal may have any sign,

    KL(N(m, S) ‖ N(0, I)) = ½(Σ R² + mᵀm − M − Σ log R_mm²),        ∂/∂m = m,        ∂/∂R = R − diag(1/R_mm).

Machine code goes over R once, where torch does so for each of a dozen operations.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from candid.linalg.autograd import first_order
from candid.linalg.stationary_conditional import machine_code_takes

__all__ = ["divergence_from_standard"]


def divergence_from_standard(
    mean: Float[Tensor, "*batch m"], root: Float[Tensor, "*batch m m"]
) -> Float[Tensor, "*batch"]:
    """KL(N(mean, R Rᵀ) ‖ N(0, I)) for each distribution of a batch; only the lower triangle of ``root`` is read."""
    return _Divergence.apply(mean, root)  # pyright: ignore[reportReturnType]


class _Divergence(torch.autograd.Function):
    @staticmethod
    def forward(ctx, mean: Tensor, root: Tensor) -> Tensor:
        ctx.by_machine = machine_code_takes(root.detach()) and mean.shape == root.shape[:-1]
        if ctx.by_machine:
            ctx.save_for_backward(mean, root)
            return _by_machine(mean.detach(), root.detach())
        # Faster than root.tril().
        lower = root.clone().tril_()
        ctx.save_for_backward(mean, lower)
        half_log_det = lower.diagonal(dim1=-2, dim2=-1).abs().log_().sum(-1)
        squares = lower.square().sum((-2, -1)) + mean.square().sum(-1)
        return 0.5 * (squares - mean.shape[-1]) - half_log_det

    @staticmethod
    @first_order
    def backward(ctx, grad: Tensor):  # pyright: ignore[reportIncompatibleMethodOverride]
        mean, lower = ctx.saved_tensors
        mean_bar = root_bar = None
        if ctx.needs_input_grad[1] and ctx.by_machine:
            root_bar = _gradient_by_machine(lower.detach(), grad)
        grad = grad.unsqueeze(-1)
        if ctx.needs_input_grad[0]:
            mean_bar = grad * mean
        if ctx.needs_input_grad[1] and not ctx.by_machine:
            # R − diag(1/R_mm)
            root_bar = grad.unsqueeze(-1) * lower
            root_bar.diagonal(dim1=-2, dim2=-1).sub_(grad / lower.diagonal(dim1=-2, dim2=-1))
        return mean_bar, root_bar


def _by_machine(mean: Tensor, root: Tensor) -> Tensor:
    from candid.linalg.divergence_kernels import divergences

    size, result = mean.shape[-1], mean.new_empty(mean.shape[:-1])
    divergences(mean.reshape(-1, size).numpy(), root.reshape(-1, size, size).numpy(), result.view(-1).numpy())
    return result


def _gradient_by_machine(root: Tensor, grad: Tensor) -> Tensor:
    from candid.linalg.divergence_kernels import divergence_gradients

    size, result = root.shape[-1], torch.empty_like(root, memory_format=torch.contiguous_format)
    flat = (values.reshape(-1, size, size).numpy() for values in (root, result))
    divergence_gradients(*flat, grad.reshape(-1).contiguous().numpy())
    return result
