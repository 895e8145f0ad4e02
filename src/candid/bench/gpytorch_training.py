"""The published recipe in GPyTorch: k-means, a cold start, Adam with step decay.

Import this only where GPyTorch is installed.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from candid.bench.contenders import TrainingStep
from candid.bench.gpytorch_side import GPyTorchModel, gpytorch_methods, make_likelihood, make_objective
from candid.engines import SCHEDULES, place_points
from candid.methods import find_method

__all__ = ["PublishedTraining"]

PREDICTED_AT_ONCE = 4096


class PublishedTraining:
    """A model of GPyTorch in training, epoch by epoch, as the paper of its method trains it.

    Hyper-parameters start at GPyTorch's own defaults.

    Parameters
    ----------
    method : str
    x, y : array
        Standardised training rows.
    n_inducing : int
    max_epochs : int
        Where the step decay is at its end.
    seed : int
        Of k-means and of the mini-batches.
    """

    def __init__(self, method: str, x: np.ndarray, y: np.ndarray, n_inducing: int, max_epochs: int, seed: int) -> None:
        if method not in gpytorch_methods():
            raise ValueError(f"GPyTorch has no {method!r}; it has {', '.join(gpytorch_methods())}")
        row = find_method(method)
        recipe = row.published
        self._x, self._y = (torch.as_tensor(values, dtype=torch.float32) for values in (x, y))
        self._batch_size, self._rate = int(recipe["batch_size"]), float(recipe["lr"])
        self._schedule, self.max_epochs = SCHEDULES[recipe["schedule"]], max_epochs
        points = torch.as_tensor(place_points(x, n_inducing, "kmeans", seed), dtype=torch.float32)
        self._model, self._likelihood = GPyTorchModel(row, points), make_likelihood()
        objective = make_objective(row, self._model, self._likelihood, len(x), float(recipe["beta"]))
        self._batch = torch.arange(0)
        self._step = TrainingStep(
            lambda: -objective(self._model(self._x[self._batch]), self._y[self._batch]),  # pyright: ignore[reportOperatorIssue]
            [*self._model.parameters(), *self._likelihood.parameters()],
            self._rate,
        )
        self._generator = torch.Generator().manual_seed(seed)
        self.epoch = 0

    @property
    def finished(self) -> bool:
        return self.epoch >= self.max_epochs

    def train_epoch(self) -> None:
        """Go through all rows once."""
        self._model.train()
        self._step.set_rate(self._rate * self._schedule(self.epoch / self.max_epochs))
        order = torch.randperm(len(self._x), generator=self._generator)
        for batch in order.split(self._batch_size):
            self._batch = batch
            loss = self._step()
            if not math.isfinite(loss):
                raise ArithmeticError(f"the loss of GPyTorch's model became {loss} in epoch {self.epoch}")
        self.epoch += 1

    @torch.no_grad()
    def predict(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of new observations."""
        self._model.eval()
        rows = torch.as_tensor(x, dtype=torch.float32)
        parts = [self._model.moments(part) for part in rows.split(PREDICTED_AT_ONCE)]
        mean, variance = (torch.cat(values).double() for values in zip(*parts, strict=True))
        return mean.numpy(), (variance + self._noise()).numpy()

    def _noise(self) -> Tensor:
        return self._likelihood.noise.double()
