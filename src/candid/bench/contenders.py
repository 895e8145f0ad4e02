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
from candid.families import Inducing, make_mean
from candid.kernels import make_kernel
from candid.likelihoods import Gaussian
from candid.marginal import Batch
from candid.weights import Delta, Diagonal, Full

__all__ = ["AMPLITUDE", "LENGTHSCALE", "NOISE", "Contender", "gpytorch_contender", "our_contender"]

#: Where the hyper-parameters of all contenders start; large enough a lengthscale that no matrix is nearly the identity.
LENGTHSCALE, AMPLITUDE, NOISE = 3.0, 1.0, 0.1
WEIGHTS = {"full": Full, "diagonal": Diagonal, "delta": Delta}
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
    kernel = make_kernel("matern52", case.n_features, True, (1,))
    family = Inducing(
        kernel, make_mean("zero", case.n_features, 1), sample.points[None], _weights(case), JITTER
    )
    problem = Problem(family, Gaussian(noise=NOISE), row.objective, {"kl": row.candid.get("beta", 1.0)})
    for name, parameter in problem.named_modules():
        if name.endswith("lengthscale"):
            parameter.set(LENGTHSCALE)  # pyright: ignore[reportCallIssue]
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


def _weights(case: Case) -> nn.Module:
    return WEIGHTS[case.row.weights or "full"](case.n_inducing, (1,))


@torch.no_grad()
def _moments(predictor, x: Tensor) -> tuple[Tensor, Tensor]:
    marginal = predictor.marginal(x)
    return marginal.mean, marginal.variance
