"""Random numbers of samplers."""

from __future__ import annotations

import torch

__all__ = ["random_at"]

# Odd numbers without a pattern, so that neither seeds nor steps next to each other meet.
OF_SEED, OF_STEP, LARGEST = 0x9E3779B97F4A7C15, 0xD1B54A32D192ED03, (1 << 63) - 1


def random_at(seed: int, step: int) -> torch.Generator:
    """A source that is a function of seed and step, so that a resumed run draws the same numbers."""
    return torch.Generator().manual_seed((seed * OF_SEED + step * OF_STEP) & LARGEST)
