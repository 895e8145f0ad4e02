"""Which checkpoint belongs to a fit."""

from __future__ import annotations

import hashlib
from dataclasses import is_dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch

from candid.engines import Checkpoint
from candid.estimators.inputs import Table
from candid.kernels import Kernel, adopt, is_gpytorch
from candid.kernels.code import describe_code

__all__ = ["checkpoint_of"]

# Parameters that do not belong to a checkpoint's key: they do not change the result, or do so through seed and table.
INCIDENTAL = {"verbose", "checkpoint_dir", "callbacks", "n_threads", "time_budget", "predict_dtype"}
INCIDENTAL |= {"random_state", "alpha"}


def checkpoint_of(estimator: Any, table: Table, run: list[Any]) -> Checkpoint | None:
    """The checkpoint of this run, keyed by what determines its result: versions, parameters, data, seed, start."""
    if estimator.checkpoint_dir is None:
        return None
    settings = {name: value for name, value in estimator.get_params(deep=False).items() if name not in INCIDENTAL}
    digest = hashlib.sha256()
    _describe([_versions(), type(estimator).__name__, run, settings], digest)
    _describe([table.x, table.y, table.weight, table.noise], digest)
    return Checkpoint(Path(estimator.checkpoint_dir) / f"candid-{digest.hexdigest()[:24]}.safetensors")


def _versions() -> list[str]:
    """Of candid and torch: another version may keep other tensors, or compute others."""
    try:
        own = metadata.version("candid-gp")
    except metadata.PackageNotFoundError:
        own = "not installed"
    return [own, str(torch.__version__)]


def _describe(value: Any, digest: Any) -> None:
    """Feed a value to a digest with all its digits; the repr of arrays and kernels leaves some out."""
    digest.update(type(value).__name__.encode())
    if is_gpytorch(value):
        _describe(adopt(value), digest)
    elif isinstance(value, torch.nn.Module):
        tensors = {name: tensor.cpu().numpy() for name, tensor in value.state_dict().items()}
        told = value.to_spec() if isinstance(value, Kernel) else describe_code(value.modules())
        _describe([told, tensors], digest)
    elif isinstance(value, dict):
        for key in sorted(value):
            _describe([key, value[key]], digest)
    elif isinstance(value, (list, tuple)):
        digest.update(str(len(value)).encode())
        for entry in value:
            _describe(entry, digest)
    elif value is None or isinstance(value, (str, bool, int, float)) or is_dataclass(value):
        digest.update(repr(value).encode())
    else:
        array = np.ascontiguousarray(value)
        digest.update(f"{array.dtype}{array.shape}".encode())
        digest.update(array.tobytes())
