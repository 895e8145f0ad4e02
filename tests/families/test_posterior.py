"""Chains of a family, and samples of it as the components of a mixture."""

from __future__ import annotations

import copy
import json

import pytest
import torch

from candid.families import Posterior, predictor_from_spec
from small_models import (
    chained,
    conditional_problem,
    decoupled_problem,
    orthogonal_problem,
    random_rows,
    sparse_problem,
)

ROWS = random_rows(12, n_features=2, n_outputs=2, seed=4)
NEW = random_rows(5, n_features=2, seed=5).x
N_CHAINS, N_DRAWS = 2, 3


@pytest.fixture(params=[("constant", "matern52"), ("linear", "rbf + linear"), ("zero", "rbf")])
def single(request):
    mean, kernel = request.param
    return sparse_problem(ROWS, "delta", "predictive", kernel, n_points=4, mean=mean, jitter=1e-8)


@pytest.fixture
def chains(single, draw):
    """Chains that have moved apart."""
    problem = chained(copy.deepcopy(single), N_CHAINS)
    with torch.no_grad():
        for parameter in problem.family.parameters():
            parameter.add_(0.2 * draw(*parameter.shape))
    return problem


def at(single, tensors, *place):
    """A single model with one sample of the chains' parameters."""
    model = copy.deepcopy(single.family)
    own = model.state_dict()
    model.load_state_dict({name: tensors[f"inner.{name}"][place] for name in own})
    return model


def test_chains_start_alike(single):
    problem = chained(copy.deepcopy(single), N_CHAINS)
    batch = ROWS.whole()
    assert problem.n_chains == problem.family.n_chains == N_CHAINS
    torch.testing.assert_close(problem.losses(batch), single.losses(batch).expand(N_CHAINS), rtol=1e-10, atol=1e-10)
    assert problem.standing(ROWS) == pytest.approx(single.standing(ROWS), rel=1e-10)


@pytest.mark.parametrize("objective", ["predictive", "elbo"])
@pytest.mark.parametrize("build", [decoupled_problem, orthogonal_problem, conditional_problem])
def test_chains_of_any_inducing_family_are_models_side_by_side(build, objective, draw):
    single = build(ROWS, "delta", objective=objective, seed=6)
    chains = chained(copy.deepcopy(single), N_CHAINS)
    with torch.no_grad():
        for parameter in chains.family.parameters():
            parameter.add_(0.1 * draw(*parameter.shape))
    batch, tensors = ROWS.whole(), chains.family.state_dict()
    losses = chains.losses(batch)
    gradients = torch.autograd.grad(losses.sum(), chains.family.weight_parameters())
    for chain in range(N_CHAINS):
        alone = copy.deepcopy(single)
        alone.family = at(single, tensors, chain)
        loss = alone.loss(batch)
        torch.testing.assert_close(losses[chain], loss, rtol=1e-7, atol=1e-9)
        for together, own in zip(gradients, torch.autograd.grad(loss, alone.family.weight_parameters()), strict=True):
            torch.testing.assert_close(together[chain], own, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("sampled", [("u",), ("u", "theta"), ("z",), ("u", "theta", "z")])
def test_what_chains_have_in_common(sampled):
    family = Posterior(sparse_problem(ROWS, "delta", "predictive", "rbf", n_points=4).family, 2, sampled)
    kinds = {"inner.weights.mean": "u", "inner.points": "z"}
    names = {id(parameter): name for name, parameter in family.named_parameters()}
    common = {names[id(parameter)] for parameter in family.common_parameters()}
    assert common == {name for name in names.values() if kinds.get(name, "theta") not in sampled}


def test_before_there_are_samples_the_chains_predict(single, chains):
    marginal = chains.family.predictor().marginal(NEW)
    tensors = chains.family.state_dict()
    torch.testing.assert_close(marginal.log_weight.exp(), torch.full((N_CHAINS, 1), 1 / N_CHAINS).double())
    for chain in range(N_CHAINS):
        alone = at(single, tensors, chain).predictor().marginal(NEW)
        torch.testing.assert_close(marginal.mean[chain], alone.mean, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(marginal.variance[chain], alone.variance, rtol=1e-7, atol=1e-9)


@pytest.fixture
def sampled(chains, draw):
    """Some parameters have samples, the others are as they are; samples and what stays, (draw, chain, …)."""
    tensors = {
        name: tensor.detach().expand(N_DRAWS, *tensor.shape).clone()
        for name, tensor in chains.family.state_dict().items()
    }
    for name in ("inner.weights.mean", "inner.points"):
        tensors[name] = tensors[name] + 0.2 * draw(*tensors[name].shape)
    draws = {f"family.{name}": tensors[name] for name in ("inner.weights.mean", "inner.points")}
    chains.keep(draws)
    return chains, tensors


def test_predictions_are_mixtures_over_all_samples(single, sampled):
    chains, tensors = sampled
    for predictor in (chains.family.predictor(), chains.family.draft_predictor()):
        marginal, joint = predictor.marginal(NEW), predictor.joint(NEW)
        assert marginal.mean.shape == (N_DRAWS * N_CHAINS, 5, 2)
        for draw in range(N_DRAWS):
            for chain in range(N_CHAINS):
                alone, site = at(single, tensors, draw, chain).predictor(), draw * N_CHAINS + chain
                expected, together = alone.marginal(NEW), alone.joint(NEW)
                torch.testing.assert_close(marginal.mean[site], expected.mean, rtol=1e-9, atol=1e-9)
                torch.testing.assert_close(marginal.variance[site], expected.variance, rtol=1e-7, atol=1e-8)
                torch.testing.assert_close(joint.covariance[site], together.covariance, rtol=1e-7, atol=1e-8)
    assert not predictor.marginal(NEW, mean_only=True).variance.any()


def test_the_middle_is_one_model_at_the_averages(sampled):
    chains, tensors = sampled
    middle = chains.family.middle()
    for name, tensor in middle.state_dict().items():
        torch.testing.assert_close(tensor, tensors[f"inner.{name}"].mean((0, 1)))
    assert middle.evaluate(ROWS.whole()).marginal.mean.shape == (12, 2)
    assert chains.family.kernel.to_spec() == middle.kernel.to_spec()
    assert chains.middle().losses(ROWS.whole()).shape == ()


def test_descriptions(sampled):
    chains, _ = sampled
    predictor = chains.family.predictor()
    rebuilt = predictor_from_spec(json.loads(json.dumps(predictor.to_spec())))
    rebuilt.load_state_dict(predictor.state_dict(), assign=True)
    assert torch.equal(rebuilt.marginal(NEW).mean, predictor.marginal(NEW).mean)
    assert rebuilt.n_points == predictor.n_points == N_DRAWS * N_CHAINS * 4
    with pytest.raises(ValueError, match="the parts"):
        predictor_from_spec({"type": "mixture", "inner": predictor.to_spec()["inner"]})
    with pytest.raises(ValueError, match="does not fit"):
        predictor_from_spec({**predictor.to_spec(), "models": 5})


def test_sampled_noise_is_each_sites_own(chains, draw):
    problem = chains
    problem.likelihood.noise.expand((N_CHAINS, 1, 2))
    raw = draw(N_DRAWS, N_CHAINS, 1, 2)
    weights = problem.family.inner.weights.mean.detach().expand(N_DRAWS, -1, -1, -1)
    problem.keep({"likelihood.noise.raw": raw, "family.inner.weights.mean": weights})
    expected = problem.likelihood.noise.lower + raw.exp().reshape(N_DRAWS * N_CHAINS, 1, 2)
    torch.testing.assert_close(problem.observed().at().variance, expected)
    assert problem.middle().likelihood.noise.raw.shape == (1, 2)
    # A mixture in which each component has its own noise
    marginal = problem.family.predictor().marginal(ROWS.x)
    scale = (marginal.variance + expected).sqrt()
    densities = torch.distributions.Normal(marginal.mean, scale).log_prob(ROWS.y).sum(-1)
    nll = -(densities.logsumexp(0) - torch.tensor(float(N_DRAWS * N_CHAINS)).log()).mean()
    assert problem.held_out_nll(ROWS) == pytest.approx(nll.item(), rel=1e-6)


def test_other_families_do_not_keep_samples(single):
    with pytest.raises(TypeError, match="not from samples"):
        single.keep({"family.points": torch.zeros(1)})
    assert isinstance(chained(single, 1).family, Posterior)
