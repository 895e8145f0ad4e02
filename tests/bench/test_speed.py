"""The speed benchmark compares like with like, and counts honestly."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from candid.bench import Case, default_cases, measure
from candid.bench import contenders as contenders_room
from candid.bench.case import Sample
from candid.bench.contenders import gpytorch_contender, our_contender
from candid.bench.timing import interleaved_medians

CASES = [Case(method, n_inducing=12, n_features=3, batch_size=40) for method in ("svgp", "ppgpr-chol", "ppgpr-mf")]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.method)
def test_both_sides_compute_the_same(case):
    sample = Sample.draw(case, n_new=30)
    ours, theirs = our_contender(case, sample), gpytorch_contender(case, sample)
    assert theirs is not None
    # GPyTorch starts q(u) at the prior with 0.001 of noise, and adds a jitter of 1e-4.
    for (mean, variance), (foreign_mean, foreign_variance) in zip(
        [ours.predictions["float32"](), ours.predictions["float64"]()],
        2 * [theirs.predictions["float32"]()],
        strict=True,
    ):
        torch.testing.assert_close(mean.squeeze(-1).float(), foreign_mean, atol=0.02, rtol=0)
        torch.testing.assert_close(variance.squeeze(-1).float(), foreign_variance, atol=0.02, rtol=0)
    losses = [[contender.step() for _ in range(20)] for contender in (ours, theirs)]
    assert losses[0][0] == pytest.approx(losses[1][0], rel=0.01)
    assert losses[0][-1] == pytest.approx(losses[1][-1], rel=0.01)
    assert losses[0][-1] < losses[0][0]


def test_measurements_without_gpytorch(monkeypatch):
    monkeypatch.setattr(contenders_room, "find_spec", lambda name: None)
    (entry,) = measure(CASES[:1], repeats=1, n_new=5)
    assert entry.step_gpytorch is None
    assert entry.predict_gpytorch is None
    assert min(entry.step, entry.predict32, entry.predict64, entry.gemm_rate) > 0


def test_measurements_with_gpytorch():
    told = []
    (entry,) = measure(CASES[1:2], repeats=1, n_new=5, tell=told.append)
    assert entry.step_gpytorch is not None
    assert entry.step_gpytorch > 0
    assert "ppgpr-chol" in told[0]


def test_flops_of_a_step():
    # At M = B = 1000, D = 26: 10 or 4 GF with the batch, 2.3 GF for the cubic part, 0.26 GF for distances.
    assert Case("svgp", 1000, 26).flops() == pytest.approx(12.59e9, rel=1e-3)
    assert Case("ppgpr-mf", 1000, 26).flops() == pytest.approx(6.59e9, rel=1e-3)


def test_contenders_take_turns():
    calls = []
    interleaved_medians({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, repeats=3, warm_up=1)
    assert calls == ["a", "b", "a", "b", "a", "b", "a", "b"]


def test_default_sizes():
    assert {case.n_inducing for case in default_cases(quick=True)} == {100, 300}
    assert {case.n_inducing for case in default_cases()} == {100, 300, 1000}


def test_sample_is_shared_and_repeatable():
    first, second = (Sample.draw(CASES[0], n_new=4) for _ in range(2))
    np.testing.assert_array_equal(first.points, second.points)
    assert first.new_x.shape == (4, 3)
