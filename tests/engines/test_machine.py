from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from candid import make_gp
from candid.engines import loop, machine, pick_device, threads
from candid.engines.steppers import take_step
from candid.families import Inducing, make_mean
from candid.families.conditional import Conditional, decoupled_kernel
from candid.families.decoupled import Decoupled
from candid.families.means import NetworkMean
from candid.kernels import Matern52, Scale
from candid.linalg.crew import crew_size
from candid.weights import WEIGHTS


def test_auto_is_a_device_that_exists():
    device = pick_device("auto")
    assert device.type == ("cuda" if torch.cuda.is_available() else "cpu")
    assert pick_device("cpu") == torch.device("cpu")


@pytest.mark.parametrize("name", ["cuda:99", "abacus"])
def test_a_device_that_does_not_exist(name):
    with pytest.raises(ValueError, match=f"device '{name}' cannot be used here .*device='auto'"):
        pick_device(name)


def test_threads_are_put_back():
    before = torch.get_num_threads()
    with threads(before + 1):
        assert torch.get_num_threads() == before + 1
    assert torch.get_num_threads() == before
    with pytest.raises(RuntimeError), threads(before + 1):
        raise RuntimeError
    assert torch.get_num_threads() == before


def test_none_leaves_threads_alone():
    before = torch.get_num_threads()
    with threads(None):
        assert torch.get_num_threads() == before


@pytest.mark.parametrize(
    ("few", "shares_rows", "most", "expected"),
    [(10**6, True, 4, (1, 1)), (10, False, 4, (2, 0)), (10, True, 4, (1, 2)), (10, True, 1, (2, 0))],
)
def test_small_steps_take_one_thread_and_others_share_rows_out(monkeypatch, few, shares_rows, most, expected):
    """However many the fit has; what is done between steps takes all of these."""
    monkeypatch.setattr(machine, "FEW_COVARIANCES", few)
    monkeypatch.setattr(machine, "MOST_MEMBERS", most)
    monkeypatch.setattr(Inducing, "shares_rows", lambda *arguments: shares_rows)
    x, in_steps, between = np.random.default_rng(0).normal(size=(400, 2)), set(), set()

    def watched(*arguments):
        in_steps.add((torch.get_num_threads(), crew_size()))
        return take_step(*arguments)

    # The start has steps of its own, with neighbours.
    monkeypatch.setattr(loop, "take_step", watched)
    look = lambda record: between.add(torch.get_num_threads())  # noqa: E731
    settings = {"n_inducing": 10, "init": "random", "max_epochs": 2, "n_threads": 2, "random_state": 0}
    make_gp("svgp", callbacks=(look,), **settings).fit(x, np.sin(x[:, 0]))
    assert in_steps == {expected}
    assert between == {2}


def test_what_counts_as_small():
    """Covariances of points with rows and with each other, of all sets of points; a network is never small."""
    kernel, mean = Scale(Matern52(lengthscale=1.0)).build(2, True, (1,)), make_mean("zero", 2, 1)
    points, weights = torch.zeros(1, 10, 2), WEIGHTS["diagonal"](10, (1,))
    assert Inducing(kernel, mean, points, weights, 1e-6).n_covariances(50) == 10 * 60
    assert Decoupled(kernel, mean, points[:, :4], points, weights, 1e-6).n_covariances(50) == 10 * 60 + 4 * 54
    for with_omega, more in ((False, 0), (True, 50**2)):
        family = Conditional(kernel, decoupled_kernel(kernel), mean, points, weights, 1e-6, with_omega=with_omega)
        assert family.n_covariances(50) == 2 * 10 * 60 + more
    assert Inducing(kernel, NetworkMean((3,), 2, 1), points, weights, 1e-6).n_covariances(50) == math.inf
