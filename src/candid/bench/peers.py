"""Nearest neighbours here and in other libraries: the same rows, one after the other, each with its own recipe."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from types import MappingProxyType
from typing import Protocol

import numpy as np

from candid.bench.other_neighbours import GPBoostVecchia, MuyGPS
from candid.bench.protocol import Parts
from candid.estimators import make_gp
from candid.metrics import nll, rmse
from candid.predictive import PredictiveNormal

__all__ = ["PEERS", "Peer", "Score", "installed", "measure_peers"]

# Rows, beyond the number of neighbours, that models fit before they are measured.
FEW_ROWS = 20


class Peer(Protocol):
    """A model: ``fit``, then mean and standard deviation of new observations."""

    def fit(self, x: np.ndarray, y: np.ndarray) -> object: ...

    def predict(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]: ...


@dataclass(frozen=True)
class Score:
    """What a model takes, and how good it is.

    Seconds of the fit, by the clock and of the processor, which others on the same machine do not prolong; test rows
    that are predicted per second, and their scores.
    """

    data: str
    model: str
    n_rows: int
    fit: float
    processor: float
    rows_per_second: float
    nll: float
    rmse: float


class _Ours:
    """One of our methods."""

    def __init__(self, name: str, k: int, seed: int) -> None:
        self.gp = make_gp(name, n_neighbors=k, random_state=seed, verbose=False)

    def fit(self, x: np.ndarray, y: np.ndarray) -> object:
        return self.gp.fit(x, y)

    def predict(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return self.gp.predict(x, return_std=True)


#: Name of a peer → how it is made for k neighbours and a seed, and the module that it needs.
PEERS: Mapping[str, tuple[Callable[[int, int], Peer], str]] = MappingProxyType(
    {
        "candid loo-k": (lambda k, seed: _Ours("loo-k", k, seed), "candid"),
        "candid vecchia": (lambda k, seed: _Ours("vecchia", k, seed), "candid"),
        "GPBoost Vecchia": (GPBoostVecchia, "gpboost"),
        "MuyGPyS": (MuyGPS, "MuyGPyS"),
    }
)


def installed() -> list[str]:
    """The peers whose libraries are there."""
    return [name for name, (_, module) in PEERS.items() if find_spec(module) is not None]


def measure_peers(
    parts: Mapping[str, Parts],
    models: Sequence[tuple[str, int]],
    seed: int = 0,
    tell: Callable[[str], None] = lambda text: None,
) -> Iterator[Score]:
    """Fit every model, a name and a number of neighbours, to every data set; results come as they are found.

    Before, each fits a few rows, so that libraries are loaded and machine code is there.
    """
    for data, rows in parts.items():
        for name, k in models:
            tell(f"{name}, k = {k}, on {len(rows.x):,} rows of {data} …")
            make = PEERS[name][0]
            make(k, seed).fit(rows.x[: k + FEW_ROWS], rows.y[: k + FEW_ROWS])
            model = make(k, seed)
            start, processor = time.perf_counter(), time.process_time()
            model.fit(rows.x, rows.y)
            fitted, processor = time.perf_counter(), time.process_time() - processor
            mean, std = model.predict(rows.x_test)
            rate = len(mean) / (time.perf_counter() - fitted)
            p = PredictiveNormal(mean, std, np.zeros_like(std))
            scores = nll(rows.y_test, p), rmse(rows.y_test, p)
            yield Score(data, f"{name}, k = {k}", len(rows.x), fitted - start, processor, rate, *scores)
