"""Model files: tensors in safetensors, everything else in JSON. Nothing in a file is ever executed."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, ValidationError
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes
from torch import Tensor

from candid import priors as prior_room
from candid.estimators.observations import observation_from_spec
from candid.estimators.scaling import Standardizer
from candid.estimators.table_predictor import TablePredictor
from candid.families import predictor_from_spec
from candid.kernels import adopt, adopt_network, kernel_from_spec, may_be_network, network_from_spec

__all__ = ["ModelFileError", "load", "save"]

FORMAT, VERSION = "candid-model", 6
# Fitted attributes that are kernels; not every model has them.
KERNELS = ("kernel_", "mean_kernel_")
# Parameters that belong to the machine and the moment, not to the model.
LEFT_OUT = {"callbacks", "checkpoint_dir", "n_threads", "verbose", "device"}
PRIORS = {name: getattr(prior_room, name) for name in ("Normal", "LogNormal", "Gamma", "HalfNormal", "Interval")}


class ModelFileError(ValueError):
    """A model file is damaged, of another kind, or from another version."""


class Stamp(BaseModel):
    """What every version of the header has."""

    # Infinities are bounds of hyper-parameters.
    model_config = ConfigDict(strict=True, ser_json_inf_nan="constants")

    format: str
    version: int


class Labels(BaseModel):
    """The classes of a classifier, and the numpy type of their array."""

    model_config = ConfigDict(strict=True, extra="forbid")

    dtype: str
    values: list[bool | int | float | str]

    @classmethod
    def of(cls, classes: np.ndarray) -> Labels:
        return cls(dtype=classes.dtype.str, values=classes.tolist())

    def array(self) -> np.ndarray:
        dtype = np.dtype(self.dtype)
        if dtype.kind not in "biufUO":
            raise ValueError(f"labels are numbers or strings, and not of type {self.dtype}")
        return np.array(self.values, dtype=dtype)


class Header(Stamp):
    """The JSON part of a model file."""

    model_config = ConfigDict(extra="forbid")

    estimator: str
    parameters: dict[str, Any]
    predictor: dict[str, Any]
    observation: dict[str, Any]
    kernels: dict[str, dict[str, Any]]
    history: list[dict[str, Any]]
    jitter: float | None  # of GPs
    vector_target: bool
    classes: Labels | None  # of classifiers
    n_features: int
    feature_names: list[str] | None


def save(estimator: Any, path: str | os.PathLike[str]) -> None:
    """Write a fitted estimator; the file appears whole or not at all."""
    tensors = {f"predictor.{name}": tensor for name, tensor in estimator.predictor_.state_dict().items()}
    kernels = {name: getattr(estimator, name) for name in KERNELS if hasattr(estimator, name)}
    for attribute, kernel in kernels.items():
        tensors |= {f"{attribute}.{name}": tensor for name, tensor in kernel.state_dict().items()}
    parameters = {
        name: _encode(name, value, tensors)
        for name, value in estimator.get_params(deep=False).items()
        if name not in LEFT_OUT
    }
    names = getattr(estimator, "feature_names_in_", None)
    header = Header(
        format=FORMAT,
        version=VERSION,
        estimator=type(estimator).__name__,
        parameters=parameters,
        predictor=estimator.predictor_.inner.to_spec(),
        observation=estimator.predictor_.observation.to_spec(),
        kernels={name: kernel.to_spec() for name, kernel in kernels.items()},
        history=estimator.history_,
        jitter=getattr(estimator, "jitter_", None),
        vector_target=estimator._vector_target,
        classes=Labels.of(estimator.classes_) if hasattr(estimator, "classes_") else None,
        n_features=estimator.n_features_in_,
        feature_names=None if names is None else [str(name) for name in names],
    ).model_dump_json()
    tensors = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    target = Path(path)
    scratch = target.with_name(f"{target.name}.{uuid4().hex}.part")
    try:
        scratch.write_bytes(to_bytes(tensors, {"candid": header, "sha256": _checksum(header, tensors)}))
        os.replace(scratch, target)
    finally:
        scratch.unlink(missing_ok=True)


def load(path: str | os.PathLike[str], kernel: Any = None, features: Any = None) -> Any:
    """Read a model that :meth:`save` has written. It predicts bit for bit as before.

    A loaded model does not go on training: ``partial_fit`` on it is a new fit. (A model of neighbours brings its
    training rows along to predict from, and ``partial_fit`` adds more of them.)

    Parameters
    ----------
    path : path-like
    kernel : gpytorch.kernels.Kernel, optional
        The kernel that the model was fitted with, whatever its values, if it was one of GPyTorch: a file holds tensors,
        but no code.
    features : torch.nn.Module or list of them, optional
        The module that was the model's ``features``, if it was one of your own; with ``covariance_features``, both.
    """
    from candid.estimators.factory import ESTIMATORS

    text, tensors = _read(Path(path))
    try:
        stamp = Stamp.model_validate_json(text)
        if (stamp.format, stamp.version) != (FORMAT, VERSION):
            raise ModelFileError(
                f"{path} is {stamp.format!r} version {stamp.version}; this candid reads {FORMAT!r} version {VERSION}"
            )
        header = Header.model_validate_json(text)
    except ValidationError as error:
        faults = "; ".join(f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors()[:3])
        raise ModelFileError(f"{path} has a faulty header ({faults}); save the model again") from error
    if header.estimator not in ESTIMATORS:
        raise ModelFileError(f"{path} names an estimator {header.estimator!r} that candid does not have")
    try:
        return _assemble(ESTIMATORS[header.estimator], header, tensors, _code(kernel, features))
    except (ValueError, TypeError, KeyError, AttributeError, RuntimeError) as error:
        raise ModelFileError(f"{path} does not describe a model that can be rebuilt: {error}") from error


def _code(*given: Any) -> list[Any]:
    """All modules that were given, in one list."""
    lists = (part if isinstance(part, (list, tuple)) else [part] for part in given if part is not None)
    return [part for parts in lists for part in parts]


def _assemble(kind: type, header: Header, tensors: dict[str, Tensor], code: Any) -> Any:
    _check_sizes(header, tensors)
    parameters = {name: _decode(value, tensors, code) for name, value in header.parameters.items()}
    estimator = kind(**parameters)
    estimator._validate_params()
    state = _under("predictor.", tensors)
    n_outputs = len(state["y_scale"])
    predictor = TablePredictor(
        predictor_from_spec(header.predictor, code),
        Standardizer.identity(header.n_features),
        Standardizer.identity(n_outputs),
        observation_from_spec(header.observation),
    )
    predictor.load_state_dict(state, assign=True)
    if header.jitter is not None:
        estimator.jitter_ = header.jitter
    needed = {"kernel_"} if "kernel" in parameters else set()
    if not needed <= header.kernels.keys() <= set(KERNELS):
        raise ValueError(f"its kernels are {sorted(header.kernels)}")
    for attribute, description in header.kernels.items():
        kernel = kernel_from_spec(description, code)
        kernel.load_state_dict(_under(f"{attribute}.", tensors))
        setattr(estimator, attribute, kernel)
    estimator.predictor_, estimator.history_ = predictor, header.history
    estimator._vector_target, estimator.n_features_in_ = header.vector_target, header.n_features
    if header.feature_names is not None:
        estimator.feature_names_in_ = np.asarray(header.feature_names, dtype=object)
    if header.classes is not None:
        estimator.classes_ = header.classes.array()
    estimator._remember_shape()
    estimator._report()
    return estimator


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Tensors whose names begin with ``prefix``, without it."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def _read(path: Path) -> tuple[str, dict[str, Tensor]]:
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            # Copies: the file's own tensors would change with the file.
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
    except FileNotFoundError:
        raise FileNotFoundError(f"there is no model file {path}") from None
    except (SafetensorError, OSError) as error:
        raise ModelFileError(f"{path} is not a candid model file, or it is damaged ({error})") from error
    if "candid" not in metadata:
        raise ModelFileError(f"{path} is a safetensors file, but not a candid model")
    if metadata.get("sha256") != _checksum(metadata["candid"], tensors):
        raise ModelFileError(f"{path} is damaged: its contents do not match its checksum; restore it or save it again")
    return metadata["candid"], tensors


def _checksum(header: str, tensors: dict[str, Tensor]) -> str:
    digest = hashlib.sha256(header.encode())
    for name in sorted(tensors):
        tensor = tensors[name].contiguous()
        digest.update(f"{name}:{tensor.dtype}:{tuple(tensor.shape)}".encode())
        digest.update(tensor.numpy().tobytes())
    return digest.hexdigest()


def _check_sizes(header: Header, tensors: dict[str, Tensor]) -> None:
    """Refuse a header that does not fit the tensors; one that asks for more than there is would exhaust memory."""
    for name, tensor in tensors.items():
        # The only whole numbers are those by which a GPyTorch kernel picks features.
        whole = tensor.dtype == torch.int64 and name.endswith("active_dims")
        if not whole and tensor.dtype not in (torch.float32, torch.float64):
            raise ValueError(f"a model consists of float32 and float64 tensors, but {name} is {tensor.dtype}")
    n_outputs, n_classes = (
        len(tensors["predictor.y_scale"]),
        0 if header.classes is None else len(header.classes.values),
    )
    if n_classes and n_outputs != n_classes and (n_outputs, n_classes) != (1, 2):
        raise ValueError(f"{n_outputs} latent functions do not fit {n_classes} classes")
    if header.vector_target and not n_classes and n_outputs != 1:
        raise ValueError("the target is a vector, but there are several outputs")
    if header.feature_names is not None and len(header.feature_names) != header.n_features:
        raise ValueError(f"{len(header.feature_names)} feature names do not fit {header.n_features} features")
    most = sum(tensor.numel() for tensor in tensors.values())
    described = [value for value in header.parameters.values() if isinstance(value, dict)]
    modules = [value[kind] for value in described for kind in ("kernel", "network") if kind in value]
    for size in _sizes([[header.n_features], header.predictor, header.observation, header.kernels, modules]):
        if size > most:
            raise ValueError("the header asks for larger tensors than the file holds")


def _sizes(tree: Any) -> Iterator[int]:
    """How many entries the tensors have that a description speaks of."""
    if isinstance(tree, dict):
        tree = list(tree.values())
    if isinstance(tree, list):
        yield math.prod(abs(entry) for entry in tree if isinstance(entry, int) and not isinstance(entry, bool))
        for branch in tree:
            yield from _sizes(branch)


def _encode(name: str, value: Any, tensors: dict[str, Tensor]) -> Any:
    """A parameter as JSON; arrays move to ``tensors``."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, np.bool_):
        return bool(value)
    if isinstance(value, (int, np.integer)):
        return int(value)
    if isinstance(value, (float, np.floating)):
        return float(value)
    if isinstance(value, torch.nn.Module):
        kind, module = ("network", adopt_network(value)) if may_be_network(value) else ("kernel", adopt(value))
        tensors |= {f"parameter.{name}.{key}": tensor for key, tensor in module.state_dict().items()}
        return {kind: module.to_spec(), "tensors": f"parameter.{name}."}
    if type(value).__name__ in PRIORS and isinstance(value, PRIORS[type(value).__name__]):
        values = {key: _encode(key, entry, tensors) for key, entry in asdict(value).items()}
        return {"prior": type(value).__name__, "values": values}
    if isinstance(value, dict):
        return {"dict": {key: _encode(f"{name}.{key}", entry, tensors) for key, entry in value.items()}}
    if isinstance(value, (list, tuple)) and all(
        isinstance(entry, (str, int, np.integer, *PRIORS.values())) for entry in value
    ):
        return {"tuple": [_encode(name, entry, tensors) for entry in value]}
    if isinstance(value, np.random.RandomState):
        return None
    tensors[f"parameter.{name}"] = torch.as_tensor(np.array(value, dtype=np.float64))
    return {"array": f"parameter.{name}"}


def _decode(value: Any, tensors: dict[str, Tensor], code: Any) -> Any:
    if not isinstance(value, dict):
        return value
    for kind, rebuild in (("kernel", kernel_from_spec), ("network", network_from_spec)):
        if kind in value:
            module = rebuild(value[kind], code)
            module.load_state_dict(_under(value["tensors"], tensors))
            return module
    if "prior" in value:
        return PRIORS[value["prior"]](**value["values"])
    if "dict" in value:
        return {key: _decode(entry, tensors, code) for key, entry in value["dict"].items()}
    if "tuple" in value:
        return tuple(_decode(entry, tensors, code) for entry in value["tuple"])
    return tensors[value["array"]].numpy()
