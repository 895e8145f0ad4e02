"""Families with a network inside their kernel."""

from __future__ import annotations

import pytest
import torch

from candid.families import metric_of
from candid.kernels import RBF, Deep, Linear, Matern52, Network, Scale, make_kernel, make_network
from small_models import conditional_problem, decoupled_problem, orthogonal_problem, random_rows, sparse_problem

BUILDERS = [sparse_problem, decoupled_problem, orthogonal_problem]


def count_passes(network) -> list[int]:
    """How many inputs go through the network, pass by pass, from now on."""
    passes, compute = [], network._compute
    network._compute = lambda x: passes.append(len(x)) or compute(x)
    return passes


def with_deep_kernel(build, rows):
    """A model whose kernel has batch normalisation before and after the last layer."""
    problem = build(rows, objective="predictive", seed=21)
    network = make_network(Network((4, 2), normalise=True, scaled_output=True), rows.x.shape[1]).double()
    problem.family.kernel = Deep(network, make_kernel("matern52", 2, batch_shape=(rows.y.shape[1],)).double())
    return problem


@pytest.mark.parametrize("build", BUILDERS)
def test_one_pass_in_a_step_with_the_statistics_of_its_rows(build):
    rows = random_rows(20, n_features=3, n_outputs=2, seed=20)
    problem = with_deep_kernel(build, rows)
    network = problem.family.kernel.network
    passes = count_passes(network)
    problem.family.evaluate(rows.whole())
    assert len(passes) == 1
    assert network.layers[-1].n_steps == 1


@pytest.mark.parametrize("build", BUILDERS)
def test_after_a_step_of_all_rows_prediction_is_what_training_saw(build):
    rows = random_rows(20, n_features=3, n_outputs=2, seed=20)
    problem = with_deep_kernel(build, rows)
    seen = problem.family.evaluate(rows.whole()).marginal
    predicted = problem.family.predictor().marginal(rows.x)
    torch.testing.assert_close(predicted.mean, seen.mean)
    torch.testing.assert_close(predicted.variance, seen.variance)


def test_a_predictor_sends_only_new_rows_through_the_network():
    rows = random_rows(20, n_features=3, n_outputs=2, seed=20)
    predictor = with_deep_kernel(sparse_problem, rows).family.predictor()
    predictor.marginal(rows.x)
    passes = count_passes(predictor.kernel.network)
    predictor.marginal(rows.x)
    assert passes == [20]


def test_decoupled_kernels_may_both_be_deep():
    rows = random_rows(20, n_features=3, n_outputs=1, seed=22)
    problem = conditional_problem(rows, seed=23)
    family = problem.family
    for name, seed in (("kernel", 1), ("mean_kernel", 2)):
        network = make_network((4, 2), 3, seed=seed).double()
        setattr(family, name, Deep(network, make_kernel("rbf", 2, batch_shape=(1,)).double().unit))
    seen = family.evaluate(rows.whole()).marginal
    predicted = family.predictor().marginal(rows.x)
    torch.testing.assert_close(predicted.mean, seen.mean)
    torch.testing.assert_close(predicted.variance, seen.variance)


def test_networks_inside_sums_and_products_are_built_for_the_table():
    kernel = make_kernel(2.0 * Deep((4, 2), Scale(RBF())) + Linear() * Deep((5, 3), Matern52()), 3, batch_shape=(2,))
    assert kernel(torch.randn(4, 3)).shape == (2, 4, 4)
    # No lengthscale in it is one of the inputs.
    assert torch.equal(metric_of(kernel, 3), torch.ones(3))
