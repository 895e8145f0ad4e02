"""c = L⁻ᵀ m and its gradient."""

from __future__ import annotations

import pytest
import torch

from candid.linalg import kernel_coefficients


def covariance(points):
    """A kernel matrix that is differentiable without our kernels: 1/(1 + d²)."""
    return 1 / (1 + (points.unsqueeze(-2) - points.unsqueeze(-3)).square().sum(-1))


@pytest.mark.parametrize("shape", [(4, 2), (1, 1), (3, 4, 1), (2, 3, 5, 2)])
def test_values_and_gradients(shape, draw):
    points, weights = draw(*shape).requires_grad_(), draw(*shape[:-1]).requires_grad_()
    found, factor = kernel_coefficients(covariance(points), weights)
    root = torch.linalg.cholesky(covariance(points))
    torch.testing.assert_close(found, torch.linalg.solve(root.mT, weights.unsqueeze(-1)).squeeze(-1))
    torch.testing.assert_close(factor.lower, root)
    assert torch.autograd.gradcheck(lambda p, w: kernel_coefficients(covariance(p), w)[0], (points, weights))


def test_duplicate_points_need_jitter_which_is_a_constant(draw):
    points = draw(3, 1).repeat(2, 1).requires_grad_()
    weights = draw(6).requires_grad_()

    def with_jitter(p, w):
        return kernel_coefficients(covariance(p), w, 0.1)[0]

    expected = torch.linalg.cholesky(covariance(points) + 0.1 * torch.eye(6))
    torch.testing.assert_close(with_jitter(points, weights), torch.linalg.solve(expected.mT, weights))
    assert torch.autograd.gradcheck(with_jitter, (points, weights))


def test_only_the_weights_may_need_a_gradient(draw):
    gram, weights = covariance(draw(4, 2)), draw(4).requires_grad_()
    (gradient,) = torch.autograd.grad(kernel_coefficients(gram, weights)[0].sum(), weights)
    ones = torch.ones(4, dtype=torch.float64)
    torch.testing.assert_close(gradient, torch.linalg.solve(torch.linalg.cholesky(gram), ones))


def test_no_second_derivatives(draw):
    weights = draw(4).requires_grad_()
    value = kernel_coefficients(covariance(draw(4, 2).requires_grad_()), weights)[0].square().sum()
    with pytest.raises(RuntimeError, match="second derivatives"):
        torch.autograd.grad(value, weights, create_graph=True)
