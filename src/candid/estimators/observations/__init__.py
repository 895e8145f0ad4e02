"""Observations: what fitted models keep of their likelihoods, to turn latent moments into predictive distributions."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from candid.estimators.observations.base import Latent, Observation
from candid.estimators.observations.classes import BernoulliObservation, OneAgainstAllObservation, SoftmaxObservation
from candid.estimators.observations.coregionalised import CoregionalisedObservation
from candid.estimators.observations.counts import BinomialObservation, NegativeBinomialObservation
from candid.estimators.observations.gaussian import GaussianObservation
from candid.estimators.observations.student_t import StudentTObservation
from candid.estimators.scaling import Standardizer
from candid.likelihoods import (
    Bernoulli,
    Binomial,
    Coregionalised,
    Gaussian,
    Likelihood,
    NegativeBinomial,
    OneAgainstAll,
    PartlyObserved,
    Softmax,
    StudentT,
)

__all__ = [
    "BernoulliObservation",
    "BinomialObservation",
    "CoregionalisedObservation",
    "GaussianObservation",
    "Latent",
    "NegativeBinomialObservation",
    "Observation",
    "OneAgainstAllObservation",
    "SoftmaxObservation",
    "StudentTObservation",
    "observation_from_spec",
    "observe",
]

#: Which observation belongs to a likelihood.
OF_LIKELIHOOD: dict[type[Likelihood], Any] = {
    Bernoulli: BernoulliObservation,
    Binomial: BinomialObservation,
    Gaussian: GaussianObservation,
    NegativeBinomial: NegativeBinomialObservation,
    OneAgainstAll: OneAgainstAllObservation,
    PartlyObserved: GaussianObservation,
    Softmax: SoftmaxObservation,
    StudentT: StudentTObservation,
}
#: What makes an observation from its tensors, by the name under which a file speaks of it.
MAKERS: dict[str, Any] = {
    "binomial": BinomialObservation,
    "coregionalised": CoregionalisedObservation,
    "gaussian": GaussianObservation,
    "negative-binomial": NegativeBinomialObservation,
    "one-against-all": OneAgainstAllObservation,
    "logit": partial(BernoulliObservation, "logit"),
    "probit": partial(BernoulliObservation, "probit"),
    "softmax": SoftmaxObservation,
    "student-t": StudentTObservation,
}


@torch.no_grad()
def observe(likelihood: Likelihood, targets: Standardizer) -> Observation:
    """The observation of a fitted likelihood of standardised ``targets``, in the units of y."""
    if isinstance(likelihood, Coregionalised):
        return CoregionalisedObservation.of(likelihood, targets)
    return OF_LIKELIHOOD[type(likelihood)].of(likelihood, torch.as_tensor(targets.scale))


def observation_from_spec(spec: dict[str, Any]) -> Observation:
    """Rebuild an observation; its tensors are still to be loaded, and take no memory until then."""
    if spec.get("type") not in MAKERS or spec.keys() != {"type", "shapes"}:
        raise ValueError(f"unknown kind of observation {spec.get('type')!r}")
    shapes = {str(name): [int(size) for size in shape] for name, shape in spec["shapes"].items()}
    tensors = {name: torch.empty(shape, device="meta") for name, shape in shapes.items()}
    return MAKERS[spec["type"]](**tensors)
