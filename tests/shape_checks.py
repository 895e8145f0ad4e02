"""The type checker that jaxtyping's import hook applies while tests run: beartype, for which an int is a float too."""

from __future__ import annotations

from beartype import BeartypeConf, beartype

__all__ = ["check"]

check = beartype(conf=BeartypeConf(is_pep484_tower=True))
