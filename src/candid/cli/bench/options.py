"""Options with several values."""

from __future__ import annotations

__all__ = ["names", "whole_numbers"]


def names(text: str | None, option: str) -> list[str] | None:
    """Words with commas between them, each once; None if the option is not given."""
    if text is None:
        return None
    words = list(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
    if not words:
        raise ValueError(f"{option} takes names with commas between them, got {text!r}")
    return words


def whole_numbers(text: str, option: str) -> list[int]:
    """Positive whole numbers with commas between them."""
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or min(numbers) < 1:
        raise ValueError(f"{option} takes positive whole numbers with commas between them, got {text!r}")
    return numbers
