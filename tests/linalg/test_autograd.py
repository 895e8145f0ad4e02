"""Second derivatives are refused, not answered with zero."""

from __future__ import annotations

import pytest
import torch
from torch.autograd.functional import hessian, jacobian

from candid.kernels import Periodic, make_kernel
from candid.linalg import divergence_from_standard, first_order, normal_log_density, project, whiten
from small_models import exact_problem, random_rows, sparse_problem

REFUSAL = "second derivatives of a Gaussian process are not available"


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.square()

    @staticmethod
    @first_order
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return 2 * x * grad


FUNCTIONS = {
    "decorated": lambda x: Square.apply(x).sum(),
    "whiten": lambda x: whiten(x @ x.mT + torch.eye(3), x)[0].sum(),
    "project": lambda x: sum(value.sum() for value in project(x, x[:, 0], x.tril())),
    "divergence": lambda x: divergence_from_standard(x[:, 0], x),
    "density": lambda x: normal_log_density(x @ x.mT + torch.eye(3), x[:, 0]),
    "gram": lambda x: make_kernel("rbf", 3).double()(x).sum(),
    "cross": lambda x: make_kernel("matern52", 3).double()(x, torch.ones(2, 3).double()).sum(),
    "periodic": lambda x: Periodic().build(3).double()(x, torch.ones(2, 3).double()).sum(),
    "sparse mean": lambda x: sparse_problem(random_rows(9, 3)).family.predictor().marginal(x).mean.sum(),
    "exact variance": lambda x: exact_problem(random_rows(9, 3)).family.predictor().marginal(x).variance.sum(),
}


@pytest.fixture(params=FUNCTIONS.values(), ids=FUNCTIONS)
def function(request):
    return request.param


def test_hessian(function, draw):
    with pytest.raises(RuntimeError, match=REFUSAL):
        hessian(function, draw(3, 3))


def test_recorded_gradient(function, draw):
    x = draw(3, 3).requires_grad_()
    with pytest.raises(RuntimeError, match=REFUSAL):
        torch.autograd.grad(function(x), x, create_graph=True)


def test_first_derivatives_are_as_they_were(function, draw):
    x = draw(3, 3)
    assert torch.autograd.gradcheck(function, x.clone().requires_grad_())
    gradient = jacobian(function, x)
    assert gradient.abs().max() > 0
    assert not gradient.requires_grad


def test_also_inside_enable_grad(draw):
    """What counts is whether the backward pass is recorded, not where it is called."""
    x = draw(3).requires_grad_()
    with torch.enable_grad():
        (gradient,) = torch.autograd.grad(Square.apply(x).sum(), x)
    torch.testing.assert_close(gradient, 2 * x.detach())
