from __future__ import annotations

import torch

from candid.engines import changes_nearby, fill_gaps, match_output_noise
from candid.likelihoods import Coregionalised, Gaussian, PartlyObserved
from small_models import random_rows, sparse_problem


def test_guesses_of_rows_without_other_outputs_are_averages_of_near_rows():
    x = torch.arange(20.0).unsqueeze(-1)
    y = torch.stack([x[:, 0], torch.full((20,), torch.nan)], 1)
    y[10, 0] = y[0, 0] = torch.nan
    filled = fill_gaps(x, y)
    # Four rows on each side, and the first eight on one side
    torch.testing.assert_close(filled[10, 0], torch.tensor(10.0))
    torch.testing.assert_close(filled[0, 0], torch.arange(1.0, 9.0).mean())
    assert not filled[:, 1].any()
    there = ~y.isnan()
    assert torch.equal(filled[there], y[there])
    assert fill_gaps(x, filled) is filled


def test_changes_are_those_from_rows_nearby():
    x = torch.arange(30.0).unsqueeze(-1)
    changes = changes_nearby(x, torch.cat([x, x.square()], 1))
    torch.testing.assert_close(changes[15, 0], torch.tensor(0.0))
    # Four rows on each side are 1, 4, 9 and 16 higher, on average of both.
    torch.testing.assert_close(changes[15, 1], torch.tensor(-7.5))
    assert len(changes_nearby(x[:1], x[:1])) == 0


def test_other_outputs_of_a_row_tell_more_than_rows_far_away():
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(200, 1, generator=generator)
    first = torch.randn(200, generator=generator)
    whole = torch.stack([first, 0.9 * first + 0.1 * torch.randn(200, generator=generator)], 1)
    y = whole.clone()
    y[x[:, 0] > 0.5, 1] = torch.nan
    y[0] = torch.nan
    missing = y.isnan()
    errors = (fill_gaps(x, y) - whole)[1:][missing[1:]]
    assert errors.square().mean().sqrt() < 0.25
    assert fill_gaps(x, y).isfinite().all()


def test_the_noise_is_the_best_one_for_the_bound():
    """At a given q(v): its gradient vanishes there."""
    rows = random_rows(40, n_outputs=3, weighted=True)
    missing = torch.rand(rows.y.shape, generator=torch.Generator().manual_seed(0)) < 0.3
    problem = sparse_problem(rows)
    for likelihood in (
        Coregionalised(rows.y, 3, Gaussian(n_outputs=3)),
        PartlyObserved(rows.y, Gaussian(n_outputs=3)),
    ):
        rows.y[missing] = torch.nan
        problem.likelihood = likelihood.double()
        match_output_noise(problem.family, likelihood, rows)
        noise = likelihood.noise.noise
        (gradient,) = torch.autograd.grad(problem.loss(rows.whole()), noise.raw)
        # On the floor it may point down.
        assert gradient[noise.value > 3e-4].abs().max() < 1e-6
        before = noise.value.clone()
        match_output_noise(problem.family, likelihood, rows, variance_is_noise=False)
        assert bool((noise.value <= before).all())
        assert bool((noise.value < before).any())
        rows = random_rows(40, n_outputs=3, weighted=True)


def test_rows_far_away_tell_less_than_other_outputs():
    """Between rows that are close together a function is easy to guess, but not where there are none."""
    generator = torch.Generator().manual_seed(1)
    x = 6 * torch.rand(300, 1, generator=generator) - 3
    function = torch.sin(2 * x[:, 0])
    whole = torch.stack([function, function], 1) + 0.1 * torch.randn(300, 2, generator=generator)
    y = whole.clone()
    y[x[:, 0] > 1, 1] = torch.nan
    missing = y.isnan()
    errors = (fill_gaps(x, y) - whole)[missing]
    # The difference of the noise of both outputs
    assert errors.square().mean().sqrt() < 0.18
