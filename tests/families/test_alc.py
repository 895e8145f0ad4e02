"""Predictions from rows that are chosen for each of them."""

from __future__ import annotations

import json

import pytest
import torch

from candid.families import ALC, DesignPredictor, predictor_from_spec
from candid.families.alc_predictor import N_START
from candid.families.local_likelihood import best_local_values, improved_local_values
from small_models import neighbour_problem, random_rows


def predictor(rows, k=10, seed=1, **options) -> DesignPredictor:
    family = neighbour_problem(rows, k, seed=seed, **options).family
    return DesignPredictor(family.predictor())


def by_hand(made: DesignPredictor, x):
    """With all rows in the design, only lengthscale and amplitude are local."""
    model = made.neighbours
    amplitude, unit = model.kernel.split()
    places = made.rows.x[made.rows.nearest(x, 1000)].unsqueeze(1)
    near = made.rows.nearest(x, 1000)
    residual = (model.targets - model.mean(made.rows.x))[near].mT
    noise = model.noise[near].mT
    theta, s = best_local_values(unit, places[:, :, :32], residual[..., :32], noise[..., :32], amplitude)
    theta, s = improved_local_values(unit, places, residual, noise, (theta, s))
    means, variances = [], []
    for row, points, r, g, t, a in zip(x, places, residual, noise, theta, s, strict=True):
        covariance = a * unit(points / t)[0] + g[0].diag()
        cross = a * unit(points / t, row[None] / t)[0]
        gain = torch.linalg.solve(covariance, cross).mT
        means.append(model.mean(row[None]) + gain @ r.mT)
        variances.append(a * unit.diagonal(row[None]) - gain @ cross)
    return torch.cat(means), torch.cat(variances)


def test_with_all_rows_it_is_a_gp_with_local_parameters():
    rows, new = random_rows(40, seed=0), random_rows(5, seed=9).x
    made = predictor(rows, 50)
    marginal = made.marginal(new)
    mean, variance = by_hand(made, new)
    torch.testing.assert_close(marginal.mean, mean)
    torch.testing.assert_close(marginal.variance, variance)


def test_designs_are_chosen_among_the_candidates(monkeypatch):
    monkeypatch.setattr("candid.families.alc_predictor.LEAST_CANDIDATES", 30)
    rows, new = random_rows(80, seed=0), random_rows(6, seed=9).x
    chosen = []
    import candid.families.alc_predictor as module

    def spy(unit, target, candidates, *rest):
        result = module_greedy(unit, target, candidates, *rest)
        chosen.append((candidates.shape[2], result))
        return result

    module_greedy = module.greedy_design
    monkeypatch.setattr(module, "greedy_design", spy)
    marginal = predictor(rows, 8).marginal(new)
    (n_candidates, designs), *_ = chosen
    assert n_candidates == 32
    assert designs.shape == (6, 1, 8)
    assert (designs[..., :N_START] == torch.arange(N_START)).all()
    # Some rows are not among the nearest.
    assert int(designs.max()) > 8
    assert (marginal.variance > 0).all()


def test_rows_in_chunks_and_one_by_one(monkeypatch):
    rows, new = random_rows(300, n_outputs=2, seed=0), random_rows(7, seed=9).x
    made = predictor(rows, 8)
    together = made.marginal(new)
    monkeypatch.setattr("candid.families.alc_predictor.CHUNK_ENTRIES", 1)
    apart = made.marginal(new)
    torch.testing.assert_close(apart.mean, together.mean)
    torch.testing.assert_close(apart.variance, together.variance)
    assert (made.marginal(new, mean_only=True).variance == 0).all()


def test_joint_predictions_have_its_own_moments():
    rows, new = random_rows(300, n_outputs=2, seed=0), random_rows(7, seed=9).x
    made = predictor(rows, 8)
    joint, marginal = made.joint(new), made.marginal(new)
    torch.testing.assert_close(joint.mean, marginal.mean)
    torch.testing.assert_close(joint.covariance.diagonal(dim1=-2, dim2=-1).mT, marginal.variance)
    assert (torch.linalg.eigvalsh(joint.covariance) > -1e-9).all()


def test_gradients_with_respect_to_the_row():
    rows = random_rows(300, seed=0)
    made, x = predictor(rows, 8), random_rows(1, seed=9).x.requires_grad_()
    (slope,) = torch.autograd.grad(made.marginal(x).mean.sum(), x)
    step = 1e-6 * torch.eye(2).double()
    with torch.no_grad():
        ahead, behind = made.marginal(x + step).mean, made.marginal(x - step).mean
    torch.testing.assert_close(slope[0], ((ahead - behind) / 2e-6)[:, 0], rtol=1e-3, atol=1e-5)


def test_more_rows_and_files():
    rows, more, new = random_rows(60, seed=0), random_rows(30, seed=5), random_rows(7, seed=9).x
    made = predictor(rows, 8)
    before = made.marginal(new).variance.mean()
    made.append(more.x, more.y, torch.full_like(more.y, 0.05))
    assert made.marginal(new).variance.mean() < before
    again = predictor_from_spec(json.loads(json.dumps(made.to_spec())))
    again.load_state_dict(made.state_dict(), assign=True)
    assert torch.equal(again.marginal(new).mean, made.marginal(new).mean)
    with pytest.raises(ValueError, match="is described by"):
        predictor_from_spec({"type": "design"})


def test_the_family_is_that_of_neighbours_until_it_predicts():
    rows = random_rows(30, seed=0)
    plain = neighbour_problem(rows, 6, seed=2)
    family = plain.family
    alc = ALC(family.kernel, family.mean, rows.x, family.sites, rows.weight, 6)
    batch = rows.batch(torch.arange(5))
    assert torch.equal(alc.evaluate(batch).marginal.mean, family.evaluate(batch).marginal.mean)
    assert isinstance(alc.predictor(), DesignPredictor)
