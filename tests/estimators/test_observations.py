"""From latent moments, of one site or of several, to distributions of observations."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import norm

from candid.estimators.observations import (
    BernoulliObservation,
    BinomialObservation,
    GaussianObservation,
    Latent,
    NegativeBinomialObservation,
    SoftmaxObservation,
    StudentTObservation,
    observation_from_spec,
)
from candid.estimators.observations import base as base_module
from candid.predictive import PredictiveMixture, PredictiveNormal


def numbers(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


OBSERVATIONS = {
    "gaussian": GaussianObservation(numbers(0.3, 0.6)),
    "student-t": StudentTObservation(numbers(0.3, 0.6), numbers(3.0, 7.0)),
    "binomial": BinomialObservation(numbers(4, 9)),
    "negative-binomial": NegativeBinomialObservation(numbers(1.5, 4)),
}
TARGETS = np.array([[0.0, 1.0], [2.0, 3.0], [4.0, 0.0]])
WEIGHT = np.array([0.2, 0.5, 0.3])


@pytest.fixture
def sites():
    """Three sites of three rows and two outputs."""
    rng = np.random.default_rng(0)
    return Latent(rng.normal(size=(3, 3, 2)), rng.uniform(0.1, 1.0, size=(3, 3, 2)), WEIGHT)


def alone(sites: Latent, site: int) -> Latent:
    return Latent(sites.mean[site], sites.variance[site])


@pytest.mark.parametrize("observation", OBSERVATIONS.values(), ids=OBSERVATIONS)
def test_sites_are_mixed(observation, sites):
    both = np.exp(observation.distribution(sites).log_prob(TARGETS))
    each = [np.exp(observation.distribution(alone(sites, site)).log_prob(TARGETS)) for site in range(3)]
    np.testing.assert_allclose(both, np.tensordot(WEIGHT, each, 1), rtol=1e-7)


@pytest.mark.parametrize(
    "observation", [BernoulliObservation("logit"), BernoulliObservation("probit"), SoftmaxObservation()]
)
def test_sites_of_classes_are_mixed(observation, sites):
    if isinstance(observation, BernoulliObservation):
        sites = Latent(sites.mean[..., :1], sites.variance[..., :1], WEIGHT)
    both = observation.distribution(sites).probabilities
    each = [observation.distribution(alone(sites, site)).probabilities for site in range(3)]
    np.testing.assert_allclose(both, np.tensordot(WEIGHT, each, 1), rtol=1e-10)
    np.testing.assert_allclose(both.sum(1), 1.0)


def test_sites_may_have_noise_of_their_own(sites):
    variance = torch.rand(3, 1, 2, dtype=torch.float64) + 0.1
    p = GaussianObservation(variance).distribution(sites)
    assert isinstance(p, PredictiveMixture)
    each = [
        np.exp(GaussianObservation(variance[site, 0]).distribution(alone(sites, site)).log_prob(TARGETS))
        for site in range(3)
    ]
    np.testing.assert_allclose(np.exp(p.log_prob(TARGETS)), np.tensordot(WEIGHT, each, 1), rtol=1e-10)


def test_probit_is_known_in_closed_form(sites):

    latent = alone(sites, 0)
    p = BernoulliObservation("probit").distribution(Latent(latent.mean[:, :1], latent.variance[:, :1]))
    np.testing.assert_allclose(
        p.probability, norm.cdf(latent.mean[:, 0] / np.sqrt(1 + latent.variance[:, 0])), rtol=1e-9
    )


def test_known_noise_and_vectors(sites):
    latent = alone(sites, 0)
    p = GaussianObservation(numbers(0.3, 0.6)).distribution(latent, known=np.full((3, 2), 4.0))
    assert isinstance(p, PredictiveNormal)
    np.testing.assert_allclose(p.noise_std, 2.0)
    one = Latent(latent.mean[:, :1], latent.variance[:, :1])
    assert GaussianObservation(numbers(0.3)).distribution(one, vector=True).shape == (3,)
    assert StudentTObservation(numbers(0.3), numbers(4.0)).distribution(one, vector=True).shape == (3,)


@pytest.mark.parametrize("observation", [BernoulliObservation("logit"), SoftmaxObservation()])
def test_long_tables_are_taken_in_parts(observation, monkeypatch):
    rng = np.random.default_rng(1)
    latent = Latent(rng.normal(size=(50, 1 if observation.kind == "logit" else 3)), np.ones((50, 1)))
    latent = Latent(latent.mean, np.broadcast_to(latent.variance, latent.mean.shape).copy())
    whole = observation.distribution(latent).log_probabilities
    monkeypatch.setattr(base_module, "CHUNK_ENTRIES", 5000)
    np.testing.assert_allclose(observation.distribution(latent).log_probabilities, whole, rtol=1e-12)


@pytest.mark.parametrize("observation", [*OBSERVATIONS.values(), BernoulliObservation("probit"), SoftmaxObservation()])
def test_descriptions(observation, sites):
    again = observation_from_spec(observation.to_spec())
    again.load_state_dict(observation.state_dict(), assign=True)
    assert type(again) is type(observation)
    assert again.to_spec() == observation.to_spec()


@pytest.mark.parametrize("spec", [{}, {"type": "dice", "shapes": {}}, {"type": "gaussian"}])
def test_unknown_descriptions(spec):
    with pytest.raises(ValueError, match="unknown kind of observation"):
        observation_from_spec(spec)


def test_draws_given_latent_values():
    rng, f = np.random.RandomState(0), np.full((2, 2, 40_000), 0.5)
    for name, observation in OBSERVATIONS.items():
        if name == "gaussian":
            continue
        expected = observation.distribution(Latent(np.full((2, 2), 0.5), np.zeros((2, 2))))
        draws = observation.draw(f, rng)
        np.testing.assert_allclose(draws.mean(-1), expected.mean, atol=0.1)
        np.testing.assert_allclose(draws.std(-1), expected.std, rtol=0.15)
    with pytest.raises(ValueError, match="no joint draws"):
        SoftmaxObservation().draw(f, rng)
