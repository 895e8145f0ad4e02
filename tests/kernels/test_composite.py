"""Sums, products and amplitudes."""

from __future__ import annotations

import pytest
import torch

from candid.kernels import RBF, Linear, Matern32, Matern52, Periodic, Product, Scale, Sum

X = torch.randn(6, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def test_operators_give_sums_and_products():
    a, b, c = RBF(0.5).double(), Matern32(1.5).double(), Linear(0.3).double()
    assert isinstance(a + b, Sum)
    assert isinstance(a * b, Product)
    torch.testing.assert_close((a + b)(X), a(X) + b(X))
    torch.testing.assert_close((a * b)(X, X[:2]), a(X, X[:2]) * b(X, X[:2]))
    torch.testing.assert_close((a + b * c)(X), a(X) + b(X) * c(X))
    torch.testing.assert_close((a + b * c).diagonal(X), (a + b * c)(X).diagonal())


@pytest.mark.parametrize("kernel", [3 * RBF(0.5), RBF(0.5) * 3.0, 1.5 * (2 * RBF(0.5)), Scale(RBF(0.5), 3.0)], ids=repr)
def test_a_number_times_a_kernel_is_one_amplitude(kernel):
    kernel = kernel.double()
    assert isinstance(kernel, Scale)
    assert isinstance(kernel.base, RBF)
    torch.testing.assert_close(kernel(X), 3 * RBF(0.5).double()(X))
    torch.testing.assert_close(kernel.diagonal(X), torch.full((6,), 3.0, dtype=torch.float64))


def test_nested_combinations_are_flat():
    a, b, c = RBF(), Matern32(), Linear()
    assert list((a + b + c).parts) == [a, b, c]
    assert list((a + (b + c)).parts) == [a, b, c]
    assert list((a * b * c).parts) == [a, b, c]
    assert len(((a + b) * c).parts) == 2


def test_split_takes_the_outermost_amplitude_only():
    kernel = (2.0 * Matern52()).build(3, batch_shape=(4,))
    amplitude, base = kernel.split()
    assert amplitude is not None
    assert amplitude.shape == (4,)
    assert amplitude.requires_grad
    assert base is kernel.base
    assert kernel.unit is base
    for whole in (base, 2.0 * RBF() + Linear(), (2.0 * RBF()) * Linear()):
        assert whole.split() == (None, whole)
        assert whole.unit is whole


def test_amplitude_gets_its_gradient():
    kernel = 2.0 * RBF(0.5)
    kernel(X.float()).sum().backward()
    # d(Σ a·k)/d(log a) = Σ a·k
    torch.testing.assert_close(kernel.amplitude.raw.grad, kernel(X.float()).sum().detach())


def test_only_kernels_combine():
    with pytest.raises(TypeError):
        RBF() + 1.0
    with pytest.raises(TypeError):
        "rbf" * RBF()
    with pytest.raises(TypeError, match="made of kernels, got str"):
        Sum(RBF(), "linear")
    with pytest.raises(TypeError, match="multiplies a kernel"):
        Scale("rbf")
    with pytest.raises(ValueError, match="at least one"):
        Product()


@pytest.mark.parametrize(
    ("kernel", "text"),
    [
        (1.52 * Matern52(lengthscale=[0.3, 1.2]), "1.52 * Matern52(lengthscale=[0.3, 1.2])"),
        (Matern52(), "Matern52()"),
        (RBF(1.0) + 2 * Linear(), "RBF(lengthscale=1) + 2 * Linear(variance=1)"),
        (3 * (RBF(1.0) + Linear()), "3 * (RBF(lengthscale=1) + Linear(variance=1))"),
        (RBF(2.0) * Periodic(0.5), "RBF(lengthscale=2) * Periodic(period=0.5)"),
        (
            (RBF(2.0) + Linear()) * (3 * RBF(1.0)),
            "(RBF(lengthscale=2) + Linear(variance=1)) * (3 * RBF(lengthscale=1))",
        ),
        (RBF(2.0).build(20), "RBF(lengthscale=2…2 (20))"),
        ((4 * RBF(0.5)).build(2, batch_shape=(2,)), "[4, 4] * RBF(lengthscale=[[0.5, 0.5], [0.5, 0.5]])"),
    ],
)
def test_repr_is_one_readable_line(kernel, text):
    assert repr(kernel) == text
