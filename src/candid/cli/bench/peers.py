"""``candid bench peers``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from candid.bench.markdown import number
from candid.bench.markdown import table as markdown_table
from candid.bench.peers import PEERS, Score, installed, measure_peers
from candid.bench.protocol import load_data, make_parts
from candid.bench.specs import find_spec
from candid.cli.bench.options import names, whole_numbers
from candid.cli.console import collected_warnings, note, output, result_table, working
from candid.cli.environment import thread_count, versions

__all__ = ["peers"]

COLUMNS = ("data", "model", "rows", "fit, s", "fit, CPU s", "rows predicted per s", "test NLL", "test RMSE")
SPEC = "loo/table7"
# Neighbours that other libraries recommend, or that their examples have.
THEIRS = {"GPBoost Vecchia": 20, "MuyGPyS": 50}


def peers(
    data: Annotated[str, typer.Option(help="Data sets, with commas.")] = "kin40k,protein",
    rows: Annotated[int | None, typer.Option(min=20, help="Rows of each that are used, at most.")] = None,
    models: Annotated[str | None, typer.Option(help="Only these models, with commas.")] = None,
    neighbours: Annotated[str, typer.Option(help="Our numbers of neighbours, with commas.")] = "64",
    split: Annotated[int, typer.Option(min=0, help="Seed of the split and of the fits.")] = 0,
    output_dir: Annotated[
        Path | None, typer.Option("--output", help="Directory of page and figures; by default one in candid-bench.")
    ] = None,
) -> None:
    """Nearest-neighbour GPs of other libraries (GPBoost, MuyGPyS) beside ours: seconds, and scores of test rows."""
    console, spec = output(), find_spec(SPEC)
    wanted = _wanted(names(models, "--models"))
    missing = [name for name in wanted if name not in installed()]
    if missing:
        note(console, f"not installed: {', '.join(missing)}; pip install 'candid-gp[peers]' brings them")
    ours = whole_numbers(neighbours, "--neighbours")
    chosen = [(name, k) for name in wanted if name not in missing for k in ([THEIRS[name]] if name in THEIRS else ours)]
    tables = load_data(names(data, "--data") or [])
    parts = {name: make_parts(entry, split, spec.proportions, most_rows=rows) for name, entry in tables.items()}
    directory = output_dir or Path("candid-bench") / "peers"
    directory.mkdir(parents=True, exist_ok=True)
    scores: list[Score] = []
    with collected_warnings(), working("Fitting …") as tell:
        for score in measure_peers(parts, chosen, split, tell):
            scores.append(score)
            _write(directory, scores)
    table = result_table("Nearest neighbours", *COLUMNS)
    for row in _rows(scores):
        table.add_row(*row)
    console.print(table)
    console.print(f"Written to {escape(str(directory))}: peers.md, peers.json", soft_wrap=True)


def _wanted(chosen: Sequence[str] | None) -> list[str]:
    strange = [name for name in chosen or [] if name not in PEERS]
    if strange:
        raise ValueError(f"there is no model {strange[0]!r}; --models knows {', '.join(PEERS)}")
    return list(PEERS if chosen is None else chosen)


def _rows(scores: Sequence[Score]) -> list[tuple[str, ...]]:
    return [
        (
            score.data,
            score.model,
            f"{score.n_rows:,}",
            f"{score.fit:.1f}",
            f"{score.processor:.1f}",
            f"{score.rows_per_second:,.0f}",
            number(score.nll),
            number(score.rmse),
        )
        for score in scores
    ]


def _write(directory: Path, scores: Sequence[Score]) -> None:
    """All that is known so far."""
    facts = {"threads": thread_count(), **versions()}
    introduction = (
        "Every model fits the same standardised training rows and predicts the same test rows, one model after the "
        f"other. {', '.join(f'{name} {value}' for name, value in facts.items() if value)}."
    )
    page = ["# Nearest neighbours here and elsewhere", introduction, markdown_table(COLUMNS, _rows(scores))]
    (directory / "peers.md").write_text("\n\n".join(page) + "\n", encoding="utf-8")
    content = {"machine": facts, "scores": [asdict(score) for score in scores]}
    (directory / "peers.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
