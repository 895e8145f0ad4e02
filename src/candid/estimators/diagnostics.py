"""What samples of parameters tell about the chains that they come from."""

from __future__ import annotations

import copy
import math
import re
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import nn

from candid.engines import Problem
from candid.families import Inducing
from candid.parameters import hyperparameters

__all__ = ["diagnostics", "inference_data", "read_samples"]

# What parameters are called, by the last part of their names in the model.
NAMES = {"points": "z", "mean": "u"}
# What tells layers apart in names.
LAYER = re.compile(r"\.layers\.(\d+)\.")


@torch.no_grad()
def read_samples(problem: Problem) -> dict[str, np.ndarray]:
    """Samples of a problem, (chain, draw, …), under short names; hyper-parameters have their values, not raw ones.

    Names of those of hidden layers begin with "hidden.0.", and so on; those of the last layer are as of a single one.
    """
    owners = {f"{path}.raw": parameter for path, parameter in hyperparameters(problem)}
    last = sum(isinstance(part, Inducing) for part in problem.modules()) - 1
    samples: dict[str, np.ndarray] = {}
    for path, draws in problem.draws.items():
        name = NAMES.get(path.split(".")[-1], path)
        if path in owners:
            name, owner = path.split(".")[-2], copy.deepcopy(owners[path])
            owner.raw = nn.Parameter(draws)
            draws = owner.value
        layer = LAYER.search(path)
        if layer is not None and int(layer[1]) < last:
            name = f"hidden.{layer[1]}.{name}"
        # Parts of one kind, as the lengthscales of a sum of kernels, are told apart by the whole name.
        name = name if name not in samples else path.removeprefix("family.inner.").removesuffix(".raw")
        samples[name] = draws.double().cpu().numpy().swapaxes(0, 1)
    return samples


def diagnostics(samples: dict[str, np.ndarray]) -> dict[str, dict[str, float]]:
    """The worst R̂ and effective sample size among the entries of each parameter."""
    arviz = _arviz()
    return {
        name: {"rhat": _worst(arviz.rhat, _halves(draws), np.max), "ess": _worst(arviz.ess, draws, np.min)}
        for name, draws in samples.items()
    }


def inference_data(samples: dict[str, np.ndarray]) -> Any:
    return _arviz().from_dict(posterior=samples)


def _halves(draws: np.ndarray) -> np.ndarray:
    """A single chain as two, which R̂ compares."""
    half = draws.shape[1] // 2
    return np.concatenate([draws[:, :half], draws[:, half : 2 * half]]) if len(draws) == 1 else draws


def _worst(measure: Any, draws: np.ndarray, of: Any) -> float:
    """A measure of each entry as (chain, draw) numbers; NaN where these are too few, or one does not move."""
    if not draws.size:
        return math.nan
    entries = np.moveaxis(draws.reshape(*draws.shape[:2], -1), -1, 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return float(of([float(measure(entry)) for entry in entries]))


def _arviz() -> ModuleType:
    try:
        import arviz
    except ImportError as error:
        raise ImportError("diagnostics of chains need ArviZ: pip install candid-gp[diag]") from error
    return arviz
