from __future__ import annotations

import pytest
import torch
from scipy.stats import multivariate_normal

from candid.linalg import low_rank_log_density, normal_log_density

SHAPES = {
    "plain": ((), 3, 5),
    "one row": ((), 2, 1),
    "one feature": ((), 1, 4),
    "more features than rows": ((), 6, 3),
    "batch": ((3,), 2, 4),
    "two batch dimensions": ((2, 3), 2, 3),
}


def dense(features, diagonal):
    return features.mT @ features + torch.diag_embed(diagonal)


@pytest.fixture(params=SHAPES.values(), ids=SHAPES)
def parts(request, draw):
    batch, m, n = request.param
    return draw(*batch, m, n), 0.1 + draw(*batch, n).square(), draw(*batch, n)


def test_gradcheck(parts):
    assert torch.autograd.gradcheck(low_rank_log_density, [part.requires_grad_() for part in parts])


def test_values_are_scipys(parts):
    features, diagonal, residual = parts
    found = low_rank_log_density(features, diagonal, residual)
    assert found.shape == features.shape[:-2]
    n = residual.shape[-1]
    pairs = zip(dense(features, diagonal).reshape(-1, n, n), residual.reshape(-1, n), strict=True)
    expected = torch.tensor([multivariate_normal(cov=c.numpy()).logpdf(r.numpy()) for c, r in pairs])
    torch.testing.assert_close(found.reshape(-1), expected.double())


def test_gradients_are_those_of_the_dense_density(parts):
    for part in parts:
        part.requires_grad_()
    features, diagonal, residual = parts
    grads = torch.ones(features.shape[:-2], dtype=torch.float64)
    found = torch.autograd.grad(low_rank_log_density(*parts), parts, grads)
    expected = torch.autograd.grad(normal_log_density(dense(features, diagonal), residual), parts, grads)
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


def test_duplicate_rows_and_features(draw):
    """Equal columns of A (rows of the table), equal rows of A (inducing points), and a feature that is zero."""
    one, diagonal, residual = draw(2, 3), 0.1 + draw(6).square(), draw(6)
    features = torch.cat([one, one[:1], torch.zeros(1, 3, dtype=torch.float64)]).repeat(1, 2)
    assert torch.autograd.gradcheck(
        low_rank_log_density, [part.requires_grad_() for part in (features, diagonal, residual)]
    )


def test_leading_dimensions_broadcast(draw):
    features, diagonal, residual = draw(3, 1, 2, 4), 0.1 + draw(2, 4).square(), draw(4)
    for part in (features, diagonal, residual):
        part.requires_grad_()
    found = low_rank_log_density(features, diagonal, residual)
    assert found.shape == (3, 2)
    for i in range(3):
        for j in range(2):
            torch.testing.assert_close(found[i, j], low_rank_log_density(features[i, 0], diagonal[j], residual))
    assert torch.autograd.gradcheck(low_rank_log_density, (features, diagonal, residual))


def test_nothing_cancels_where_the_noise_is_small(draw):
    """r lies in the span of A up to the noise: rᵀD⁻¹r is 10¹² times as large as rᵀC⁻¹r."""
    features, v, noise = draw(2, 40), draw(2), torch.full((40,), 1e-12, dtype=torch.float64)
    residual = features.mT @ v + noise.sqrt() * draw(40)
    found = low_rank_log_density(features, noise, residual)
    # Σ_i log N(r_i; a_iᵀm, d) + log N(m; 0, I) − log N(m; m, B⁻¹) at the posterior mean m, by QR instead of B.
    q, r = torch.linalg.qr(torch.cat([features.mT / noise.sqrt()[:, None], torch.eye(2, dtype=torch.float64)]))
    m = torch.linalg.solve_triangular(r, q[:40].mT @ (residual / noise.sqrt()).unsqueeze(-1), upper=True).squeeze(-1)
    normal = torch.distributions.Normal
    expected = (
        normal(features.mT @ m, noise.sqrt()).log_prob(residual).sum()
        - 0.5 * m.square().sum()
        - r.diagonal().abs().log().sum()
    )
    torch.testing.assert_close(found, expected, rtol=1e-7, atol=0.0)


def test_each_part_may_be_constant(draw):
    parts = (draw(2, 4), 0.1 + draw(4).square(), draw(4))
    together = [part.clone().requires_grad_() for part in parts]
    low_rank_log_density(*together).backward()
    for position, part in enumerate(together):
        alone = [other.clone().requires_grad_(k == position) for k, other in enumerate(parts)]
        low_rank_log_density(*alone).backward()
        torch.testing.assert_close(alone[position].grad, part.grad)


def test_second_derivatives_are_refused(draw):
    features = draw(2, 4).requires_grad_()
    value = low_rank_log_density(features, torch.ones(4).double(), draw(4))
    with pytest.raises(RuntimeError, match="second derivatives"):
        torch.autograd.grad(value, features, create_graph=True)
