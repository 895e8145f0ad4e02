"""The machine and the libraries that results were computed with."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

import torch

__all__ = ["optional_versions", "thread_count", "versions"]

NEEDED = ("candid-gp", "torch", "numpy", "scipy", "scikit-learn")
OPTIONAL = ("matplotlib", "pyarrow", "gpytorch")


def versions() -> dict[str, str | None]:
    """Versions of Python, candid and what it is built on."""
    return {"python": platform.python_version(), **{name: _version(name) for name in NEEDED}}


def optional_versions() -> dict[str, str | None]:
    """Versions of libraries that some commands use; None where one is not installed."""
    return {name: _version(name) for name in OPTIONAL}


def thread_count() -> int:
    """How many threads computations use."""
    return torch.get_num_threads()


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
