"""A weakness of nearest neighbours: every row has a twin nearby."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from candid.bench.studies.findings import Findings, Panel, Record
from candid.bench.studies.tables import StudyTable, study_tables
from candid.estimators import make_gp
from candid.families import metric_of
from candid.metrics import nll, rmse

__all__ = ["Duplicates", "duplicates", "with_twins"]

# Standard deviation of the difference between a row and its twin, in inputs and targets, in standard deviations.
DIFFERENCE = 0.01
TITLE = "Degenerate tables: every row has a twin"


@dataclass(frozen=True)
class Duplicates:
    """How large the study is: tables, their rows, neighbours, inducing points."""

    data: tuple[str, ...] | None = None
    n_rows: int = 1000
    k: int = 64
    n_inducing: int = 256
    seed: int = 0


def duplicates(size: Duplicates, tell: Callable[[str], None] = lambda text: None) -> Findings:
    """Fit LOO-k and SVGP to tables, and to the same with a twin of every row."""
    records: list[Record] = []
    tables = study_tables(size.data, size.n_rows, size.seed)
    for original in tables:
        for table, state in ((original, "original"), (with_twins(original, size.seed), "with twins")):
            for name, model in _models(size).items():
                tell(f"{table.name}, {state}, {name} …")
                model.fit(table.x, table.y)
                p, lengths = model.predict_distribution(table.x_test), metric_of(model.kernel_, table.x.shape[1])
                scores = {"NLL": nll(table.y_test, p), "RMSE": rmse(table.y_test, p)}
                scores["lengthscale"] = float(np.exp(np.log(lengths.detach().double().numpy()).mean()))
                records.append({"data": table.name, "table": state, "model": name, **scores})
    description = (
        f"{', '.join(table.name for table in tables)}, up to {size.n_rows:,} training rows each; with twins, every one "
        f"of them is there twice, once with noise of standard deviation {DIFFERENCE} in inputs and targets. NLL and "
        "RMSE of test rows and the geometric mean of the lengthscales, in standardised units. A row whose twin is "
        "beside it is known from its twin, so leave-one-out densities have no use for anything farther away, and "
        "prefer short lengthscales."
    )
    panels = [_panel(records, metric) for metric in ("NLL", "RMSE", "lengthscale")]
    return Findings(TITLE, description, records, records, panels)


def with_twins(table: StudyTable, seed: int) -> StudyTable:
    """The same table with a noisy copy of each training row."""
    rng = np.random.default_rng(seed)
    x, y = (np.concatenate([part, part + DIFFERENCE * rng.standard_normal(part.shape)]) for part in (table.x, table.y))
    return replace(table, x=x, y=y)


def _models(size: Duplicates) -> dict[str, Any]:
    shared = {"random_state": size.seed, "verbose": False, "standardize": False}
    return {
        f"loo-{size.k}": make_gp("loo-k", n_neighbors=size.k, **shared),
        f"svgp-{size.n_inducing}": make_gp("svgp", n_inducing=size.n_inducing, **shared),
    }


def _panel(records: list[Record], metric: str) -> Panel:
    curves = {}
    states = list(dict.fromkeys(str(record["table"]) for record in records))
    for name, model in dict.fromkeys((str(record["data"]), str(record["model"])) for record in records):
        line = [record for record in records if (record["data"], record["model"]) == (name, model)]
        curves[f"{name}, {model}"] = (list(range(len(states))), [float(record[metric]) for record in line])
    title = f"Test {metric}" if metric in ("NLL", "RMSE") else "Lengthscales"
    return Panel(title, "", metric, curves, {}, ticks=states, log_y=metric != "NLL")
