"""Fixing, bounding and giving priors to hyper-parameters by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn

from candid.parameters import Hyperparameter, hyperparameters
from candid.priors.densities import Interval, Prior

__all__ = ["HyperPrior", "attach"]


class HyperPrior(nn.Module):
    """The joint prior of those hyper-parameters of a model that were given one."""

    def __init__(self, terms: list[tuple[Hyperparameter, Prior]]) -> None:
        super().__init__()
        self.terms = terms

    def penalty(self) -> Tensor:
        """−log p of all of them together."""
        return -torch.stack([prior.log_density(parameter.value).sum() for parameter, prior in self.terms]).sum()


def attach(
    module: nn.Module, priors: Mapping[str, Prior | Interval] | None = None, fixed: Iterable[str] = ()
) -> HyperPrior | None:
    """Apply bounds, fix what is to stay, and collect the priors (None where there are none).

    A name is the hyper-parameter's own (``"lengthscale"``: every lengthscale of the model) or the end of its dotted
    path (``"first.lengthscale"``). An :class:`Interval` is a bound, anything else a density; a sequence of both may be
    given for one name.
    """
    for name in fixed:
        for parameter in _matching(module, name):
            parameter.fix()
    terms: list[tuple[Hyperparameter, Prior]] = []
    for name, wishes in (priors or {}).items():
        for parameter in _matching(module, name):
            for wish in wishes if isinstance(wishes, (list, tuple)) else [wishes]:
                if isinstance(wish, Interval):
                    parameter.restrict(wish.lower, wish.upper)
                elif isinstance(wish, Prior):
                    terms.append((parameter, wish))
                else:
                    raise TypeError(
                        f"the prior of {name!r} must come from candid.priors (LogNormal, Normal, Gamma, HalfNormal, "
                        f"Interval), got {wish!r}"
                    )
    return HyperPrior(terms) if terms else None


def _matching(module: nn.Module, name: str) -> list[Hyperparameter]:
    known = dict(hyperparameters(module))
    found = [parameter for path, parameter in known.items() if f".{path}".endswith(f".{name}")]
    if not found:
        raise ValueError(f"the model has no hyper-parameter {name!r}; it has {', '.join(sorted(known))}")
    return found
