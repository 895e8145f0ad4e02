"""The rows together, by name."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from types import MappingProxyType

from candid.methods.bayesian import SAMPLED
from candid.methods.deep import DEEP
from candid.methods.exact import DENSE
from candid.methods.inducing import INDUCING
from candid.methods.method import Method
from candid.methods.neighbours import NEAREST
from candid.methods.networks import DEEP_KERNELS, NETWORKS

__all__ = ["ALIASES", "METHODS", "MethodTable", "find_method", "methods"]

METHODS: Mapping[str, Method] = MappingProxyType(
    {row.name: row for row in (*DENSE, *INDUCING, *DEEP_KERNELS, *DEEP, *SAMPLED, *NEAREST, *NETWORKS)}
)
#: Names that papers give to what is a row under another name.
ALIASES: Mapping[str, str] = MappingProxyType({"dspp": "dspp-qr3"})


class MethodTable(tuple[Method, ...]):
    """The rows of the table, printed as one."""

    def __str__(self) -> str:
        return "\n".join(map(str, self))

    __repr__ = __str__


def methods() -> MethodTable:
    """All methods: name, paper, what each is, tasks, parameters and cost."""
    return MethodTable(METHODS.values())


def find_method(name: str) -> Method:
    """The row called ``name``, or by an alias; an unknown name is answered with the nearest known ones."""
    name = ALIASES.get(name, name)
    if name not in METHODS:
        near = difflib.get_close_matches(name, METHODS, n=3, cutoff=0.4)
        hint = f"did you mean {' or '.join(near)}?" if near else f"known are {', '.join(METHODS)}"
        raise ValueError(f"there is no method {name!r}; {hint}")
    return METHODS[name]
