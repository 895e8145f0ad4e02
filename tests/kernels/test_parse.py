"""Kernels by name."""

from __future__ import annotations

import pytest
import torch

from candid.kernels import (
    RBF,
    Linear,
    Matern12,
    Matern32,
    Matern52,
    Periodic,
    Product,
    RationalQuadratic,
    Scale,
    Sum,
    make_kernel,
)

NAMES = {
    "rbf": RBF,
    "matern12": Matern12,
    "matern32": Matern32,
    "matern52": Matern52,
    "rq": RationalQuadratic,
    "periodic": Periodic,
    "linear": Linear,
}


@pytest.mark.parametrize(("name", "kind"), NAMES.items())
def test_a_name_is_a_scaled_kernel(name, kind):
    kernel = make_kernel(name, 3, batch_shape=(2,))
    assert type(kernel) is Scale
    assert type(kernel.base) is kind
    assert kernel.amplitude.raw.shape == (2,)


def test_every_summand_has_its_amplitude_and_products_share_one():
    kernel = make_kernel("Matern52 + rbf*periodic+linear", 3)
    assert type(kernel) is Sum
    assert [type(part) for part in kernel.parts] == [Scale, Scale, Scale]
    first, second, third = (part.base for part in kernel.parts)
    assert type(first) is Matern52
    assert type(second) is Product
    assert [type(factor) for factor in second.parts] == [RBF, Periodic]
    assert type(third) is Linear


def test_without_ard_there_is_one_lengthscale():
    assert make_kernel("rbf", 3, ard=False).base.lengthscale.raw.shape == (1, 1)


def test_linear_by_name_learns_only_its_amplitude():
    kernel = make_kernel("linear", 8)
    assert kernel.base.variance.fixed
    x = torch.randn(4000, 8, generator=torch.Generator().manual_seed(0))
    assert kernel.diagonal(x).mean().item() == pytest.approx(1.0, abs=0.05)


def test_objects_are_copied_as_they_are():
    given = Matern52(lengthscale=0.5)
    kernel = make_kernel(given, 3)
    assert type(kernel) is Matern52
    assert kernel is not given
    assert kernel.lengthscale.raw.shape == (1, 3)


def test_unknown_names_list_the_known_ones_and_the_closest():
    with pytest.raises(ValueError, match="unknown kernel 'mattern52'; did you mean 'matern52'") as error:
        make_kernel("mattern52", 3)
    for name in NAMES:
        assert name in str(error.value)


@pytest.mark.parametrize("expression", ["", "rbf +", "* rbf", "rbf + + linear"])
def test_missing_names(expression):
    with pytest.raises(ValueError, match="lacks a name"):
        make_kernel(expression, 3)


def test_other_types():
    with pytest.raises(TypeError, match="got int"):
        make_kernel(3, 3)
