"""The page of a benchmark of accuracy, in Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from candid.bench.comparison import Comparison, compare_with
from candid.bench.markdown import GOOD, NOTHING, figure, number, table
from candid.bench.published import read_published
from candid.bench.runner import Outcome
from candid.bench.spec import METRICS, Budget, Spec

__all__ = ["page"]

TRAINING = (
    "The objective is the method's own, per training row (the smaller the better): where training starts and where it "
    "ends. The noise share is the part of the predictive variance that the model calls noise."
)
CHOICE = (
    "NLL of the validation rows of the first split for each value that was tried, with a small model; the best one is "
    "used for all splits."
)


def page(spec: Spec, name: str, budget: Budget, outcomes: Sequence[Outcome]) -> str:
    """All tables: one for each metric, then what was chosen and how training went."""
    published = read_published(spec.published)
    parts = [f"# {spec.title}", _introduction(spec, name, budget, outcomes)]
    for metric, title in METRICS.items():
        comparisons = compare_with(published, outcomes, metric)
        parts += [f"## {title}", _summary(comparisons), _metric_table(comparisons)]
    parts += ["## Training", TRAINING, _training_table(spec, outcomes)]
    tries = [entry for entry in outcomes if entry.fit.purpose == "choice"]
    if tries:
        parts += ["## Choice of parameters", CHOICE, _choice_table(spec, tries)]
    failed = [entry for entry in outcomes if entry.record["error"] is not None]
    if failed:
        parts += ["## Fits that failed", "\n".join(f"- {_name(entry)}: {entry.record['error']}" for entry in failed)]
    return "\n\n".join(parts) + "\n"


def _introduction(spec: Spec, name: str, budget: Budget, outcomes: Sequence[Outcome]) -> str:
    threads = sorted({entry.record["threads"] for entry in outcomes})
    versions = sorted({f"candid {entry.record['candid']}, torch {entry.record['torch']}" for entry in outcomes})
    splits = "1 split" if len(budget.splits) == 1 else f"{len(budget.splits)} splits"
    return (
        f"Published: {spec.reference}. {spec.protocol}.\n\n"
        f"Ours: budget {name!r}, M = {budget.n_inducing}, {splits} ({', '.join(map(str, budget.splits))}), our recipe; "
        f"{' / '.join(map(str, threads))} threads, {'; '.join(versions)}.\n\n"
        "Metrics are those of the test rows in standardised units, mean ± standard error over splits, and the smaller "
        f"the better. {GOOD} marks what is at least as good as published. Seconds are those of one whole fit, the "
        "starting point included."
    )


def _summary(comparisons: Sequence[Comparison]) -> str:
    judged = [entry for entry in comparisons if entry.at_least_as_good is not None]
    good = sum(bool(entry.at_least_as_good) for entry in judged)
    return f"At least as good as published: {good} of {len(judged)}."


def _metric_table(comparisons: Sequence[Comparison]) -> str:
    header = ("data", "method", "ours", "published", "difference", "", "epochs", "seconds")
    rows = [
        (
            entry.data,
            entry.method,
            figure(entry.ours) if entry.ours is not None else "failed",
            figure(entry.published),
            number(entry.difference, sign=True),
            GOOD if entry.at_least_as_good else "",
            number(entry.epochs, 0),
            number(entry.seconds, 1),
        )
        for entry in comparisons
    ]
    return table(header, rows)


def _training_table(spec: Spec, outcomes: Sequence[Outcome]) -> str:
    header = (
        "data",
        "method",
        "split",
        "parameters",
        "objective at start",
        "at end",
        "noise share",
        "validation NLL",
        "test NLL",
        "epochs",
        "seconds",
    )
    rows = [
        (
            entry.fit.data,
            entry.fit.method,
            str(entry.fit.split),
            _chosen(spec, entry),
            *(
                number(entry.record[column])
                for column in ("objective_start", "objective_end", "noise_share", "validation_nll", "nll")
            ),
            str(entry.record["epochs"]),
            number(entry.record["seconds"], 1),
        )
        for entry in outcomes
        if entry.fit.purpose == "result" and entry.record["error"] is None
    ]
    return table(header, rows)


def _choice_table(spec: Spec, tries: Sequence[Outcome]) -> str:
    rows = [
        (entry.fit.data, entry.fit.method, _chosen(spec, entry), number(entry.record.get("validation_nll")))
        for entry in tries
    ]
    return table(("data", "method", "value", "validation NLL"), rows, left=3)


def _chosen(spec: Spec, entry: Outcome) -> str:
    """The parameter that the paper chose on validation rows, and its value here."""
    grid = spec.grids.get(entry.fit.method)
    return NOTHING if grid is None else f"{grid.parameter} = {entry.record['parameters'][grid.parameter]:g}"


def _name(entry: Outcome) -> str:
    purpose = "" if entry.fit.purpose == "result" else f" ({entry.fit.purpose} of a parameter)"
    return f"{entry.fit.data}, {entry.fit.method}, split {entry.fit.split}{purpose}"
