"""Shapes, starting values and batches of hyper-parameters."""

from __future__ import annotations

import math

import pytest
import torch

from candid.kernels import RBF, Linear, Matern52, Periodic, RationalQuadratic, Scale, make_kernel

EXPRESSIONS = ["rbf", "matern12", "matern32", "matern52", "rq", "periodic", "linear", "rq + linear", "rbf * periodic"]


@pytest.mark.parametrize(("ard", "width"), [(True, 3), (False, 1)])
@pytest.mark.parametrize("batch", [(), (2,), (4, 2)])
def test_shapes(ard, width, batch):
    kernel = (2.0 * RationalQuadratic() + Periodic() * Linear()).build(3, ard, batch)
    scale, product = kernel.parts
    assert scale.amplitude.raw.shape == batch
    assert scale.base.lengthscale.raw.shape == (*batch, 1, width)
    assert scale.base.alpha.raw.shape == (*batch, 1, 1)
    periodic, linear = product.parts
    assert periodic.lengthscale.raw.shape == (*batch, 1, width)
    assert periodic.period.raw.shape == (*batch, 1, 1)
    assert linear.variance.raw.shape == (*batch, 1, 1)


def test_open_lengthscale_starts_at_the_root_of_the_number_of_features():
    kernel = Matern52().build(9)
    torch.testing.assert_close(kernel.lengthscale.value, torch.full((1, 9), 3.0))
    assert Matern52(lengthscale=0.5).build(9).lengthscale.value.unique().tolist() == [0.5]


def test_building_leaves_the_original_alone():
    original = Matern52(lengthscale=2.0)
    built = original.build(3)
    built.lengthscale.set(1.0)
    assert original.lengthscale.raw.shape == (1, 1)
    assert original.lengthscale.value.item() == pytest.approx(2.0)


@pytest.mark.parametrize("ard", [True, False])
def test_values_per_feature_are_kept(ard):
    kernel = RBF(lengthscale=[0.3, 1.2]).build(2, ard, (3,))
    torch.testing.assert_close(kernel.lengthscale.value, torch.tensor([0.3, 1.2]).expand(3, 1, 2))
    assert Periodic(period=[1.0, 2.0]).build(2, ard).period.raw.shape == (1, 2)
    assert Linear(variance=[1.0, 2.0]).build(2, ard).variance.raw.shape == (1, 2)


def test_fixed_hyperparameters_stay_fixed():
    kernel = Scale(RBF(lengthscale=1.0), 2.0)
    kernel.base.lengthscale.fix()
    built = kernel.build(4, batch_shape=(2,))
    assert built.base.lengthscale.fixed
    assert not built.amplitude.fixed


def test_a_built_kernel_can_be_built_again_for_a_batch():
    kernel = make_kernel("matern52", 3)
    kernel.base.lengthscale.set([0.1, 0.2, 0.3])
    again = kernel.build(3, batch_shape=(2,))
    torch.testing.assert_close(again.base.lengthscale.value, torch.tensor([0.1, 0.2, 0.3]).expand(2, 1, 3))


def test_errors_say_what_to_do():
    with pytest.raises(ValueError, match="3 values of lengthscale, but the table has 2 features"):
        RBF(lengthscale=[1.0, 2.0, 3.0]).build(2)
    with pytest.raises(ValueError, match=r"Call kernel\.build"):
        RBF()(torch.zeros(2, 2))
    with pytest.raises(ValueError, match=r"Call kernel\.build"):
        Periodic().diagonal(torch.zeros(2, 2))
    with pytest.raises(ValueError, match="built for 3 features, but the input has 1"):
        RBF().build(3)(torch.zeros(2, 1))
    with pytest.raises(ValueError, match="built for 3 features, but the input has 2"):
        Linear([1.0, 2.0, 3.0]).build(3)(torch.zeros(2, 2))
    with pytest.raises(ValueError, match="same features"):
        RBF(1.0)(torch.zeros(2, 1), torch.zeros(2, 3))
    with pytest.raises(ValueError, match="does not expand"):
        RBF().build(3, batch_shape=(2,)).build(3, batch_shape=(5,))
    with pytest.raises(ValueError, match="one alpha"):
        RationalQuadratic(alpha=[1.0, 2.0])
    with pytest.raises(ValueError, match="between 0 and inf"):
        RBF(lengthscale=-1.0)
    with pytest.raises(ValueError, match="one per feature"):
        RBF(lengthscale=[[1.0, 2.0], [3.0, 4.0]])


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_a_batch_of_kernels_is_several_kernels(expression):
    generator = torch.Generator().manual_seed(0)
    batch = make_kernel(expression, 4, batch_shape=(3,)).double()
    with torch.no_grad():
        for raw in batch.parameters():
            raw.add_(0.3 * torch.randn(raw.shape, generator=generator, dtype=raw.dtype))
    z = torch.randn(3, 5, 4, generator=generator, dtype=torch.float64)
    x = torch.randn(6, 4, generator=generator, dtype=torch.float64)
    together, symmetric, diagonal = batch(z, x), batch(z), batch.diagonal(x)
    assert together.shape == (3, 5, 6)
    assert symmetric.shape == (3, 5, 5)
    assert diagonal.shape == (3, 6)
    for p in range(3):
        single = make_kernel(expression, 4).double()
        with torch.no_grad():
            for one, many in zip(single.parameters(), batch.parameters(), strict=True):
                one.copy_(many[p])
        torch.testing.assert_close(together[p], single(z[p], x))
        torch.testing.assert_close(symmetric[p], single(z[p]))
        torch.testing.assert_close(diagonal[p], single.diagonal(x))


@pytest.mark.parametrize("expression", EXPRESSIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_matrix_and_diagonal_agree(expression, dtype):
    kernel = make_kernel(expression, 5).to(dtype)
    x = torch.randn(7, 5, dtype=dtype, generator=torch.Generator().manual_seed(1))
    k = kernel(x)
    assert k.dtype == dtype
    torch.testing.assert_close(k.diagonal(), kernel.diagonal(x))
    # Without being told that the points are the same, a distance of zero is only found to about √eps.
    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(
        k, kernel(x, x.clone()), rtol=0, atol=4 * eps**0.5 if expression == "matern12" else 20 * eps
    )
    assert torch.linalg.eigvalsh(k.double()).min() > -10 * eps


def test_lengthscale_follows_scaling_of_the_input():
    x = torch.randn(6, 2, generator=torch.Generator().manual_seed(0))
    scale = torch.tensor([0.5, 4.0])
    torch.testing.assert_close(RBF([0.5, 4.0]).build(2)(x * scale), RBF([1.0, 1.0]).build(2)(x))
    assert math.isclose(RBF(2.0).build(1)(torch.tensor([[0.0], [2.0]]))[0, 1].item(), math.exp(-0.5), rel_tol=1e-6)
