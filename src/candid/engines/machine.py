"""The machine: which device, and how many threads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

__all__ = ["pick_device", "threads"]


def pick_device(name: str) -> torch.device:
    """``"auto"`` takes a GPU where there is one; any other name is torch's."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"device {name!r} cannot be used here ({error}); device='auto' picks one that can") from error
    return device


@contextmanager
def threads(number: int | None) -> Iterator[None]:
    """Run with ``number`` threads (None: as torch is set), and put the old number back."""
    before = torch.get_num_threads()
    if number is not None:
        torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)
