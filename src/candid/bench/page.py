"""The page of a benchmark of accuracy, in Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from candid.bench.comparison import Comparison, compare_with
from candid.bench.markdown import GOOD, NOTHING, figure, number, table
from candid.bench.paired import paired_test
from candid.bench.published import PublishedTable, read_published
from candid.bench.runner import Outcome
from candid.bench.site_weights import learned_weights, weight_table
from candid.bench.spec import LENGTHSCALES, Budget, Spec

__all__ = ["page"]

PAIRS = (
    "One row of the table against another on the same splits: the mean difference of their NLLs, and how likely a "
    "difference as far below zero would be if there were none (Wilcoxon's signed-rank test, one-sided)."
)
TRAINING = (
    "The objective is the method's own, per training row (the smaller the better): where training starts and where it "
    "ends. The noise share is the part of the predictive variance that the model calls noise."
)
LENGTHS = (
    "Ours are those of the fitted kernels in units of standardised inputs; where features have their own, their "
    "geometric mean. Published ones are in units of inputs that are scaled in another way."
)
WEIGHTS = (
    "What the sites of a model count in its predictive mixture, from the largest weight on, averaged over splits. The "
    "sites in use are as many as would have the same entropy if all counted alike; with one, predictions are normal."
)
CHOICE = (
    "NLL of the validation rows of the first split for each value that was tried, with a small model; the best one is "
    "used for all splits."
)


def page(spec: Spec, name: str, budget: Budget, outcomes: Sequence[Outcome]) -> str:
    """All tables: one for each metric, then lengthscales, sites, how training went and what was chosen."""
    published = read_published(spec.published)
    parts = [f"# {spec.title}", _introduction(spec, name, budget, outcomes)]
    for metric, title in spec.metrics.items():
        comparisons = compare_with(published, outcomes, metric)
        parts += [f"## {title}", _summary(comparisons), _metric_table(comparisons)]
    if any(metric in LENGTHSCALES for metric, _, _ in published):
        parts += ["## Lengthscales", LENGTHS, _lengthscale_table(published, outcomes)]
    of_targets = [entry for entry in outcomes if "nll_of_targets" in entry.record]
    if of_targets:
        parts += ["## NLL of each target", _target_table(of_targets)]
    weighted = learned_weights(outcomes)
    if weighted:
        parts += ["## Quadrature weights", WEIGHTS, weight_table(weighted)]
    if spec.pairs:
        parts += ["## Pairs", PAIRS, _pair_table(spec, outcomes)]
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
    units = f" in {spec.targets} units" if spec.task == "regression" else ""
    if spec.several_outputs:
        units += ", averaged over targets"
    splits = "1 split" if len(budget.splits) == 1 else f"{len(budget.splits)} splits"
    return (
        f"Published: {spec.reference}. {spec.protocol}.\n\n"
        f"Ours: budget {name!r}, {_sizes(budget)}, {splits} ({', '.join(map(str, budget.splits))}), {spec.recipe}; "
        f"{' / '.join(map(str, threads))} threads, {'; '.join(versions)}.\n\n"
        f"Metrics are those of the test rows{units}, mean ± standard error over splits, and the smaller "
        f"the better. {GOOD} marks what is at least as good as published. Seconds are those of one whole fit, the "
        "starting point included."
    )


def _sizes(budget: Budget) -> str:
    """The number of inducing points, with the data sets where they differ."""
    if not isinstance(budget.n_inducing, Mapping):
        return budget.size
    groups: dict[int, list[str]] = {}
    for name in budget.data:
        groups.setdefault(budget.n_inducing[name], []).append(name)
    return "M = " + ", ".join(f"{size} ({', '.join(names)})" for size, names in sorted(groups.items()))


def _summary(comparisons: Sequence[Comparison]) -> str:
    judged = [entry for entry in comparisons if entry.at_least_as_good is not None]
    if not judged:
        return "Nothing is published to compare with."
    good = sum(bool(entry.at_least_as_good) for entry in judged)
    return f"At least as good as published: {good} of {len(judged)}."


def _metric_table(comparisons: Sequence[Comparison]) -> str:
    header = ("data", "method", "ours", "published", "difference", "", "epochs", "seconds")
    rows = [
        (
            entry.data,
            entry.method,
            figure(entry.ours) if entry.n_splits else "failed",
            figure(entry.published),
            number(entry.difference, entry.decimals, sign=True),
            GOOD if entry.at_least_as_good else "",
            number(entry.epochs, 0),
            number(entry.seconds, 1),
        )
        for entry in comparisons
    ]
    return table(header, rows)


def _lengthscale_table(published: PublishedTable, outcomes: Sequence[Outcome]) -> str:
    columns = [compare_with(published, outcomes, metric) for metric in LENGTHSCALES]
    titles = [f"{title}, {side}" for title in LENGTHSCALES.values() for side in ("ours", "published")]
    rows = []
    for entries in zip(*columns, strict=True):
        figures = [figure(side) for entry in entries for side in (entry.ours, entry.published)]
        rows.append((entries[0].data, entries[0].method, *figures))
    return table(("data", "method", *titles), rows)


def _target_table(outcomes: Sequence[Outcome]) -> str:
    rows = [
        (entry.fit.data, entry.fit.name, str(entry.fit.split), ", ".join(map(number, entry.record["nll_of_targets"])))
        for entry in outcomes
    ]
    return table(("data", "method", "split", "NLL"), rows)


def _pair_table(spec: Spec, outcomes: Sequence[Outcome]) -> str:
    found = [(pair, paired_test(outcomes, data, *pair)) for pair in spec.pairs for data in [*_data(outcomes), None]]
    rows = [
        (
            test.data or "all of them",
            f"{first} − {second}",
            str(test.n_pairs),
            number(test.difference, sign=True),
            number(test.probability),
        )
        for (first, second), test in found
        if test is not None
    ]
    return table(("data", "rows", "fits", "difference of NLLs", "p"), rows)


def _data(outcomes: Sequence[Outcome]) -> list[str]:
    return list(dict.fromkeys(entry.fit.data for entry in outcomes))


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
            entry.fit.name,
            str(entry.fit.split),
            _chosen(spec, entry),
            *(
                number(entry.record.get(column))
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
        (entry.fit.data, entry.fit.name, _chosen(spec, entry), number(entry.record.get("validation_nll")))
        for entry in tries
    ]
    return table(("data", "method", "value", "validation NLL"), rows, left=3)


def _chosen(spec: Spec, entry: Outcome) -> str:
    """The parameter that the paper chose on validation rows, and its value here."""
    grid = spec.grids.get(entry.fit.name)
    return NOTHING if grid is None else f"{grid.parameter} = {entry.record['parameters'][grid.parameter]:g}"


def _name(entry: Outcome) -> str:
    purpose = "" if entry.fit.purpose == "result" else f" ({entry.fit.purpose} of a parameter)"
    return f"{entry.fit.data}, {entry.fit.name}, split {entry.fit.split}{purpose}"
