"""Tables and pictures say what the records say."""

from __future__ import annotations

import dataclasses
import math

import pytest

from candid.bench import Outcome, compare_with
from candid.bench.comparison import Comparison
from candid.bench.fit import Fit
from candid.bench.markdown import figure, number, table
from candid.bench.page import page
from candid.bench.paired import paired_test
from candid.bench.picture import draw_comparisons
from candid.bench.published import Figure

PUBLISHED = {
    ("nll", "waves", "map"): Figure(-0.615, 0.007),
    ("nll", "waves", "svgp"): Figure(0.4, None),
}


def outcome(method, split, nll, error=None, purpose="result", data="waves", row=None, **parameters):
    fit = Fit(data, method, split, 10, (15, 3, 2), parameters, purpose, row=row)
    scores = {"nll": nll, "rmse": 0.5, "crps": 0.25, "noise_share": 0.75, "validation_nll": nll + 0.5}
    record = {
        **({} if error else scores),
        "objective_start": 2.0,
        "objective_end": None,
        "epochs": 30,
        "seconds": 12.0 + split,
        "error": error,
        "parameters": {"beta": 0.2, **parameters},
        "threads": 2,
        "candid": "0.1.0",
        "torch": "2.9",
    }
    return Outcome(fit, record)


def test_targets_one_by_one(spec):
    alone, both = outcome("map", 0, 1.0), outcome("svgp", 0, 0.25)
    assert "each target" not in page(spec, "quick", spec.budgets["quick"], [alone])
    both.record["nll_of_targets"] = [-0.5, 1.0]
    text = page(spec, "quick", spec.budgets["quick"], [alone, both])
    assert "| waves | svgp | 0 | −0.500, 1.000 |" in text
    assert "| waves | map | 0 | −" not in text


def test_pairs_of_rows_on_the_same_splits(spec):
    differences = [-0.1, -0.2, 0.05, -0.3, -0.15]
    outcomes = [outcome("map", split, 1.0 + change) for split, change in enumerate(differences)]
    outcomes += [outcome("svgp", split, 1.0) for split in range(5)]
    # A split that only one of them has, a fit that failed, and another data set.
    outcomes += [outcome("map", 5, 9.0), outcome("svgp", 6, 0.0, error="no"), outcome("map", 6, 9.0)]
    outcomes += [outcome("map", 0, 0.0, data="hills"), outcome("svgp", 0, 2.0, data="hills")]
    test = paired_test(outcomes, "waves", "map", "svgp")
    assert test is not None
    assert (test.n_pairs, test.difference) == (5, pytest.approx(-0.14))
    # Of the 32 ways to give signs to ranks, two have a sum of positive ranks of at most 1.
    assert test.probability == pytest.approx(2 / 32)
    everywhere, alone = (paired_test(outcomes, data, "map", "svgp") for data in (None, "hills"))
    assert everywhere is not None
    assert everywhere.n_pairs == 6
    assert alone is not None
    assert alone.probability is None
    assert paired_test(outcomes, "waves", "map", "ppgpr-mf") is None
    text = page(dataclasses.replace(spec, pairs=(("map", "svgp"),)), "quick", spec.budgets["quick"], outcomes)
    assert "| waves | map − svgp | 5 | −0.140 | 0.062 |" in text
    assert "| all of them | map − svgp | 6 |" in text


def test_means_and_standard_errors_over_splits():
    outcomes = [
        outcome("map", 0, -0.60),
        outcome("svgp", 0, 0.4004),
        outcome("map", 1, -0.70),
        outcome("map", 2, -0.65),
    ]
    outcomes += [outcome("map", 0, 9.0, purpose="choice"), outcome("map", 3, 0.0, error="ValueError: no")]
    first, second = compare_with(PUBLISHED, outcomes, "nll")
    assert (first.data, first.method, first.n_splits, first.n_failed) == ("waves", "map", 3, 1)
    assert first.ours.mean == pytest.approx(-0.65)
    # Standard deviation 0.05, over √3.
    assert first.ours.standard_error == pytest.approx(0.05 / math.sqrt(3))
    assert first.difference == pytest.approx(-0.035)
    assert first.at_least_as_good
    assert (first.epochs, first.seconds) == (30, 13.0)
    # 0.4004 is 0.400 as papers print it.
    assert second.ours.standard_error is None
    assert second.at_least_as_good
    assert not dataclasses.replace(second, ours=Figure(0.4006, None)).at_least_as_good


def test_figures_are_compared_with_the_decimals_of_the_paper():
    published = {("nll", "waves", "map"): Figure(0.0576, None, 4)}
    (better,) = compare_with(published, [outcome("map", 0, 0.05758)], "nll")
    (worse,) = compare_with(published, [outcome("map", 0, 0.05766)], "nll")
    # With three decimals both would be 0.058.
    assert better.at_least_as_good
    assert not worse.at_least_as_good
    assert (figure(worse.ours), figure(worse.published)) == ("0.0577", "0.0576")


def test_rows_are_told_apart_by_their_names():
    outcomes = [outcome("dcsvgp", 0, 0.1, row="dcsvgp β₂=0"), outcome("dcsvgp", 0, 0.2, row="dcsvgp β₂=1")]
    first, second = compare_with({}, outcomes, "nll")
    assert (first.method, first.ours.mean) == ("dcsvgp β₂=0", 0.1)
    assert (second.method, second.ours.mean) == ("dcsvgp β₂=1", 0.2)


def test_what_is_not_there_is_not_judged():
    failed, unpublished = compare_with(PUBLISHED, [outcome("map", 0, 0, error="x"), outcome("fitc", 0, 0.1)], "nll")
    assert failed.ours is None
    for entry in (failed, unpublished):
        assert entry.difference is None
        assert entry.at_least_as_good is None


def test_numbers_in_markdown():
    assert number(-0.6154) == "−0.615"
    assert number(0.02, sign=True) == "+0.020"
    assert number(None) == "–"
    assert figure(Figure(-0.615, 0.007)) == "−0.615 ± 0.007"
    assert figure(Figure(0.42, None)) == "0.420"
    assert table(("a", "b", "c"), [("1", "2", "3")]) == "| a | b | c |\n| --- | --- | ---: |\n| 1 | 2 | 3 |"


def test_a_page(spec):
    outcomes = [
        outcome("ppgpr-chol", 0, -0.9, data="pol"),
        outcome("ppgpr-chol", 1, -1.0, data="pol"),
        outcome("svgp", 0, -0.6, data="pol"),
        outcome("ppgpr-mf", 0, 0.2, purpose="choice", beta=0.05),
        outcome("map", 0, 0.0, error="ValueError: too bad"),
    ]
    text = page(spec, "quick", spec.budgets["standard"], outcomes)
    assert "| pol | ppgpr-chol | −0.950 ± 0.050 | −0.866 ± 0.005 | −0.084 | ✓ | 30 | 12.5 |" in text
    assert "| pol | svgp | −0.600 | −0.651 ± 0.005 | +0.051 |  | 30 | 12.0 |" in text
    assert "| waves | map | failed | – | – |  | – | – |" in text
    assert "At least as good as published: 1 of 2." in text
    assert "- waves, map, split 0: ValueError: too bad" in text
    assert "| waves | ppgpr-mf | beta = 0.05 | 0.700 |" in text
    assert "| pol | ppgpr-chol | 0 | – | 2.000 | – | 0.750 | −0.400 | −0.900 | 30 | 12.0 |" in text
    for title in ("NLL", "RMSE", "CRPS", "Training", "Choice of parameters", "Fits that failed"):
        assert f"\n## {title}\n" in text
    assert "## Fits" not in page(spec, "quick", spec.budgets["quick"], outcomes[:2])


def test_a_page_with_lengthscales(spec):
    table = dataclasses.replace(spec, published="dc_table2", parameters={"kernel": "rbf", "beta": 1.0})
    budget = dataclasses.replace(spec.budgets["quick"], data=("pol", "kin40k"), n_inducing={"pol": 500, "kin40k": 800})
    outcomes = [outcome("dcsvgp", split, -0.4, data="pol") for split in (0, 1)] + [outcome("svgp", 0, 0.4, data="pol")]
    outcomes[0].record.update(lengthscale=2.0, mean_lengthscale=0.5)
    outcomes[1].record.update(lengthscale=3.0, mean_lengthscale=0.5)
    text = page(table, "quick", budget, outcomes)
    assert "M = 500 (pol), 800 (kin40k), 1 split (0), our recipe with kernel = rbf, beta = 1.0;" in text
    assert "| pol | dcsvgp | 0.500 ± 0.000 | 0.291 | 2.500 ± 0.500 | 3.304 |" in text
    # An older record does not know its lengthscale.
    assert "| pol | svgp | – | – | – | 0.976 |" in text
    assert "## CRPS\n\nNothing is published to compare with.\n" in text
    assert "## Lengthscales" not in page(spec, "quick", spec.budgets["quick"], outcomes)


def test_the_picture_has_both_figures(tmp_path):
    entries = [
        Comparison("pol", "map", Figure(-0.6, 0.01), Figure(-0.615, 0.007), 3, 0, 30, 1.0),
        Comparison("pol", "svgp", None, Figure(-0.651, 0.005), 0, 1, None, None),
        Comparison("bike", "svgp", Figure(-0.8, None), None, 1, 0, 30, 1.0),
    ]
    drawn = draw_comparisons(entries, "test NLL", "Title")
    pol, bike = drawn.axes
    assert [text.get_text() for text in pol.get_yticklabels()] == ["map", "svgp"]
    ours, published = (container.lines[0].get_data() for container in pol.containers)
    assert (list(ours[0]), list(ours[1])) == ([-0.6], [0])
    assert (list(published[0]), list(published[1])) == ([-0.615, -0.651], [0, 1])
    ours, published = (container.lines[0].get_data() for container in bike.containers)
    assert (list(ours[0]), list(ours[1])) == ([-0.8], [1])
    assert len(published[0]) == 0
    drawn.savefig(tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ValueError, match="no results"):
        draw_comparisons([], "test NLL", "Title")
