"""The same model twice: with this library's parts, and with GPyTorch's if it is installed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec

import torch
from torch import Tensor, nn

from candid.bench.case import Case, Sample
from candid.engines import Problem
from candid.engines.steppers import Adam, take_step
from candid.families import Inducing, Predictor, make_mean
from candid.kernels import Matern52, Scale
from candid.likelihoods import Gaussian
from candid.marginal import Batch
from candid.weights import WEIGHTS

__all__ = ["Contender", "gpytorch_contender", "our_contender", "training_step"]

JITTER = 1e-5
RATE = 1e-3


@dataclass(frozen=True)
class Contender:
    """A model that is ready to train and to predict.

    ``step`` is one whole training step and returns the loss before it; ``predictions`` give mean and variance of the
    new rows.
    """

    step: Callable[[], float]
    predictions: dict[str, Callable[[], tuple[Tensor, Tensor]]]


def our_contender(case: Case, sample: Sample) -> Contender:
    """The method as :class:`~candid.SparseGPRegressor` trains it, without the estimator around it."""
    row = case.row
    kernel = Scale(Matern52(lengthscale=case.lengthscale), case.amplitude).build(case.n_features, True, (1,))
    weights = WEIGHTS[row.made_of.weights or "full"](case.n_inducing, (1,))
    family = Inducing(kernel, make_mean("zero", case.n_features, 1), sample.points[None], weights, JITTER)
    problem = Problem(family, Gaussian(case.noise), row.made_of.objective, {"kl": case.beta})
    batch = Batch(sample.x, sample.y[:, None], torch.ones(case.batch_size), float(sample.total))
    predictor = family.predictor()
    single = family.predictor().float()
    return Contender(
        training_step(lambda: problem.loss(batch), problem.groups()["all"]),
        {
            "float64": lambda: _moments(predictor, sample.new_x.double()),
            "float32": lambda: _moments(single, sample.new_x),
        },
    )


def gpytorch_contender(case: Case, sample: Sample) -> Contender | None:
    """The same model in GPyTorch with its default settings; None if GPyTorch is not installed."""
    if find_spec("gpytorch") is None:
        return None
    from candid.bench.gpytorch_side import build

    loss, parameters, predict = build(case, sample)
    return Contender(training_step(loss, parameters), {"float32": predict})


def training_step(loss: Callable[[], Tensor], parameters: Sequence[nn.Parameter]) -> Callable[[], float]:
    """Evaluate the loss, its gradient, and let the engine's Adam move: the same for every contender."""
    stepper = Adam(parameters, RATE)

    def evaluate() -> float:
        value = loss()
        for parameter, gradient in zip(parameters, torch.autograd.grad(value, parameters), strict=True):
            parameter.grad = gradient
        return float(value.detach())

    return lambda: take_step([stepper], evaluate)


@torch.no_grad()
def _moments(predictor: Predictor, x: Tensor) -> tuple[Tensor, Tensor]:
    marginal = predictor.marginal(x)
    return marginal.mean, marginal.variance
