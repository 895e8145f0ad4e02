"""``candid bench run``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from candid.bench import Budget, Outcome, Results, Runner, Spec, compare_with, find_spec, read_published
from candid.bench.markdown import GOOD, figure, number
from candid.bench.page import page
from candid.bench.picture import draw_comparisons
from candid.bench.plan import known_methods
from candid.bench.protocol import load_data
from candid.bench.site_weights import draw_weights, learned_weights
from candid.bench.spec import pick
from candid.bench.sweep_picture import COLUMNS, draw_sweep
from candid.cli.bench.options import names
from candid.cli.bench.progress import RunProgress
from candid.cli.console import count, note, output, result_table

__all__ = ["run"]

INTERRUPTED = 130


def run(
    spec: Annotated[str, typer.Argument(help="Name from 'candid bench list', e.g. ppgpr/table3.")],
    budget: Annotated[str, typer.Option(help="How much of it: quick or standard.")] = "quick",
    data: Annotated[str | None, typer.Option(help="Only these data sets, with commas.")] = None,
    methods: Annotated[str | None, typer.Option(help="Only these methods, with commas.")] = None,
    splits: Annotated[int | None, typer.Option(min=1, help="Number of random splits.")] = None,
    inducing: Annotated[int | None, typer.Option(min=1, help="Number of inducing points.")] = None,
    epochs: Annotated[int | None, typer.Option(min=0, help="Epochs of each fit, instead of our recipe's.")] = None,
    choice_inducing: Annotated[
        int | None, typer.Option(min=1, help="Inducing points of the small models that choose parameters.")
    ] = None,
    choice_epochs: Annotated[int | None, typer.Option(min=0, help="Epochs of these small models.")] = None,
    jobs: Annotated[
        int, typer.Option(min=1, help="Fits at a time, which share the threads; two are done sooner than one by one.")
    ] = 1,
    output_dir: Annotated[
        Path | None, typer.Option("--output", help="Directory of the results; by default one in candid-bench.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume/--fresh", help="Go on with the results that are there, or put them aside.")
    ] = True,
) -> None:
    """Fit methods on data sets as a paper did, and set the results beside the published ones.

    Fits that are in the results of a benchmark in a directory beside this one are not done again.
    """
    chosen, rows = find_spec(spec), names(methods, "--methods")
    content = pick(chosen.budgets, budget, "budget").narrowed(
        names(data, "--data"), rows and chosen.rows_called(rows), splits
    )
    content = _resized(content, inducing, epochs, choice_inducing, choice_epochs)
    directory = output_dir or Path("candid-bench") / f"{chosen.name.replace('/', '-')}-{budget}"
    console = output()
    known, unknown = known_methods(chosen, content)
    if unknown:
        note(console, f"skipped, because this version does not have them: {', '.join(unknown)}")
    if not known:
        raise ValueError("no method is left; 'candid methods' lists them")
    tables = load_data(content.data, chosen.task, chosen.several_outputs)
    path = directory / "results.jsonl"
    others = sorted(set(directory.absolute().parent.glob(f"*/{path.name}")) - {path.absolute()}) if resume else []
    if not resume and path.is_file():
        path.replace(path.with_name("results-before.jsonl"))
    with RunProgress(console) as progress:
        runner = Runner(chosen, content, tables, Results(path, others), progress, jobs)
        try:
            runner.run()
        except KeyboardInterrupt:
            if runner.outcomes:
                _write(console, directory, chosen, budget, content, runner.outcomes)
            note(console, "interrupted; the same command goes on from here")
            raise typer.Exit(INTERRUPTED) from None
    _write(console, directory, chosen, budget, content, runner.outcomes)


def _resized(
    budget: Budget, inducing: int | None, epochs: int | None, choice_inducing: int | None, choice_epochs: int | None
) -> Budget:
    length = budget.max_epochs if epochs is None else epochs
    budget = replace(budget, n_inducing=inducing or budget.n_inducing, max_epochs=length)
    if budget.choice is None:
        if choice_inducing is not None or choice_epochs is not None:
            raise ValueError("this budget chooses no parameters: leave --choice-inducing and --choice-epochs out")
        return budget
    n_inducing = choice_inducing or budget.choice.n_inducing
    max_epochs = budget.choice.max_epochs if choice_epochs is None else choice_epochs
    return replace(budget, choice=replace(budget.choice, n_inducing=n_inducing, max_epochs=max_epochs))


def _write(
    console: Console, directory: Path, spec: Spec, name: str, budget: Budget, outcomes: Sequence[Outcome]
) -> None:
    """The page, the pictures, and a table on the screen."""
    table = result_table("NLL of test rows", "data", "method", "ours", "published", "difference", "seconds")
    for entry in compare_with(read_published(spec.published), outcomes, "nll"):
        good = f" {GOOD}" if entry.at_least_as_good else ""
        ours = figure(entry.ours) if entry.ours is not None else "[red]failed[/]"
        difference = number(entry.difference, entry.decimals, sign=True) + good
        table.add_row(entry.data, entry.method, ours, figure(entry.published), difference, number(entry.seconds, 1))
    console.print(table)
    failed = sum(entry.record["error"] is not None for entry in outcomes)
    if failed:
        note(console, f"{count(failed, 'fit')} failed; the reasons are in the files")
    (directory / "results.md").write_text(page(spec, name, budget, outcomes), encoding="utf-8")
    written = ["results.jsonl", "results.md"]
    try:
        written += _draw(directory, spec, f"{spec.title}, {budget.size}", outcomes)
    except (ImportError, ValueError) as error:
        note(console, f"there is no picture: {error}")
    console.print(f"Written to {escape(str(directory))}: {', '.join(written)}", soft_wrap=True)


def _draw(directory: Path, spec: Spec, title: str, outcomes: Sequence[Outcome]) -> list[str]:
    """Write the pictures, and return the names of their files."""
    published = read_published(spec.published)
    if spec.sweep is None:
        pictures = {"nll.png": draw_comparisons(compare_with(published, outcomes, "nll"), "test NLL", title)}
    else:
        columns = {metric: compare_with(published, outcomes, metric) for metric in COLUMNS}
        pictures = {"sweep.png": draw_sweep(spec.sweep, columns, title)}
    weighted = learned_weights(outcomes)
    if weighted:
        pictures["weights.png"] = draw_weights(weighted)
    for name, drawn in pictures.items():
        drawn.savefig(directory / name)
    return list(pictures)
