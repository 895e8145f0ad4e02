"""What the rows of one kind have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from candid.methods.composition import Composition
from candid.methods.method import Method

__all__ = ["OUR_GAMMA", "Kind"]

# Objectives that are known for all likelihoods.
OF_ALL_LIKELIHOODS = ("elbo", "predictive")
#: γ of robust scores in our recipes. A larger one lets the noise shrink to the bulk of a table that has a few gross
#: errors, and these are then beyond belief: with 1.03 keggundirected has an NLL of 50, with this −0.69.
OUR_GAMMA = 1.01


@dataclass(frozen=True)
class Kind:
    """What the rows of one kind have in common.

    Attributes
    ----------
    estimator, classifier : str
        The estimator classes; a row is for classification, too, if its objective is known for labels.
    compose : callable
        What it is made of, from those parameters of the estimator that are ``composing``.
    composing : tuple of str
    protocol : mapping
        What is published for all of them.
    cost, paper : str
        The latter where a row does not say otherwise.
    most_rows : int, optional
    """

    estimator: str
    classifier: str
    compose: Callable[..., Composition]
    composing: tuple[str, ...]
    protocol: Mapping[str, Any]
    cost: str
    paper: str
    most_rows: int | None = None

    def row(
        self,
        name: str,
        summary: str,
        parameters: Mapping[str, Any],
        candid: Mapping[str, Any],
        published: Mapping[str, Any],
        paper: str | None = None,
    ) -> Method:
        """A row of the table; see :class:`Method` for what it is made of."""
        classifies = parameters["objective"] in OF_ALL_LIKELIHOODS
        return Method(
            name=name,
            summary=summary,
            paper=self.paper if paper is None else paper,
            cost=self.cost,
            made_of=self.compose(**{name: parameters[name] for name in self.composing if name in parameters}),
            estimator=self.estimator,
            parameters=parameters,
            candid=candid,
            published={**self.protocol, **published},
            most_rows=self.most_rows,
            tasks=("regression", "classification") if classifies else ("regression",),
            classifier=self.classifier if classifies else None,
        )
