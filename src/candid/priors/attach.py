"""Fixing, bounding and giving priors to hyper-parameters by name."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import torch
from torch import Tensor, nn

from candid.kernels import Kernel
from candid.parameters import Hyperparameter, hyperparameters
from candid.priors.densities import Interval, LogNormal, Normal, Prior
from candid.priors.points import PointPrior

__all__ = ["HyperPrior", "attach", "complete"]

# The priors of the paper on BSGP, and what others have on a standardised table.
MEDIANS = {"lengthscale": 1.0, "amplitude": 0.05, "noise": 0.1, "scale": 0.3, "freedom": 10.0}


class HasPoints(Protocol):
    """A family with inducing points."""

    points: nn.Parameter
    kernel: Kernel


class HyperPrior(nn.Module):
    """The joint prior of those hyper-parameters, and inducing inputs, of a model that were given one.

    Parameters
    ----------
    terms : list of (Hyperparameter, Prior)
    places : list of (Sparse, PointPrior)
        Owners of inducing points, and the priors of these.
    """

    def __init__(
        self, terms: list[tuple[Hyperparameter, Prior]], places: Sequence[tuple[HasPoints, PointPrior]] = ()
    ) -> None:
        super().__init__()
        self.terms, self.places = terms, list(places)
        #: Leading dimensions of a model of several chains; each of them has its own penalty.
        self.chains: tuple[int, ...] = ()

    def penalty(self) -> Tensor:
        """−log p of all of them together, for each chain.

        Chains are sampled, and what is sampled are raw values: for these, p is a density of raw values.
        """
        densities = [self._over(prior.log_density(parameter.value)) for parameter, prior in self.terms]
        if self.chains:
            first = {id(parameter): (parameter, prior) for parameter, prior in reversed(self.terms)}
            densities += [self._over(_log_volume(*term)) for term in first.values() if not _is_logarithmic(*term)]
        densities += [self._over(prior.log_density(owner.points, owner.kernel.unit)) for owner, prior in self.places]
        return -torch.stack(torch.broadcast_tensors(*densities)).sum(0)

    def _over(self, density: Tensor) -> Tensor:
        """The sum over all axes but that of chains, if there is one."""
        n_axes = len(self.chains)
        return density.flatten(n_axes).sum(-1) if n_axes and density.shape[:n_axes] == self.chains else density.sum()

    @torch.no_grad()
    def log_density_of(self, parameter: Hyperparameter, value: Tensor | float) -> float:
        """log p(parameter = ``value``), summed over its priors and over the entries of ``value``; 0 without a prior."""
        at = torch.as_tensor(value, dtype=torch.float64)
        return sum((float(prior.log_density(at).sum()) for owner, prior in self.terms if owner is parameter), 0.0)


def _is_logarithmic(parameter: Hyperparameter, prior: Prior) -> bool:
    """Whether the raw value is the logarithm that the prior speaks of."""
    return prior.of_logarithm and (parameter.lower, parameter.upper) == (0.0, math.inf)


def _log_volume(parameter: Hyperparameter, prior: Prior) -> Tensor:
    """log dvalue/draw, or d log value/draw where the prior is one of logarithms."""
    return parameter.log_slope() - parameter.value.log() if prior.of_logarithm else parameter.log_slope()


def attach(
    module: nn.Module, priors: Mapping[str, Prior | Interval] | None = None, fixed: Iterable[str] = ()
) -> HyperPrior | None:
    """Apply bounds, fix what is to stay, and collect the priors (None where there are none).

    A name is the hyper-parameter's own (``"lengthscale"``: every lengthscale of the model) or the end of its dotted
    path (``"first.lengthscale"``). An :class:`Interval` is a bound, anything else a density; a sequence of both may be
    given for one name. A bound never takes another one away: the hyper-parameter stays inside both.
    """
    for name in fixed:
        for parameter in _matching(module, name):
            parameter.fix()
    terms: list[tuple[Hyperparameter, Prior]] = []
    for name, wishes in (priors or {}).items():
        for parameter in _matching(module, name):
            for wish in wishes if isinstance(wishes, (list, tuple)) else [wishes]:
                if isinstance(wish, Interval):
                    _restrict(parameter, wish, name)
                elif isinstance(wish, Prior):
                    terms.append((parameter, wish))
                else:
                    raise TypeError(
                        f"the prior of {name!r} must come from candid.priors (LogNormal, Normal, Gamma, HalfNormal, "
                        f"Interval), got {wish!r}"
                    )
    # Only now, because bounds may make room for densities, in whatever order they were given.
    for parameter, prior in terms:
        _check_density(parameter, prior, module)
    return HyperPrior(terms) if terms else None


def complete(module: nn.Module, prior: HyperPrior | None) -> HyperPrior | None:
    """The same prior, in which every hyper-parameter that is not fixed has a proper density (None where there is none).

    By default log ℓ ~ N(0, 1) and log amplitude ~ N(log 0.05, 1), as in the paper on BSGP; log noise ~ N(log 0.1, 1),
    of Student's t noise log scale ~ N(log 0.3, 1) and log freedom ~ N(log 10, 1); and others of one, in logarithms
    where they are positive.
    """
    terms = [] if prior is None else list(prior.terms)
    known = {id(parameter) for parameter, _ in terms}
    for path, parameter in hyperparameters(module):
        if not parameter.fixed and id(parameter) not in known:
            median = MEDIANS.get(path.split(".")[-1], 1.0)
            terms.append((parameter, LogNormal(median) if parameter.lower >= 0 else Normal()))
    return HyperPrior(terms) if terms else None


def _restrict(parameter: Hyperparameter, interval: Interval, name: str) -> None:
    lower, upper = max(parameter.lower, interval.lower), min(parameter.upper, interval.upper)
    if not lower < upper:
        raise ValueError(
            f"{name!r} always lies between {parameter.lower:g} and {parameter.upper:g}, and nothing of that is inside "
            f"{interval!r}: choose an interval that overlaps"
        )
    parameter.restrict(lower, upper)


@torch.no_grad()
def _check_density(parameter: Hyperparameter, prior: Prior, module: nn.Module) -> None:
    density = prior.log_density(parameter.value)
    if parameter.lower >= prior.support and bool(torch.isfinite(density).all()):
        return
    name = next(path for path, known in hyperparameters(module) if known is parameter)
    raise ValueError(
        f"{prior!r} does not fit {name!r}, which lies between {parameter.lower:g} and {parameter.upper:g} and starts "
        f"at {parameter.value.tolist()}: it has no density in all of these places. Use a Normal prior, or add an "
        f"Interval on which the prior is positive"
    )


def _matching(module: nn.Module, name: str) -> list[Hyperparameter]:
    known = dict(hyperparameters(module))
    found = [parameter for path, parameter in known.items() if f".{path}".endswith(f".{name}")]
    if not found:
        raise ValueError(f"the model has no hyper-parameter {name!r}; it has {', '.join(sorted(known))}")
    return found
