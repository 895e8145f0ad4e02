"""How long a step of loo-k takes: by plain autograd, in closed form with torch, and in closed form by machine code."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from candid.bench.contenders import TrainingStep
from candid.bench.timing import interleaved_medians, turns_of
from candid.engines import keep_freed_memory
from candid.families import make_mean
from candid.families.local import local_marginal
from candid.kernels import Matern52, Scale
from candid.likelihoods import Gaussian
from candid.linalg import can_compile, nearest, without_machine_code

__all__ = ["NeighbourModel", "StepTimes", "measure_steps", "plain_moments"]

# Rows of the table for each neighbour of a row.
ROWS_PER_NEIGHBOUR = 8


@dataclass(frozen=True)
class StepTimes:
    """Median seconds of a step with k neighbours; those of machine code are None where Numba is not installed."""

    k: int
    autograd: float
    torch: float
    compiled: float | None


class NeighbourModel(nn.Module):
    """Kernel, mean and noise of loo-k at their starts, and a batch of rows whose neighbours are known already."""

    def __init__(self, n_features: int, batch_size: int, k: int, seed: int = 0) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.x = torch.randn(batch_size + ROWS_PER_NEIGHBOUR * k, n_features, generator=generator)
        self.y = torch.sin(self.x.sum(-1, keepdim=True)) + 0.3 * torch.randn(len(self.x), 1, generator=generator)
        self.batch = torch.arange(batch_size)
        self.near = nearest(self.x, self.x[:batch_size], k, self.batch)
        self.kernel = Scale(Matern52(lengthscale=math.sqrt(n_features))).build(n_features, True, (1,))
        self.mean = make_mean("constant", n_features, 1)
        self.likelihood = Gaussian(0.1)

    def look_up(self, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        targets = self.y[rows]
        return self.x[rows], targets, self.likelihood.at().variance.expand_as(targets)

    def loss(self, moments: Callable[[NeighbourModel], tuple[Tensor, Tensor]]) -> Tensor:
        """−log p(y | neighbours), averaged over the batch."""
        return -self.likelihood.at().log_expected_density(self.y[self.batch], *moments(self)).mean()


def closed_moments(model: NeighbourModel) -> tuple[Tensor, Tensor]:
    """Latent mean and variance of the batch as families compute them."""
    marginal, _ = local_marginal(model.kernel, model.mean, model.x[model.batch], model.near, model.look_up)
    return marginal.mean, marginal.residual


def torch_moments(model: NeighbourModel) -> tuple[Tensor, Tensor]:
    """The same without machine code."""
    with without_machine_code():
        return closed_moments(model)


def plain_moments(model: NeighbourModel) -> tuple[Tensor, Tensor]:
    """The same, written down as a textbook has it; autograd differentiates the Gram matrix and its factor."""
    amplitude, unit = model.kernel.split()
    assert amplitude is not None
    assert isinstance(unit, Matern52)
    points, targets, noise = model.look_up(model.near)
    rows = model.x[model.batch].unsqueeze(-2)
    centre, rate = points.mean(-2, keepdim=True), math.sqrt(5) / unit.lengthscale.value
    points, rows = (points - centre) * rate, (rows - centre) * rate
    covariance = amplitude * _matern52(points, points) + torch.diag_embed(noise.squeeze(-1))
    cross = amplitude * _matern52(points, rows)
    residual = targets - model.mean(points.flatten(0, -2)).view_as(targets)
    lower = torch.linalg.cholesky(covariance)
    # L⁻¹[k, y − mu]
    features, rest = torch.linalg.solve_triangular(lower, torch.cat([cross, residual], -1), upper=False).unbind(-1)
    mean = model.mean(rows.squeeze(-2)) + (features * rest).sum(-1, keepdim=True)
    return mean, amplitude - features.square().sum(-1, keepdim=True)


def _matern52(a: Tensor, b: Tensor) -> Tensor:
    q = a.square().sum(-1, keepdim=True) + b.square().sum(-1).unsqueeze(-2) - 2 * a @ b.mT
    # Away from zero, where the root has no derivative.
    r = q.clamp_min(1e-12).sqrt()
    return (1 + r + r.square() / 3) * torch.exp(-r)


def measure_steps(
    sizes: Sequence[int],
    n_features: int = 8,
    batch_size: int = 128,
    repeats: int = 9,
    tell: Callable[[str], None] = lambda text: None,
) -> list[StepTimes]:
    """Time steps (forward, backward, Adam) with each number of neighbours; contenders take turns, medians."""
    keep_freed_memory()
    times = []
    for k in sizes:
        tell(f"steps with {k} neighbours …")
        model = NeighbourModel(n_features, batch_size, k)
        contenders = {"autograd": plain_moments, "torch": torch_moments}
        if can_compile(model.x[model.near]):
            contenders["compiled"] = closed_moments
        steps = {name: _step(copy.deepcopy(model), moments) for name, moments in contenders.items()}
        seconds = interleaved_medians({name: turns_of(step) for name, step in steps.items()}, repeats)
        times.append(StepTimes(k, seconds["autograd"], seconds["torch"], seconds.get("compiled")))
    return times


def _step(model: NeighbourModel, moments: Callable[[NeighbourModel], tuple[Tensor, Tensor]]) -> TrainingStep:
    return TrainingStep(lambda: model.loss(moments), list(model.parameters()))
