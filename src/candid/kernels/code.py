"""What can be said of code that is not ours, so that a model file can tell whether it is the same."""

from __future__ import annotations

from collections.abc import Iterable

from torch import nn

__all__ = ["describe_code"]


def describe_code(parts: Iterable[nn.Module]) -> list[dict[str, str]]:
    """Types and plain settings (such as a slope, or ``nu``) of some modules, as text."""
    return [
        {"type": type(part).__name__}
        | {
            name: repr(value)
            for name, value in sorted(vars(part).items())
            if isinstance(value, (bool, int, float, str)) and not name.startswith("_") and name != "training"
        }
        for part in parts
    ]
