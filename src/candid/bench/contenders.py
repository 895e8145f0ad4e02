"""The same work twice: with this library, and with GPyTorch if it is installed.

An activity is one of :data:`ACTIVITIES`; an action is a function without arguments that does it once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from itertools import count

import torch
from torch import Tensor, nn

from candid.bench.case import Case, Sample
from candid.bench.deep_contenders import make_layers
from candid.engines import Problem, step_crew
from candid.engines.steppers import Adam, take_step
from candid.estimators import make_gp
from candid.estimators.sparse_parts import OMEGA_DRAWS
from candid.families import Conditional, Family, Inducing, decoupled_kernel, make_mean
from candid.families.decoupled import Decoupled
from candid.kernels import Matern52, Scale
from candid.likelihoods import Gaussian
from candid.linalg.crew import crew
from candid.marginal import Batch, Marginal
from candid.weights import WEIGHTS

__all__ = ["ACTIVITIES", "Action", "TrainingStep", "gpytorch_action", "has_gpytorch", "our_action"]

Action = Callable[[], object]

#: What is timed → how tables call it.
ACTIVITIES = {
    "step": "training step",
    "predict32": "predict, float32",
    "predict64": "predict, float64",
    "row": "predict one row, predictor_",
    "row_estimator": "predict one row, estimator",
}
JITTER = 1e-5
RATE = 1e-3


class TrainingStep:
    """Evaluate the loss and its gradient, and let the engine's Adam move: the same for every contender.

    A call returns the loss before the step.
    """

    def __init__(self, loss: Callable[[], Tensor], parameters: Sequence[nn.Parameter], rate: float = RATE) -> None:
        self._loss, self._parameters = loss, list(parameters)
        self._stepper = Adam(self._parameters, rate)

    def __call__(self) -> float:
        return take_step([self._stepper], self._evaluate)

    def set_rate(self, rate: float) -> None:
        self._stepper.set_rate(rate)

    def _evaluate(self) -> float:
        value = self._loss()
        for parameter, gradient in zip(self._parameters, torch.autograd.grad(value, self._parameters), strict=True):
            parameter.grad = gradient
        return float(value.detach())


def our_action(activity: str, case: Case, sample: Sample) -> Action:
    """The activity with this library."""
    if activity in ("row", "row_estimator"):
        return _one_row(activity, case, sample)
    family = _family(case, sample)
    if activity == "step":
        penalties = {"kl": case.beta} | ({"omega": case.omega_weight} if case.omega_weight else {})
        problem = Problem(family, Gaussian(case.noise), case.row.made_of.objective, penalties)
        batch = Batch(sample.x, sample.y[:, None], torch.ones(case.batch_size), float(sample.total))
        steps = count()

        def loss() -> Tensor:
            family.refresh(next(steps))
            return problem.loss(batch)

        return _in_crew(step_crew(family, case.batch_size), TrainingStep(loss, problem.groups()["all"]))
    dtype = torch.float32 if activity == "predict32" else torch.float64
    predictor, x = family.predictor().to(dtype), sample.new_x.to(dtype)
    return lambda: _moments(predictor.marginal, x)


def _in_crew(size: int | None, action: Action) -> Action:
    def run() -> object:
        with crew(size):
            return action()

    return run


def gpytorch_action(activity: str, case: Case, sample: Sample) -> Action | None:
    """The activity in GPyTorch with its default settings, float32; None if GPyTorch is not installed."""
    if not has_gpytorch():
        return None
    if case.deep:
        from candid.bench.gpytorch_deep import deep_loss

        return TrainingStep(*deep_loss(case, sample))
    from candid.bench.gpytorch_side import GPyTorchModel, make_likelihood, make_objective

    model, likelihood = GPyTorchModel(case.row, sample.points), make_likelihood()
    model.covar_module.initialize(outputscale=case.amplitude)
    model.covar_module.base_kernel.initialize(lengthscale=case.lengthscale)  # pyright: ignore[reportCallIssue]
    likelihood.initialize(noise=case.noise)
    if activity == "step":
        objective = make_objective(case.row, model, likelihood, sample.total, case.beta)
        return TrainingStep(
            lambda: -objective(model(sample.x), sample.y),  # pyright: ignore[reportOperatorIssue]
            [*model.parameters(), *likelihood.parameters()],
        )
    model.eval()
    x = sample.new_x if activity.startswith("predict") else sample.new_x[:1]
    return lambda: model.moments(x)


def has_gpytorch() -> bool:
    """Whether it is installed."""
    return find_spec("gpytorch") is not None


def _family(case: Case, sample: Sample) -> Family:
    """The family as our estimators train it, without these around it."""
    if case.deep:
        return make_layers(case, sample, JITTER)
    kernel = Scale(Matern52(lengthscale=case.lengthscale), case.amplitude).build(case.n_features, True, (1,))
    mean = make_mean("zero", case.n_features, 1)
    weights = WEIGHTS[str(case.row.made_of.weights)](case.n_inducing, (1,))
    points = sample.points[None]
    if case.decoupled:
        return Decoupled(kernel, mean, points, points, weights, JITTER)
    if case.row.made_of.family == "conditional":
        omega = {"with_omega": case.omega_weight > 0, "omega_draws": OMEGA_DRAWS}
        return Conditional(kernel, decoupled_kernel(kernel), mean, points, weights, JITTER, **omega)
    return Inducing(kernel, mean, points, weights, JITTER)


def _one_row(activity: str, case: Case, sample: Sample) -> Action:
    """One row through a fitted estimator; how well it is fitted does not matter."""
    gp = make_gp(case.method, n_inducing=case.n_inducing, init="random", max_epochs=0, random_state=0, verbose=False)
    gp.fit(sample.points.numpy(), torch.sin(sample.points[:, 0]).numpy())
    row = sample.new_x[:1].double()
    if activity == "row":
        return lambda: _moments(gp.predictor_.marginal, row)
    array = row.numpy()
    return lambda: gp.predict(array, return_std=True)


@torch.no_grad()
def _moments(marginal: Callable[[Tensor], Marginal], x: Tensor) -> tuple[Tensor, Tensor]:
    latent = marginal(x)
    return latent.mean, latent.variance
