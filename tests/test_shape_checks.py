"""While tests run, shapes are checked at the first step of a training run, and outside of it."""

from __future__ import annotations

import jaxtyping
import pytest
import torch

from candid.engines import Plan, train
from candid.engines.moment import Moment
from candid.linalg import cholesky
from small_models import random_rows, sparse_problem


def test_later_steps_are_not_checked(monkeypatch):
    rows, seen, evaluate = random_rows(20), [], Moment.__call__

    def watched(moment: Moment) -> float:
        seen.append((moment.step, not jaxtyping.config.jaxtyping_disable))
        return evaluate(moment)

    monkeypatch.setattr(Moment, "__call__", watched)
    train(sparse_problem(rows, "full", "elbo"), rows, Plan({"all": "adam"}, 3, len(rows)))
    assert seen == [(0, True), (1, False), (2, False)]
    with pytest.raises(jaxtyping.TypeCheckError, match="cholesky"):
        cholesky(torch.ones(2, 3))
