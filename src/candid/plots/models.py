"""What pictures of one model or several share."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from candid.metrics import wasserstein_to_normal
from candid.predictive import Predictive

__all__ = ["MOST_POINTS", "distance_label", "named_predictions"]

#: More points than this cannot be told apart in a picture.
MOST_POINTS = 1000


def named_predictions(predictions: Predictive | Mapping[str, Predictive]) -> tuple[dict[str, Predictive], int]:
    """Predictive distributions by the names of their models, and the number of rows that they share."""
    named = dict(predictions) if isinstance(predictions, Mapping) else {"model": predictions}
    if not named:
        raise ValueError("there are no predictions to draw: give a predictive distribution or a dict of them")
    for name, p in named.items():
        if not isinstance(p, Predictive):
            raise TypeError(
                f"the predictions of {name!r} are {type(p).__name__}, not a predictive distribution of real numbers; "
                "gp.predict_distribution(X) of a regressor gives one"
            )
    rows = {name: len(p) for name, p in named.items()}
    if len(set(rows.values())) > 1:
        raise ValueError(f"models are compared on the same rows, but these predict different numbers of them: {rows}")
    n_rows = next(iter(rows.values()))
    if n_rows == 0:
        raise ValueError("there are no rows to draw")
    return named, n_rows


def distance_label(name: str, z: np.ndarray) -> str:
    """The name of a model with the 1-Wasserstein distance between its z-scores and N(0, 1)."""
    return f"{name}  W₁ = {wasserstein_to_normal(z):.3f}"
