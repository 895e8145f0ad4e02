from __future__ import annotations

import pytest
import torch
from torch.distributions import MultivariateNormal, kl_divergence

from candid.linalg import infer

SHAPES = {"one": ((), 4), "batch": ((3,), 5), "two batch dimensions": ((2, 3), 2), "a single value": ((3,), 1)}


def values(batch, k, seed=0):
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape):
        return torch.randn(*batch, *shape, dtype=torch.float64, generator=generator)

    root = draw(k + 1, k + 1)
    joint = root @ root.mT + torch.eye(k + 1).double()
    # Of a variable with k values, so that what these explain is less than its variance
    parts = joint[..., :k, :k], joint[..., :k, k], draw(k), draw(k).exp()
    return [part.clone().requires_grad_() for part in parts], joint[..., k, k]


def by_the_book(covariance, cross, mean, variance):
    b = torch.linalg.solve(covariance, cross.unsqueeze(-1)).squeeze(-1)
    q, p = (MultivariateNormal(m, S) for m, S in ((mean, variance.diag_embed()), (torch.zeros_like(mean), covariance)))
    return (b * mean).sum(-1), (b * cross).sum(-1), (b.square() * variance).sum(-1), kl_divergence(q, p)


@pytest.fixture(params=SHAPES.values(), ids=SHAPES)
def parts(request):
    return values(*request.param)[0]


def test_moments_and_divergence(parts):
    inferred, factor = infer(*parts)
    mean, explained, spread, divergence = by_the_book(*parts)
    torch.testing.assert_close(inferred.mean, mean)
    torch.testing.assert_close(inferred.explained, explained)
    torch.testing.assert_close(inferred.spread, spread)
    # What is left out has no K in it
    rest = parts[3].log().sum(-1) + parts[3].shape[-1]
    torch.testing.assert_close(0.5 * (inferred.divergence - rest), divergence)
    assert (factor.jitter == 0).all()


def test_gradients(parts):
    assert torch.autograd.gradcheck(lambda K, *rest: infer(0.5 * (K + K.mT), *rest)[0], parts)


def test_the_gradient_of_the_covariance_is_symmetric(parts):
    weights = torch.linspace(0.5, 2.0, 4).double()
    loss = sum(w * value.sum() for w, value in zip(weights, infer(*parts)[0], strict=True))
    (gradient,) = torch.autograd.grad(loss, parts[0])
    torch.testing.assert_close(gradient, gradient.mT)


def test_identical_values_take_jitter():
    ones = torch.ones(3, 3)
    inferred, factor = infer(ones, ones[0], ones[0], ones[0])
    assert factor.jitter > 0
    assert all(torch.isfinite(part) for part in inferred)
    torch.testing.assert_close(inferred.mean, torch.tensor(1.0), rtol=1e-2, atol=0)
