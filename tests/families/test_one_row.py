from __future__ import annotations

import pickle

import pytest
import torch

from candid.families import one_row as room
from candid.linalg import without_machine_code
from small_models import decoupled_problem, exact_problem, orthogonal_problem, random_rows, sparse_problem

pytest.importorskip("numba")

BUILDERS = {
    "full": lambda rows, kernel: sparse_problem(rows, "full", kernel=kernel, seed=1),
    "diagonal": lambda rows, kernel: sparse_problem(rows, "diagonal", kernel=kernel, mean="linear", seed=2),
    "delta": lambda rows, kernel: sparse_problem(rows, "delta", kernel=kernel, seed=3),
    "decoupled": lambda rows, kernel: decoupled_problem(
        rows, "full", kernel=kernel, n_mean_points=9, n_points=4, seed=4
    ),
    "orthogonal": lambda rows, kernel: orthogonal_problem(rows, "full", kernel=kernel, seed=5),
    "exact": lambda rows, kernel: exact_problem(rows, kernel=kernel, seed=6),
}


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(room, "PATIENCE", 0)


def predictor_of(builder: str, kernel: str = "matern52", n_features: int = 3, n_outputs: int = 1):
    rows = random_rows(14, n_features=n_features, n_outputs=n_outputs, seed=7)
    return BUILDERS[builder](rows, kernel).family.predictor()


def with_and_without(predictor, x, **options):
    """The marginals by machine code, and those by torch."""
    assert predictor._derived.one_row.takes(x)
    compiled = predictor.marginal(x, **options)
    with without_machine_code():
        assert not predictor._derived.one_row.takes(x)
        return compiled, predictor.marginal(x, **options)


@pytest.mark.parametrize("n_features", [1, 3, 4, 5])
@pytest.mark.parametrize("kernel", ["rbf", "matern12", "matern32", "matern52"])
@pytest.mark.parametrize("builder", BUILDERS)
def test_it_is_what_torch_computes(builder, kernel, n_features):
    predictor = predictor_of(builder, kernel, n_features)
    for x in random_rows(4, n_features=n_features, seed=8).x.split(1):
        compiled, other = with_and_without(predictor, x)
        torch.testing.assert_close(compiled.mean, other.mean, rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(compiled.variance, other.variance, rtol=1e-9, atol=1e-10)
        mean_only, other = with_and_without(predictor, x, mean_only=True)
        torch.testing.assert_close(mean_only.mean, other.mean, rtol=1e-10, atol=1e-10)
        assert (mean_only.variance == 0).all()


@pytest.mark.parametrize("builder", BUILDERS)
def test_in_single_precision_too(builder):
    predictor = predictor_of(builder).float()
    compiled, other = with_and_without(predictor, random_rows(1, n_features=3, seed=9).x.float())
    assert compiled.mean.dtype == compiled.variance.dtype == torch.float32
    torch.testing.assert_close(compiled.mean, other.mean, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(compiled.variance, other.variance, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("kernel", ["rbf", "matern12"])
def test_far_away_is_the_prior_and_at_a_point_the_least_variance(kernel):
    predictor = predictor_of("exact", kernel)
    far, other = with_and_without(predictor, torch.full((1, 3), 1e15, dtype=torch.float64))
    torch.testing.assert_close(far.variance, other.variance)
    near, other = with_and_without(predictor, predictor.points.reshape(-1, 3)[:1])
    torch.testing.assert_close(near.variance, other.variance, rtol=1e-6, atol=1e-9)
    assert (near.variance >= 0).all()
    assert (near.variance < far.variance).all()


def test_nan_stays_nan():
    compiled, other = with_and_without(predictor_of("full"), torch.full((1, 3), torch.nan, dtype=torch.float64))
    assert compiled.mean.isnan().all()
    assert other.mean.isnan().all()


def test_only_rows_after_many_others(monkeypatch):
    monkeypatch.setattr(room, "PATIENCE", 3)
    one_row, x = predictor_of("full")._derived.one_row, random_rows(2, n_features=3, seed=10).x
    assert [one_row.takes(x), one_row.takes(x[:1].float())] == [False, False]
    assert [one_row.takes(x[:1]) for _ in range(5)] == [False, False, False, True, True]


def test_gradients_go_through_torch():
    predictor, x = predictor_of("full"), random_rows(1, n_features=3, seed=11).x

    def both(x):
        marginal = predictor.marginal(x)
        return marginal.mean, marginal.variance

    assert torch.autograd.gradcheck(both, x.clone().requires_grad_())


def test_transformed_rows_are_left_to_torch():
    one_row, x = predictor_of("full")._derived.one_row, random_rows(1, n_features=3, seed=11).x
    taken = []
    torch.func.jacrev(lambda x: (taken.append(one_row.takes(x)), x.sum())[1])(x)
    assert taken == [False]
    assert one_row.takes(x)


def test_several_outputs_and_other_kernels_go_through_torch():
    assert predictor_of("full", n_outputs=2)._derived.one_row is None
    assert predictor_of("full", "rbf + matern32")._derived.one_row is None
    assert predictor_of("full", "rq")._derived.one_row is None


def test_copies_predict_the_same():
    predictor, x = predictor_of("full"), random_rows(1, n_features=3, seed=12).x
    again = pickle.loads(pickle.dumps(predictor))
    assert torch.equal(again.marginal(x).variance, predictor.marginal(x).variance)
