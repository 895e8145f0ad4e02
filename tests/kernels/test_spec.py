"""Kernels to plain data and back."""

from __future__ import annotations

import json

import pytest
import torch

from candid.kernels import (
    RBF,
    Kernel,
    Linear,
    Matern12,
    Matern32,
    Matern52,
    Periodic,
    RationalQuadratic,
    kernel_from_spec,
)
from candid.kernels.stationary import Stationary
from candid.parameters import hyperparameters

ALL = 2 * (Matern12() + RBF() * Periodic(0.7)) + 3 * RationalQuadratic(alpha=2.0) + Matern32() * Matern52() + Linear()


@pytest.mark.parametrize("rebuild", [kernel_from_spec, Kernel.from_spec])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("batch", [(), (2,)])
def test_round_trip_through_json_and_state_dict(rebuild, dtype, batch):
    kernel = ALL.build(3, batch_shape=batch).to(dtype)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for raw in kernel.parameters():
            raw.copy_(torch.randn(raw.shape, dtype=dtype, generator=generator))
    again = rebuild(json.loads(json.dumps(kernel.to_spec(), allow_nan=False)))
    again.load_state_dict(kernel.state_dict())
    x = torch.randn(5, 3, dtype=dtype, generator=generator)
    assert torch.equal(again(x), kernel(x))
    assert repr(again) == repr(kernel)
    assert again.to_spec() == kernel.to_spec()


def test_domains_and_fixed_values_survive():
    kernel = (2 * Matern52(lengthscale=0.5)).build(2)
    kernel.base.lengthscale.restrict(0.01, 10.0)
    kernel.amplitude.fix()
    again = kernel_from_spec(json.loads(json.dumps(kernel.to_spec())))
    again.load_state_dict(kernel.state_dict())
    assert again.base.lengthscale.lower == 0.01
    assert again.base.lengthscale.upper == 10.0
    assert again.amplitude.fixed
    for (_, a), (_, b) in zip(hyperparameters(again), hyperparameters(kernel), strict=True):
        assert torch.equal(a.value, b.value)


def test_a_kernel_that_is_not_built_yet():
    again = kernel_from_spec(Matern52().to_spec())
    assert repr(again) == "Matern52()"
    assert again.build(4).lengthscale.value.unique().item() == 2.0


class Foreign(Stationary):
    def _gram(self, x1, x2, lengthscale):
        return torch.ones(x1.shape[-2], x1.shape[-2])


@pytest.mark.parametrize("spec", [Foreign(1.0).to_spec(), {"type": "os.system", "parameters": {}, "parts": []}])
def test_unknown_types_are_refused(spec):
    with pytest.raises(ValueError, match="unknown kernel type"):
        kernel_from_spec(spec)


def broken(**changes):
    return RBF(1.0).build(2).to_spec() | changes


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"type": "RBF"}, "missing"),
        ([1, 2], "missing"),
        (broken(type=["RBF"]), "unknown kernel type"),
        (broken(parameters={}), "has the parameters"),
        (broken(parameters={"lengthscale": {"shape": [1, 2]}}), "description of lengthscale"),
        (broken(parts=[RBF().to_spec()]), "with 1 parts"),
        (broken(type="Sum", parameters={}), "with 0 parts"),
    ],
)
def test_broken_descriptions_are_refused(spec, message):
    with pytest.raises(ValueError, match=message):
        kernel_from_spec(spec)
