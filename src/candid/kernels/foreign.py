"""The door for kernels that are not ours: those of GPyTorch."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from typing import Any

import torch

from candid.kernels.base import Kernel
from candid.kernels.composite import Scale
from candid.kernels.gpytorch_kernel import GPyTorchKernel, is_gpytorch
from candid.parameters import Hyperparameter

__all__ = ["adopt", "foreign_parts", "from_gpytorch"]


def from_gpytorch(kernel: Any) -> Kernel:
    """A GPyTorch kernel as one of ours; it starts at the present values of its parameters.

    Parameters
    ----------
    kernel : gpytorch.kernels.Kernel
        Any kernel of one output without ``batch_shape``, made for the table's number of features: its own
        ``ard_num_dims`` counts, and ``ard`` of the estimator does not. An outermost ``ScaleKernel`` becomes a
        :class:`~candid.kernels.Scale`, with the constraint of its ``outputscale`` as the amplitude's domain.

    Notes
    -----
    Priors that are registered with the kernel are not used. ``priors`` and ``fixed`` of an estimator reach the
    amplitude, but no parameter inside; keep one fixed by ``requires_grad_(False)``, or bound it by a constraint.
    """
    try:
        from gpytorch.kernels import ScaleKernel
    except ImportError as error:
        raise ImportError("kernels of GPyTorch need GPyTorch: pip install candid-gp[bo]") from error
    if not is_gpytorch(kernel):
        raise TypeError(f"from_gpytorch takes a kernel of gpytorch.kernels, got {type(kernel).__name__}")
    if len(kernel.batch_shape):
        raise ValueError(
            f"the GPyTorch kernel has batch_shape {tuple(kernel.batch_shape)}; give one without, and every output "
            f"gets a copy of it"
        )
    if any(True for _ in kernel.named_priors()):
        warnings.warn(
            "the priors that are registered with the GPyTorch kernel are not used; its constraints are", stacklevel=2
        )
    kernel = copy.deepcopy(kernel)
    return _scaled(kernel) if type(kernel) is ScaleKernel and _only_scales(kernel) else GPyTorchKernel(kernel)


def adopt(kernel: Any) -> Kernel:
    """``kernel`` itself, or one of ours that stands for it."""
    if isinstance(kernel, Kernel):
        return kernel
    if is_gpytorch(kernel):
        return from_gpytorch(kernel)
    raise TypeError(
        f"a kernel is a name such as 'matern52', an object of candid.kernels or one of gpytorch.kernels, "
        f"got {type(kernel).__name__}"
    )


def foreign_parts(kernel: Kernel) -> Iterator[GPyTorchKernel]:
    """The parts of a kernel whose code is not ours, in the order in which :meth:`Kernel.to_spec` describes them."""
    if isinstance(kernel, GPyTorchKernel):
        yield kernel
    for part in kernel._own_parts():
        yield from foreign_parts(part)


def _only_scales(kernel: Any) -> bool:
    """Whether a ScaleKernel multiplies all that its base sees by a number with one bound on each side."""
    own, inner = kernel.active_dims, kernel.base_kernel.active_dims
    same_features = own is inner or (own is not None and inner is not None and torch.equal(own, inner))
    constraint = kernel.raw_outputscale_constraint
    return same_features and constraint.lower_bound.numel() == constraint.upper_bound.numel() == 1


@torch.no_grad()
def _scaled(kernel: Any) -> Scale:
    """A ScaleKernel as our Scale of its base."""
    constraint, outputscale = kernel.raw_outputscale_constraint, kernel.outputscale
    lower, upper = max(float(constraint.lower_bound), 0.0), float(constraint.upper_bound)
    scaled = Scale(GPyTorchKernel(kernel.base_kernel))
    scaled.amplitude = Hyperparameter(outputscale, lower, upper).to(outputscale.dtype)
    scaled.amplitude.set(outputscale)
    if not kernel.raw_outputscale.requires_grad:
        scaled.amplitude.fix()
    return scaled
