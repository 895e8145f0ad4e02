"""The machine: which device, how many threads, and what becomes of freed memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from candid.families import Family

__all__ = ["keep_freed_memory", "pick_device", "step_crew", "threads"]

# The largest block for which glibc still learns to keep freed memory.
LARGEST_KEPT = 31 << 20
# Covariances up to which a step consists of so many small operations that threads would mostly wait for each other.
FEW_COVARIANCES = 2**17
# Each member of a crew has sums of its own, which one of them adds up: more threads than this are left to torch.
MOST_MEMBERS = 4


def keep_freed_memory() -> None:
    """Have the C library keep large blocks that are freed.

    glibc gives blocks of more than a threshold back to the system and gets them anew, page by page, in every step; the
    threshold grows with the largest block that was ever freed. So one block is allocated and dropped.
    """
    torch.empty(LARGEST_KEPT, dtype=torch.uint8)


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


def step_crew(family: Family, n_rows: int) -> int | None:
    """The size of the crew that is best for steps with so many rows; None if torch should share out its operations."""
    if family.n_covariances(n_rows) <= FEW_COVARIANCES:
        return 1
    size = torch.get_num_threads()
    return size if size <= MOST_MEMBERS and family.shares_rows(n_rows) else None


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
