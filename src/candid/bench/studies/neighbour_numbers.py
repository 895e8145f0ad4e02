"""How predictions of LOO-k depend on k."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from candid.bench.studies.findings import Findings, Panel, Record
from candid.bench.studies.tables import study_tables
from candid.estimators import make_gp
from candid.metrics import nll, rmse

__all__ = ["NeighbourNumbers", "neighbour_numbers"]

TITLE = "Dependence on the number of neighbours"


@dataclass(frozen=True)
class NeighbourNumbers:
    """How large the study is: tables, their rows, numbers of neighbours."""

    data: tuple[str, ...] | None = None
    n_rows: int = 2000
    numbers: tuple[int, ...] = (8, 16, 32, 64, 128, 256)
    seed: int = 0


def neighbour_numbers(size: NeighbourNumbers, tell: Callable[[str], None] = lambda text: None) -> Findings:
    """Fit LOO-k with several k to some tables."""
    tables = study_tables(size.data, size.n_rows, size.seed)
    records: list[Record] = []
    for table in tables:
        for k in size.numbers:
            tell(f"{table.name}, k = {k} …")
            gp = make_gp("loo-k", n_neighbors=k, random_state=size.seed, verbose=False).fit(table.x, table.y)
            p = gp.predict_distribution(table.x_test)
            scores = {"NLL": nll(table.y_test, p), "RMSE": rmse(table.y_test, p)}
            records.append({"data": table.name, "k": k, **scores, "seconds": float(gp.history_[-1]["seconds"])})
    rows = ", ".join(f"{table.name}: {len(table.x):,} × {table.x.shape[1]}" for table in tables)
    description = (
        f"Training rows × features of {rows}. NLL and RMSE of test rows, in standardised units; the curves show what "
        f"they gain over k = {size.numbers[0]}. More neighbours are better, and the gain becomes smaller."
    )
    return Findings(TITLE, description, records, records, [_panel(records, metric) for metric in ("NLL", "RMSE")])


def _panel(records: list[Record], metric: str) -> Panel:
    curves = {}
    for name in dict.fromkeys(str(record["data"]) for record in records):
        line = [record for record in records if record["data"] == name]
        first = float(line[0][metric])
        curves[name] = ([float(r["k"]) for r in line], [float(r[metric]) - first for r in line])
    label = f"test {metric} − that of k = {records[0]['k']}"
    return Panel(f"Test {metric}", "neighbours, k", label, curves, {}, log_x=True)
