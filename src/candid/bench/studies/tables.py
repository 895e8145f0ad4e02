"""Tables that studies are made on: generated ones, and rows of real data sets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from candid.bench.protocol import load_data, make_parts
from candid.datasets import Dataset

__all__ = ["GENERATED", "StudyTable", "study_tables"]

# Shares of rows for training, testing and validation, which studies do not need.
PROPORTIONS = (2.0, 1.0, 0.0)
#: Generated tables: features, typical wavelengths from −1 to 1, standard deviation of the noise.
GENERATED = {"wavy": (2, 3.0, 0.05), "smooth": (4, 0.8, 0.05), "noisy": (6, 0.5, 0.5)}
# Waves that a generated function is made of.
N_WAVES = 200


@dataclass(frozen=True)
class StudyTable:
    """Rows for training and for testing; the former have mean zero and standard deviation one in every column."""

    name: str
    x: np.ndarray
    y: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray


def study_tables(names: Sequence[str] | None, n_rows: int, seed: int) -> list[StudyTable]:
    """Tables with up to ``n_rows`` rows for training and half as many for testing; by default the generated ones."""
    names = list(GENERATED) if names is None else names
    real = load_data([name for name in names if name not in GENERATED])
    n_all = sum(PROPORTIONS) / PROPORTIONS[0] * n_rows
    tables = []
    for name in names:
        data = real[name] if name in real else _generated(name, round(n_all), seed)
        parts = make_parts(data, seed, PROPORTIONS, most_rows=round(n_all))
        tables.append(StudyTable(name, parts.x, parts.y, parts.x_test, parts.y_test))
    return tables


def _generated(name: str, n_rows: int, seed: int) -> Dataset:
    """A random sum of waves, which is nearly a draw of a GP with a squared-exponential kernel, and noise."""
    n_features, frequency, noise = GENERATED[name]
    rng = np.random.default_rng([seed, *name.encode()])
    x = rng.uniform(-1, 1, size=(n_rows, n_features))
    waves = frequency * np.pi / 2 * rng.standard_normal((n_features, N_WAVES))
    signal = np.cos(x @ waves + rng.uniform(0, 2 * np.pi, N_WAVES)) @ rng.standard_normal(N_WAVES)
    signal *= np.sqrt(2 / N_WAVES)
    y = signal + noise * rng.standard_normal(n_rows)
    return Dataset(name, x, y, tuple(f"x{d}" for d in range(n_features)), ("y",), "regression")
