"""What all GPs have beyond other estimators: a kernel, a mean function, and priors of their hyper-parameters."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import torch
from sklearn.utils._param_validation import StrOptions

from candid.estimators.core import Estimator, gp_estimator
from candid.estimators.fitting import Fitted, Setting
from candid.estimators.inputs import Table
from candid.families import Mean, make_mean
from candid.kernels import Kernel, make_kernel
from candid.likelihoods import Likelihood
from candid.parameters import hyperparameters
from candid.priors import HyperPrior, attach

__all__ = ["GP"]


@gp_estimator
class GP(Estimator):
    """A kernel, a mean function, and priors of their hyper-parameters."""

    kernel: str | Kernel = "matern52"
    ard: bool = True
    mean: str = "constant"
    priors: dict[str, Any] | None = None
    fixed: tuple[str, ...] = ()

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **Estimator._parameter_constraints,
        "kernel": [str, torch.nn.Module],
        "ard": ["boolean"],
        "mean": [StrOptions({"zero", "constant", "linear"})],
        "priors": [dict, None],
        "fixed": [tuple, list],
    }
    _shaping: ClassVar[tuple[str, ...]] = ("kernel", "ard", "mean", *Estimator._shaping)

    def _make_kernel(self, n_features: int, n_outputs: int, seed: int) -> Kernel:
        """The kernel, of the covariance where there are several; ``seed`` is that of networks."""
        return make_kernel(self.kernel, n_features, self.ard, (n_outputs,))

    def _make_mean(self, kernel: Kernel, n_features: int, n_outputs: int, seed: int) -> Mean:
        return make_mean(self.mean, n_features, n_outputs)

    def _parts(self, setting: Setting, seed: int) -> tuple[Kernel, Mean, Any, HyperPrior | None]:
        """Kernel, mean function and likelihood as the parameters describe them, and the priors that go with them.

        Their values are those of the start that training goes on from, if there is one; restarts begin elsewhere.
        """
        rows, start = setting.rows, setting.start
        n_features, n_outputs = rows.x.shape[1], setting.n_latents
        kernel = self._make_kernel(n_features, n_outputs, seed)
        parts = torch.nn.ModuleDict(
            {
                "kernel": kernel,
                "mean": self._make_mean(kernel, n_features, n_outputs, seed),
                "likelihood": self._make_likelihood(rows),
            }
        ).to(rows.x)
        prior = attach(parts, self.priors, self.fixed)
        kernel, mean, likelihood = parts["kernel"], parts["mean"], parts["likelihood"]
        if start is not None:
            for part, earlier in (
                (kernel, start.family.kernel),
                (mean, start.family.mean),
                (likelihood, start.likelihood),
            ):
                part.load_state_dict(earlier.state_dict())
        elif setting.restart:
            _move(parts, seed)
        assert isinstance(likelihood, Likelihood)
        return kernel, mean, likelihood, prior  # pyright: ignore[reportReturnType]

    def _train(self, table: Table, start: Fitted | None) -> Self:
        super()._train(table, start)
        self.kernel_, self.jitter_ = self._fitted.kernel, self._fitted.jitter
        return self


@torch.no_grad()
def _move(module: torch.nn.Module, seed: int) -> None:
    """Move learned hyper-parameters away from where a first run starts."""
    generator = torch.Generator().manual_seed(seed)
    for _, parameter in hyperparameters(module):
        if not parameter.fixed:
            parameter.raw.add_(0.5 * torch.randn(parameter.raw.shape, generator=generator).to(parameter.raw))
