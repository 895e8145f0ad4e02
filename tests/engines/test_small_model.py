"""The small model that networks start from."""

from __future__ import annotations

import pytest
import torch

from candid.engines import Rows, fit_small, train
from candid.families import Inducing, make_mean
from candid.kernels import Deep, make_kernel, make_network
from candid.likelihoods import Gaussian
from candid.weights import Full
from small_models import random_rows


def small(rows: Rows, widths=(16, 4), seed: int = 0) -> Inducing:
    n_features, n_outputs = rows.x.shape[1], rows.y.shape[1]
    network = make_network(widths, n_features, seed)
    kernel = Deep(network, make_kernel("rbf", network.width, False, (n_outputs,)))
    points = rows.x[:10].expand(n_outputs, 10, n_features)
    return Inducing(kernel, make_mean("zero", n_features, n_outputs), points, Full(10, (n_outputs,)), 1e-6).to(rows.x)


@torch.no_grad()
def error(family: Inducing, rows: Rows) -> float:
    return float((family.predictor().marginal(rows.x).mean - rows.y).square().mean().sqrt())


def test_it_finds_features_kernel_and_noise():
    rows = random_rows(600, n_features=3)
    family, likelihood = small(rows), Gaussian().to(rows.x)
    fit_small(family, likelihood, None, rows, 0, 1e-3)
    # The function has a noise of standard deviation 0.2.
    assert float(likelihood.noise.value.detach().sqrt()) == pytest.approx(0.2, rel=0.3)
    new = random_rows(300, n_features=3, seed=1)
    assert error(family, new) < 0.27


def test_the_epoch_that_predicts_best_is_kept(monkeypatch):
    """Of a table without any pattern a network can only learn the noise."""
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(80, width, generator=generator).double() for width in (10, 1))
    rows = Rows(x, y, torch.ones(80).double())
    seen = {}

    def watched(problem, rows, plan, held_out):
        seen["held out"], seen["rows"] = held_out, rows
        seen["history"] = train(problem, rows, plan, held_out)

    monkeypatch.setattr("candid.engines.small_model.train", watched)
    family, likelihood = small(rows, widths=(256, 64)), Gaussian().to(rows.x)
    fit_small(family, likelihood, None, rows, 0, 0.0)
    assert (len(seen["held out"]), len(seen["rows"])) == (16, 64)
    assert set(map(tuple, seen["held out"].x.tolist())).isdisjoint(map(tuple, seen["rows"].x.tolist()))
    losses = [record["validation_nll"] for record in seen["history"]]
    assert losses.index(min(losses)) < len(losses) - 1
    assert error(family, seen["rows"]) > 0.3


def test_known_noise_goes_with_the_rows():
    rows = random_rows(60)
    known = torch.linspace(0.01, 0.1, 60).double().unsqueeze(-1)
    rows = Rows(rows.x, rows.y, rows.weight, known)
    likelihood = Gaussian(known=known).to(rows.x)
    fit_small(small(rows), likelihood, None, rows, 0, 1e-3)
    torch.testing.assert_close(likelihood.known, known)


def test_very_few_rows_are_all_needed():
    rows = random_rows(4)
    family = small(Rows(*(part.repeat(3, 1) for part in (rows.x, rows.y)), torch.ones(12).double()))
    fit_small(family, Gaussian().to(rows.x), None, rows, 0, 1e-3)
    assert torch.isfinite(family.predictor().marginal(rows.x).mean).all()


def test_the_same_seed_gives_the_same_network():
    rows = random_rows(60)
    one, two = small(rows), small(rows)
    for family in (one, two):
        fit_small(family, Gaussian().to(rows.x), None, rows, 3, 1e-3)
    for name, tensor in one.state_dict().items():
        assert torch.equal(tensor, two.state_dict()[name]), name
