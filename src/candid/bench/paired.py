"""Whether one row of a table is better than another on the same splits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import wilcoxon

from candid.bench.runner import Outcome

__all__ = ["PairedTest", "paired_test"]


@dataclass(frozen=True)
class PairedTest:
    """Of ``n_pairs`` fits on one data set (on all, if that is None), the mean of first − second in NLL.

    ``probability`` is that of differences as far below zero if there is none, by Wilcoxon's signed-rank test; None
    where all are zero, or there is one only.
    """

    data: str | None
    n_pairs: int
    difference: float
    probability: float | None


def paired_test(outcomes: Sequence[Outcome], data: str | None, first: str, second: str) -> PairedTest | None:
    """Compare two rows where both have been fitted to the same splits; None if that is nowhere."""
    sides = [
        {
            (entry.fit.data, entry.fit.split): entry.record["nll"]
            for entry in outcomes
            if entry.fit.purpose == "result" and entry.fit.name == name and entry.record["error"] is None
        }
        for name in (first, second)
    ]
    common = [place for place in sides[0] if place in sides[1] and data in (None, place[0])]
    if not common:
        return None
    differences = np.array([sides[0][place] - sides[1][place] for place in common])
    tested = len(common) > 1 and bool(differences.any())
    probability = float(wilcoxon(differences, alternative="less")[1]) if tested else None  # pyright: ignore
    return PairedTest(data, len(common), float(differences.mean()), probability)
