from __future__ import annotations

import pytest
import torch
from scipy.stats import multivariate_normal

from candid.linalg import normal_log_density

SHAPES = {"plain": ((), 4), "one row": ((), 1), "batch": ((3,), 4), "two batch dimensions": ((2, 3), 2)}


def covariance(root):
    return root @ root.mT + torch.eye(root.shape[-1], dtype=root.dtype)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_gradcheck(shape, draw):
    batch, n = shape
    root, residual = draw(*batch, n, n).requires_grad_(), draw(*batch, n).requires_grad_()
    assert torch.autograd.gradcheck(lambda c, r: normal_log_density(covariance(c), r), (root, residual))


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_values_are_scipys(shape, draw):
    batch, n = shape
    matrix, residual = covariance(draw(*batch, n, n)), draw(*batch, n)
    found = normal_log_density(matrix, residual)
    assert found.shape == batch
    pairs = zip(matrix.reshape(-1, n, n), residual.reshape(-1, n), strict=True)
    expected = torch.tensor([multivariate_normal(cov=c.numpy()).logpdf(r.numpy()) for c, r in pairs])
    torch.testing.assert_close(found.reshape(-1), expected.double())


def test_duplicate_rows_with_jitter(draw):
    """With jitter as a constant, the gradient is that of autograd for the repaired matrix."""
    points = draw(3, 2)
    points = torch.cat([points, points]).requires_grad_()
    residual = draw(6)

    def gram():
        return torch.exp(-0.5 * (points.unsqueeze(0) - points.unsqueeze(1)).square().sum(-1))

    ours = normal_log_density(gram(), residual, 1e-3)
    repaired = gram() + 1e-3 * torch.eye(6, dtype=torch.float64)
    theirs = torch.distributions.MultivariateNormal(torch.zeros(6).double(), repaired).log_prob(residual)
    torch.testing.assert_close(ours, theirs)
    found, expected = (torch.autograd.grad(value, points)[0] for value in (ours, theirs))
    torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-6)


def test_each_part_may_be_constant(draw):
    matrix, residual = covariance(draw(3, 3)), draw(3)
    normal_log_density(matrix, residual.requires_grad_()).backward()
    torch.testing.assert_close(residual.grad, -torch.linalg.solve(matrix, residual.detach()))
    matrix.requires_grad_()
    normal_log_density(matrix, residual.detach()).backward()
    alpha = torch.linalg.solve(matrix, residual).detach()
    torch.testing.assert_close(matrix.grad, 0.5 * (torch.outer(alpha, alpha) - torch.linalg.inv(matrix.detach())))
