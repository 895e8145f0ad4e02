"""``candid bench study``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

import typer
from rich.markup import escape

from candid.bench.studies import (
    Duplicates,
    Findings,
    Misspecification,
    NeighbourNumbers,
    ObjectiveCurves,
    draw_panels,
    duplicates,
    misspecification,
    neighbour_numbers,
    objective_curves,
)
from candid.cli.bench.options import names
from candid.cli.console import collected_warnings, note, output, result_table, working

__all__ = ["study"]


class Study(StrEnum):
    """The studies by name."""

    misspecification = "misspecification"
    objectives = "objectives"
    neighbours = "neighbours"
    duplicates = "duplicates"


#: What makes a study, how large it is by default, and how large with --quick.
STUDIES: Mapping[str, tuple[Callable[..., Findings], type, Mapping[str, Any]]] = MappingProxyType(
    {
        "misspecification": (misspecification, Misspecification, {"n_rows": 60, "strengths": (0.0, 2.0), "k": 16}),
        "objectives": (objective_curves, ObjectiveCurves, {"n_rows": 60, "n_values": 9, "k": 16, "n_inducing": 10}),
        "neighbours": (neighbour_numbers, NeighbourNumbers, {"n_rows": 80, "numbers": (4, 8, 16)}),
        "duplicates": (duplicates, Duplicates, {"n_rows": 60, "k": 16, "n_inducing": 20}),
    }
)


def study(
    name: Annotated[Study, typer.Argument(help="Which one.")],
    data: Annotated[
        str | None, typer.Option(help="Data sets, with commas, instead of generated tables (one for objectives).")
    ] = None,
    rows: Annotated[int | None, typer.Option(min=20, help="Training rows, at most.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Very small: only to see that it works.")] = False,
    seed: Annotated[int, typer.Option(min=0, help="Of tables and fits.")] = 0,
    output_dir: Annotated[Path | None, typer.Option("--output", help="Directory of page, figures and picture.")] = None,
) -> None:
    """Repeat a study of the paper on leave-one-out losses: what they do where a method may be weak."""
    make, kind, small = STUDIES[name]
    options: dict[str, Any] = {**(small if quick else {}), **_data(name, data), "seed": seed}
    if rows is not None:
        options["n_rows"] = rows
    with collected_warnings(), working("Fitting …") as tell:
        findings = make(kind(**options), tell)
    _show(findings)
    directory = output_dir or Path("candid-bench") / f"study-{name}"
    written = _write(findings, directory)
    output().print(f"Written to {escape(str(directory))}: {', '.join(written)}", soft_wrap=True)


def _data(study: str, text: str | None) -> dict[str, Any]:
    chosen = names(text, "--data")
    if chosen is None:
        return {}
    if study == "misspecification":
        raise ValueError("this study warps the inputs of a function that it generates: leave --data out")
    if study != "objectives":
        return {"data": tuple(chosen)}
    if len(chosen) > 1:
        raise ValueError(f"this study is of one data set, and --data names {len(chosen)}")
    return {"data": chosen[0]}


def _show(findings: Findings) -> None:
    shown = result_table(findings.title, *findings.summary[0])
    for row in findings.summary_rows():
        shown.add_row(*row)
    output().print(shown)


def _write(findings: Findings, directory: Path) -> list[str]:
    """The names of the files."""
    directory.mkdir(parents=True, exist_ok=True)
    findings.write_csv(directory / "figures.csv")
    picture: str | None = "study.png"
    try:
        draw_panels(findings.panels, findings.title).savefig(directory / picture)
    except ImportError as error:
        note(output(), f"there is no picture: {error}")
        picture = None
    (directory / "study.md").write_text(findings.page(picture), encoding="utf-8")
    return ["study.md", "figures.csv", *([picture] if picture else [])]
