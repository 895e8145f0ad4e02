"""One row of the table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from candid.methods.composition import Composition

__all__ = ["Method"]


@dataclass(frozen=True)
class Method:
    """One row of the table.

    Attributes
    ----------
    name : str
        As the papers call it.
    summary, paper, cost : str
        What it is, where it is published, and what one training step costs.
    tasks : tuple of str
        What it is for; where nothing is said, the first one.
    made_of : Composition
    estimator : str
        The estimator class that gives it, with these ``parameters``.
    classifier : str, optional
        The class that gives it for classification, if that is not its only task.
    candid : mapping
        What ``recipe="candid"`` sets beyond the estimator's defaults.
    published : mapping
        What ``recipe="paper"`` sets: the published protocol. Where the paper chose a weight β of the penalty on
        validation data, this is one value of its grid.
    most_rows : int, optional
        Longest table it can take.
    """

    name: str
    summary: str
    paper: str
    cost: str
    made_of: Composition
    estimator: str
    parameters: Mapping[str, Any]
    tasks: tuple[str, ...] = ("regression",)
    candid: Mapping[str, Any] = field(default_factory=dict)
    published: Mapping[str, Any] = field(default_factory=dict)
    most_rows: int | None = None
    classifier: str | None = None

    def estimator_for(self, task: str | None) -> str:
        """The estimator class for a task; None is its first one."""
        if task is not None and task not in self.tasks:
            raise ValueError(f"{self.name} is for {' and '.join(self.tasks)}, not for {task!r}")
        return self.classifier if task == "classification" and self.classifier is not None else self.estimator

    @property
    def source(self) -> str:
        """Authors and year of the paper."""
        return self.paper[: self.paper.index(")") + 1]

    def __str__(self) -> str:
        chosen = ", ".join(f"{name}={value!r}" for name, value in self.parameters.items())
        facts = f"{', '.join(self.tasks)}; cost {self.cost}; {self.estimator}({chosen}); {self.source}"
        return f"{self.name:<12} {self.summary} [{facts}]"
