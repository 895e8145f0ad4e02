"""Leading dimensions are models side by side: whatever is computed together is what each would compute alone."""

from __future__ import annotations

import json

import pytest
import torch

from candid.families import Exact, Inducing, make_mean, predictor_from_spec
from candid.kernels import make_kernel
from candid.likelihoods import Gaussian, GaussianRows
from candid.marginal import Batch
from candid.objectives import elbo, marginal_likelihood, predictive
from candid.weights import WEIGHTS
from small_models import random_rows, separated_points

CHAINS, OUTPUTS, POINTS, FEATURES = 3, 2, 5, 2
ROWS = random_rows(9, FEATURES, OUTPUTS, seed=1)
NEW = random_rows(4, FEATURES, seed=2).x


def sparse(chains: tuple[int, ...], weights: str, kernel: str, mean: str, points) -> Inducing:
    batch = (*chains, OUTPUTS)
    return Inducing(
        make_kernel(kernel, FEATURES, batch_shape=batch),
        make_mean(mean, FEATURES, OUTPUTS, chains),
        points,
        WEIGHTS[weights](POINTS, batch),
        0.0,
    ).double()


def exact(chains: tuple[int, ...], kernel: str, mean: str) -> Exact:
    return Exact(
        make_kernel(kernel, FEATURES, batch_shape=(*chains, OUTPUTS)),
        make_mean(mean, FEATURES, OUTPUTS, chains),
        ROWS.x,
        Gaussian(0.1, OUTPUTS).double().sites(ROWS.y),
        ROWS.weight,
    ).double()


@torch.no_grad()
def moved(family, draw):
    for name, parameter in family.named_parameters():
        if not name.startswith("sites"):
            parameter.add_(0.3 * draw(*parameter.shape))
    return family


def alone(family, single, chain: int):
    """``single`` with the parameters of one chain of ``family``."""
    own = single.state_dict()
    single.load_state_dict(
        {name: t if t.shape == own[name].shape else t[chain] for name, t in family.state_dict().items()}
    )
    return single


@pytest.fixture(
    params=[("full", "matern52", "constant"), ("diagonal", "rbf + linear", "linear"), ("delta", "rbf", "zero")]
)
def models(request, draw):
    """Three chains together, and each of them alone."""
    generator = torch.Generator().manual_seed(3)
    points = torch.stack([separated_points(POINTS, FEATURES, OUTPUTS, generator) for _ in range(CHAINS)])
    together = moved(sparse((CHAINS,), *request.param, points), draw)
    return together, [alone(together, sparse((), *request.param, points[0]), chain) for chain in range(CHAINS)]


def at(x) -> Batch:
    return Batch(x, ROWS.y, ROWS.weight, ROWS.total)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("objective", [elbo, predictive])
def test_marginals_penalties_and_gradients(models, objective, shared, draw):
    """At rows that the chains share and at rows of their own."""
    together, single = models
    x = ROWS.x if shared else draw(CHAINS, *ROWS.x.shape)
    noise = GaussianRows(torch.tensor([[0.1, 0.3]], dtype=torch.float64))
    pull = draw(CHAINS, len(ROWS))

    evaluation = together.evaluate(at(x))
    assert evaluation.marginal.mean.shape == (CHAINS, len(ROWS), OUTPUTS)
    assert evaluation.penalties["kl"].shape == (CHAINS,)
    terms = objective(evaluation.marginal, noise, ROWS.y)
    ((pull * terms).sum() + evaluation.penalties["kl"].sum()).backward()
    for chain, model in enumerate(single):
        own = model.evaluate(at(x if shared else x[chain]))
        for part in ("mean", "residual", "spread"):
            torch.testing.assert_close(getattr(evaluation.marginal, part)[chain], getattr(own.marginal, part))
        torch.testing.assert_close(evaluation.penalties["kl"][chain], own.penalties["kl"])
        (pull[chain] @ objective(own.marginal, noise, ROWS.y) + own.penalties["kl"]).backward()
        for found, expected in zip(together.parameters(), model.parameters(), strict=True):
            assert found.requires_grad == expected.requires_grad
            if found.requires_grad:
                torch.testing.assert_close(found.grad[chain], expected.grad)


def compare_predictions(together, single) -> None:
    predictor = together.predictor()
    rebuilt = predictor_from_spec(json.loads(json.dumps(predictor.to_spec())))
    rebuilt.load_state_dict(predictor.state_dict(), assign=True)
    for both in (predictor, rebuilt):
        for x in (NEW, NEW * torch.tensor([1.0, 0.5, 2.0]).double()[:, None, None]):
            marginal, joint = both.marginal(x), both.joint(x)
            assert marginal.mean.shape == (CHAINS, len(NEW), OUTPUTS)
            assert torch.equal(both.marginal(x, mean_only=True).mean, marginal.mean)
            for chain, model in enumerate(single):
                row = x if x.dim() == 2 else x[chain]
                own, own_joint = model.predictor().marginal(row), model.predictor().joint(row)
                torch.testing.assert_close(marginal.mean[chain], own.mean)
                torch.testing.assert_close(marginal.residual[chain], own.residual)
                torch.testing.assert_close(marginal.spread[chain], own.spread)
                torch.testing.assert_close(joint.mean[chain], own_joint.mean)
                torch.testing.assert_close(joint.covariance[chain], own_joint.covariance)


def test_predictions(models):
    compare_predictions(*models)


def test_each_chain_and_output_has_its_own_jitter(draw):
    generator = torch.Generator().manual_seed(4)
    points = torch.stack([separated_points(POINTS, FEATURES, OUTPUTS, generator) for _ in range(CHAINS)])
    points[1, 0, 1] = points[1, 0, 0]
    family = sparse((CHAINS,), "full", "rbf", "zero", points)
    family.evaluate(at(ROWS.x))
    needed = torch.zeros(CHAINS, OUTPUTS, dtype=torch.bool)
    needed[1, 0] = True
    assert torch.equal(family.jitter > 0, needed)


@pytest.mark.parametrize("mean", ["zero", "constant"])
def test_exact_gps(mean, draw):
    together = moved(exact((CHAINS,), "matern52", mean), draw)
    single = [alone(together, exact((), "matern52", mean), chain) for chain in range(CHAINS)]
    noise = together.sites.likelihood.at(None)
    found = marginal_likelihood(together.prior(ROWS.whole()), noise, ROWS.y, ROWS.weight)
    expected = [marginal_likelihood(model.prior(ROWS.whole()), noise, ROWS.y, ROWS.weight) for model in single]
    torch.testing.assert_close(found, torch.stack(expected))
    assert together.jitter.shape == (CHAINS, OUTPUTS)
    compare_predictions(together, single)


def test_nothing_to_refresh(draw):
    """A family without an index is the same after any step."""
    family = exact((), "rbf", "zero")
    before = {name: tensor.clone() for name, tensor in family.state_dict().items()}
    family.refresh(7)
    assert all(torch.equal(tensor, before[name]) for name, tensor in family.state_dict().items())
