"""How fast chains move and predict: steps and rows per second of sampled models, as an estimator takes them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from candid.datasets import available, load
from candid.estimators import make_gp

__all__ = ["CASES", "ChainCase", "ChainSpeed", "measure_chains"]

N_INDUCING, N_SAMPLES, N_NEW = 100, 256, 2000
PREDICTIONS = 5


@dataclass(frozen=True)
class ChainCase:
    """A model on a table of this size; rows are those of the data set, where it is on this machine."""

    data: str
    n_rows: int
    n_features: int
    n_layers: int = 1
    n_chains: int = 1
    batch_size: int = 1000
    published: float | None = None  # steps per second

    def table(self) -> tuple[np.ndarray, np.ndarray]:
        """Its inputs and one target; made up if need be."""
        if self.data in (*available(source="directory"), *available(source="cache")):
            x, y = load(self.data).Xy
            return x, y.reshape(len(y), -1)[:, 0]
        generator = np.random.default_rng(0)
        x = generator.standard_normal((self.n_rows, self.n_features))
        return x, np.sin(x.sum(1)) + 0.3 * generator.standard_normal(self.n_rows)


#: Two that the paper on fully Bayesian sparse GPs has timed, on eight cores; and four chains beside one.
CASES = (
    ChainCase("naval", 11_934, 16, published=38.0),
    ChainCase("kin8nm", 8_192, 8, n_layers=2, published=21.4),
    ChainCase("kin8nm", 8_192, 8, batch_size=100),
    ChainCase("kin8nm", 8_192, 8, n_chains=4, batch_size=100),
)


@dataclass(frozen=True)
class ChainSpeed:
    """Steps per second of all chains together, and rows per second that are predicted from ``n_samples`` samples."""

    case: ChainCase
    steps: float
    rows: float
    n_samples: int


def measure_chains(
    cases: Sequence[ChainCase] = CASES,
    n_inducing: int = N_INDUCING,
    n_samples: int = N_SAMPLES,
    tell: Callable[[str], None] = lambda text: None,
) -> Iterator[ChainSpeed]:
    """Fit each, and look at how time passes from the first step to the last; then predict some rows several times."""
    for case in cases:
        tell(f"{case.data}, {case.n_layers} layers, {case.n_chains} chains …")
        x, y = case.table()
        gp = make_gp(
            "bsgp",
            kernel="rbf",
            n_inducing=n_inducing,
            hidden_widths=("D",) * (case.n_layers - 1),
            batch_size=case.batch_size,
            n_chains=case.n_chains,
            n_samples=n_samples // case.n_chains,
            burn_in=n_samples // 4,
            thin=1,
            init="random",
            max_steps=1,
            random_state=0,
            verbose=False,
        ).fit(x, y)
        first, last = gp.history_[0], gp.history_[-1]
        steps = (last["step"] - first["step"]) / (last["seconds"] - first["seconds"])
        yield ChainSpeed(case, steps, _rows_per_second(gp, x[:N_NEW]), n_samples)


def _rows_per_second(gp: Any, x: np.ndarray) -> float:
    seconds = []
    for _ in range(PREDICTIONS):
        start = time.perf_counter()
        gp.predict(x, return_std=True)
        seconds.append(time.perf_counter() - start)
    return len(x) / statistics.median(seconds)
