"""Products of matrices at the processor's full rate.

MKL, which multiplies for torch, uses the widest instructions (AVX-512) on processors of its own maker only. oneDNN,
which torch brings for the layers of networks, asks the processor itself: on AMD's, which have had them since Zen 4, and
at twice the rate since Zen 5, its products take half of the time. They are in single precision. What is small is still
multiplied fastest by torch, and so is what torch records, transforms or traces.
"""

from __future__ import annotations

import platform
from collections.abc import Callable
from functools import cache
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from candid.linalg.crew import share_out
from candid.linalg.plain import is_plain

__all__ = ["add_product", "onednn_takes", "product_of", "write_product"]

# Multiplications from which oneDNN's overhead of ten microseconds pays.
LEAST_WORK = 2**20


def product_of(x: Float[Tensor, "*#batch m k"], y: Float[Tensor, "*#batch k n"]) -> Float[Tensor, "*#batch m n"]:
    """X Y."""
    if not onednn_takes(x, y):
        return x @ y
    batch = torch.broadcast_shapes(x.shape[:-2], y.shape[:-2])
    if batch.numel() == 1:
        return _multiply(x.flatten(0, -2), y.flatten(0, -2)).view(*batch, x.shape[-2], y.shape[-1])
    return write_product(x, y, x.new_empty(*batch, x.shape[-2], y.shape[-1]))


def write_product(
    x: Float[Tensor, "*#batch m k"], y: Float[Tensor, "*#batch k n"], out: Float[Tensor, "*batch m n"]
) -> Float[Tensor, "*batch m n"]:
    """out ← X Y."""
    if not onednn_takes(x, y):
        return torch.matmul(x, y, out=out)
    _for_each(lambda own, left, right: own.copy_(_multiply(left, right)), out, x, y)
    return out


def add_product(
    total: Float[Tensor, "*gp m n"],
    x: Float[Tensor, "*gp m k"],
    y: Float[Tensor, "*gp k n"],
    alpha: float = 1.0,
    beta: float = 1.0,
) -> Float[Tensor, "*gp m n"]:
    """total ← β·total + α·X Y, of one GP or of several."""
    if not onednn_takes(x, y):
        return (total.addmm_ if total.dim() == 2 else total.baddbmm_)(x, y, alpha=alpha, beta=beta)
    if beta == 0.0:
        # Whatever it holds, as torch has it.
        total.zero_()
    elif beta != 1.0:
        total.mul_(beta)
    _for_each(lambda own, left, right: own.add_(_multiply(left, right), alpha=alpha), total, x, y)
    return total


def onednn_takes(x: Tensor, y: Tensor, least_work: int | None = None) -> bool:
    """Whether a product is one for oneDNN: of that many multiplications, or as many as pay, for a single matrix."""
    return (
        x.shape[-2] * x.shape[-1] * y.shape[-1] >= (LEAST_WORK if least_work is None else least_work)
        and x.dtype == y.dtype == torch.float32
        and _layer() is not None
        and is_plain(x)
        and is_plain(y)
    )


def _multiply(x: Tensor, y: Tensor) -> Tensor:
    layer = _layer()
    assert layer is not None
    return layer(x, _dense(y).mT, None, "none", [], "")


def _dense(y: Tensor) -> Tensor:
    """With rows or columns one right after the other: for anything else oneDNN has but a reference to compare with."""
    return y if y.is_contiguous() or y.mT.is_contiguous() else y.contiguous()


def _for_each(work: Callable[[Tensor, Tensor, Tensor], Tensor], out: Tensor, x: Tensor, y: Tensor) -> None:
    """Do it for every matrix of a batch; a crew has several at a time."""
    parts = _each(out, x, y)
    share_out(lambda run: [work(*part) for part in parts[run]], len(parts))


def _each(out: Tensor, x: Tensor, y: Tensor) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Every matrix of a batch, and the factors of its product."""
    if out.dim() == x.dim() == y.dim() == 2:
        return [(out, x, y)]
    if out.dim() == 2:
        return [(out, x.flatten(0, -2), y.flatten(0, -2))]
    pairs = (factor.expand(*out.shape[:-2], *factor.shape[-2:]).unbind(0) for factor in (x, y))
    return [part for parts in zip(out.unbind(0), *pairs, strict=True) for part in _each(*parts)]


@cache
def _layer() -> Callable[..., Tensor] | None:
    """oneDNN's layer of a network, X Wᵀ, if this is a processor on which it has wider instructions than MKL."""
    wider = torch.backends.cpu.get_cpu_capability() == "AVX512" and "AuthenticAMD" in _processor()
    if not (wider and torch.backends.mkl.is_available() and torch.backends.mkldnn.is_available()):
        return None
    packet = getattr(torch.ops.mkldnn, "_linear_pointwise", None)
    return None if packet is None else packet.default


def _processor() -> str:
    """What the system says of it."""
    try:
        return Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor()
