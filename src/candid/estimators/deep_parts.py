"""What the layers of a deep GP are made of, before they have inducing points."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from candid.engines import JITTER
from candid.families import Inducing, Mean, make_mean
from candid.kernels import Kernel
from candid.parameters import hyperparameters
from candid.weights import WEIGHTS

__all__ = ["LayerParts", "build_layers", "first_gps", "repeat_gps"]


@dataclass(frozen=True)
class LayerParts:
    """Kernel and mean function of a layer of GPs, each a batch of as many."""

    kernel: Kernel
    mean: Mean
    n_features: int
    n_gps: int

    @staticmethod
    def make(kernel: Kernel, n_features: int, mean: str, n_mean_features: int, n_gps: int) -> LayerParts:
        return LayerParts(kernel, make_mean(mean, n_mean_features, n_gps), n_features, n_gps)

    def module(self) -> torch.nn.Module:
        return torch.nn.ModuleDict({"kernel": self.kernel, "mean": self.mean})

    def layer(self, points: Tensor, covariance: str) -> Inducing:
        """The layer with inducing points, (GP, M, feature), and a q(u) that knows nothing."""
        weights = WEIGHTS[covariance](points.shape[-2], (self.n_gps,))
        return Inducing(self.kernel, self.mean, points, weights, JITTER[points.dtype]).to(points)


def build_layers(parts: Sequence[LayerParts], covariance: str, n_points: int, like: Tensor) -> list[Inducing]:
    """Layers with inducing points that are still to be loaded."""
    return [part.layer(like.new_zeros(part.n_gps, n_points, part.n_features), covariance) for part in parts]


@torch.no_grad()
def first_gps(kernel: Kernel, n_gps: int) -> Kernel:
    """Some of the GPs of a batch: a kernel of its own."""
    some = copy.deepcopy(kernel)
    for _, parameter in hyperparameters(some):
        values = parameter.raw[:n_gps].clone()
        parameter.raw = torch.nn.Parameter(values, requires_grad=parameter.raw.requires_grad)
    return some


@torch.no_grad()
def repeat_gps(kernel: Kernel, some: Kernel) -> None:
    """Give the GPs of a batch the hyper-parameters of fewer of them, again and again, but for those that are fixed."""
    values = dict(hyperparameters(some))
    for name, parameter in hyperparameters(kernel):
        if not parameter.fixed:
            own = values[name].raw
            parameter.raw.copy_(own[torch.arange(len(parameter.raw), device=own.device) % len(own)])
