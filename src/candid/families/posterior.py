"""Models side by side, as a sampler moves them, and samples of a model as the components of its prediction."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Mapping
from typing import TypeVar

import torch
from torch import Tensor, nn

from candid.families.base import Family
from candid.families.means import Mean
from candid.families.mixture_predictor import MixturePredictor
from candid.kernels import Kernel
from candid.marginal import Batch, Evaluation, JointPrior, LowRankPrior, Marginal

__all__ = ["Posterior"]

AnyFamily = TypeVar("AnyFamily", bound=Family)


class Posterior(Family):
    """Chains of a family: ``inner`` with a leading dimension in all of its tensors.

    Once samples of its parameters have been collected, predictions are mixtures over them.

    Parameters
    ----------
    inner : Family
        A single model, all of whose parts may have leading dimensions. It becomes the chains, which start alike.
    n_chains : int
    sampled : collection of {"u", "theta", "z"}
        In what chains differ: inducing values, hyper-parameters, inducing inputs. They have the rest in common.
    """

    def __init__(self, inner: Family, n_chains: int, sampled: Collection[str] = ("u", "theta", "z")) -> None:
        super().__init__()
        _change_tensors(inner, lambda _, tensor: tensor.expand(n_chains, *tensor.shape), n_chains)
        self.inner, self._n_chains, self._sampled = inner, n_chains, frozenset(sampled)
        self._draws: dict[str, Tensor] = {}
        self._n_draws = 1

    @property
    def n_chains(self) -> int:
        return self._n_chains

    @property
    def kernel(self) -> Kernel:  # pyright: ignore[reportIncompatibleVariableOverride]
        """That of one model, whose hyper-parameters are in the middle of the samples: the mean of their raw values."""
        return self.middle().kernel

    @property
    def mean(self) -> Mean:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.middle().mean

    @property
    def jitter(self) -> Tensor:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.inner.jitter

    @property
    def hidden_inputs(self) -> int | None:
        return self.inner.hidden_inputs

    @property
    def batchwise(self) -> bool:
        return self.inner.batchwise

    def evaluate(self, batch: Batch) -> Evaluation:
        evaluation = self.inner.evaluate(batch)
        return Evaluation(_without_single_site(evaluation.marginal), evaluation.penalties)

    def groups(self, batch: Batch) -> Batch:
        return self.inner.groups(batch)

    def prior(self, batch: Batch) -> JointPrior | LowRankPrior | Marginal:
        return self.inner.prior(batch)

    def refresh(self, step: int) -> None:
        self.inner.refresh(step)

    def weight_parameters(self) -> list[nn.Parameter]:
        return self.inner.weight_parameters()

    def point_parameters(self) -> list[nn.Parameter]:
        return self.inner.point_parameters()

    def common_parameters(self) -> list[nn.Parameter]:
        groups = {"u": self.weight_parameters(), "z": self.point_parameters()}
        named = {id(parameter) for group in groups.values() for parameter in group}
        groups["theta"] = [parameter for parameter in self.parameters() if id(parameter) not in named]
        return [parameter for name in groups if name not in self._sampled for parameter in groups[name]]

    def keep(self, draws: Mapping[str, Tensor]) -> None:
        # They may be of the likelihood alone.
        self._n_draws = len(next(iter(draws.values()))) if draws else 1
        prefix = "inner."
        self._draws = {name.removeprefix(prefix): draw for name, draw in draws.items() if name.startswith(prefix)}

    @torch.no_grad()
    def predictor(self) -> MixturePredictor:
        return MixturePredictor(self._samples().predictor())

    @torch.no_grad()
    def draft_predictor(self) -> MixturePredictor:
        return MixturePredictor(self._samples().draft_predictor())

    def _samples(self) -> Family:
        """All draws of all chains (before there are any, the chains as they are) as models side by side."""

        def together(name: str, tensor: Tensor) -> Tensor:
            drawn = self._draws.get(name, tensor.expand(self._n_draws, *tensor.shape))
            # A draw is of all chains at once.
            return drawn.flatten(0, 1)

        return _change_tensors(copy.deepcopy(self.inner), together, self._n_draws * self.n_chains)

    @torch.no_grad()
    def middle(self) -> Family:
        """One model, at the averages over draws and chains."""

        def average(name: str, tensor: Tensor) -> Tensor:
            return self._draws.get(name, tensor.unsqueeze(0)).mean((0, 1))

        return _change_tensors(copy.deepcopy(self.inner), average, None)


def _without_single_site(marginal: Marginal) -> Marginal:
    """One site of all the weight is no mixture: chains of layers look like chains of anything else."""
    if marginal.log_weight is None or marginal.mean.shape[-3] > 1:
        return marginal
    return Marginal(*(part.squeeze(-3) for part in (marginal.mean, marginal.residual, marginal.spread)))


@torch.no_grad()
def _change_tensors(family: AnyFamily, change: Callable[[str, Tensor], Tensor], n_models: int | None) -> AnyFamily:
    """Replace all tensors of a family, in place, by ones with another leading dimension (None: with none)."""
    for path, part in family.named_modules():
        prefix = f"{path}." if path else ""
        for name, parameter in part._parameters.items():
            if parameter is not None:
                changed = change(prefix + name, parameter.detach()).clone()
                part._parameters[name] = nn.Parameter(changed, requires_grad=parameter.requires_grad)
        for name, buffer in part._buffers.items():
            if buffer is not None:
                part._buffers[name] = change(prefix + name, buffer).clone()
        if isinstance(part, Mean):
            part.batch_shape = () if n_models is None else (n_models,)
    return family
