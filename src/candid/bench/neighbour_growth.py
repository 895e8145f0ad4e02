"""How the time of nearest-neighbour GPs grows with the number of rows: of an index, a step and a query."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from candid.datasets import available, load
from candid.engines import Problem, Rows
from candid.families import Neighbours, make_mean
from candid.kernels import make_kernel
from candid.likelihoods import Gaussian

__all__ = ["DATA", "Growth", "measure_growth", "sizes_up_to", "table_of"]

#: The data set whose rows are taken where it is on this machine.
DATA = "houseelectric"
GENERATED_FEATURES = 8
QUERIES = 256


@dataclass(frozen=True)
class Growth:
    """Seconds with so many rows: until the first neighbours are found, of a step, and of a row that is predicted."""

    search: str
    n_rows: int
    index: float
    step: float
    query: float


def sizes_up_to(largest: int) -> list[int]:
    """Powers of ten from 1,000 on, and the largest number itself."""
    return [*(10**power for power in range(3, 10) if 10**power < largest), largest]


def table_of(n_rows: int, seed: int = 0) -> tuple[Tensor, Tensor, str]:
    """Up to ``n_rows`` rows in random order, standardised, and where they are from."""
    generator = np.random.default_rng(seed)
    if DATA in (*available(source="directory"), *available(source="cache")):
        x, y = load(DATA).Xy
        chosen, origin = generator.permutation(len(x))[:n_rows], DATA
        x, y = x[chosen], y[chosen].reshape(len(chosen), -1)[:, :1]
    else:
        origin, x = "generated", generator.standard_normal((n_rows, GENERATED_FEATURES))
        y = np.sin(x.sum(1, keepdims=True)) + 0.3 * generator.standard_normal((n_rows, 1))
    scaled = ((part - part.mean(0)) / (part.std(0) + 1e-12) for part in (x, y))
    inputs, targets = (torch.as_tensor(part, dtype=torch.float32) for part in scaled)
    return inputs, targets, origin


def measure_growth(
    x: Tensor,
    y: Tensor,
    sizes: Sequence[int],
    searches: Sequence[str] = ("exact", "hnsw"),
    k: int = 32,
    batch_size: int = 128,
    repeats: int = 5,
    tell: Callable[[str], None] = lambda text: None,
) -> Iterator[Growth]:
    """Time training and prediction on the first rows of a table; results come as they are found."""
    for n_rows in sizes:
        for search in searches:
            tell(f"{n_rows:,} rows, {search} search …")
            yield _measure(x[:n_rows], y[:n_rows], search, k, batch_size, repeats)


def _measure(x: Tensor, y: Tensor, search: str, k: int, batch_size: int, repeats: int) -> Growth:
    n_rows, n_features = x.shape
    likelihood, weight = Gaussian(0.1), torch.ones(n_rows)
    kernel, mean = make_kernel("matern52", n_features, batch_shape=(1,)), make_mean("constant", n_features, 1)
    family = Neighbours(kernel, mean, x, likelihood.sites(y), weight, k, search=search)
    problem, rows = Problem(family, likelihood, "predictive"), Rows(x, y, weight)
    learned = problem.groups()["all"]
    batches = torch.randint(n_rows, (repeats + 1, batch_size), generator=torch.Generator().manual_seed(0))

    def evaluate(index: Tensor) -> None:
        torch.autograd.grad(problem.loss(rows.batch(index)), learned)

    build = _seconds(lambda: family.rows.nearest(x[:1], k))
    evaluate(batches[-1])
    seconds = statistics.median(_seconds(lambda index=index: evaluate(index)) for index in batches[:-1])
    predictor = family.predictor()
    # Near training rows, but none of them.
    queries = x[:QUERIES].double() + 0.01
    predictor.marginal(queries[:1])
    query = statistics.median(_seconds(lambda: predictor.marginal(queries)) for _ in range(repeats)) / len(queries)
    return Growth(search, n_rows, build, seconds, query)


def _seconds(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start
