"""Sites: where the values of hidden layers are taken, and what each counts in the mixture that comes out.

A hidden GP has a mean μ and a standard deviation σ at a row; the next layer sees μ + ξσ. A rule says which ξ there are:
learned and lined up (qr3), learned on a grid (qr1), on a grid that is symmetric about zero (qr2), fixed (Gauss–Hermite)
or random (Monte Carlo).

References
----------
M. Jankowiak, G. Pleiss, J. R. Gardner, Deep sigma point processes (2020); H. Salimbeni, M. Deisenroth, Doubly
stochastic variational inference for deep Gaussian processes (2017).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from scipy.special import ndtri
from scipy.stats import qmc
from torch import Tensor, nn

__all__ = ["RULES", "FixedSites", "LearnedGrid", "LearnedSites", "MonteCarlo", "Rule", "gauss_hermite", "make_rule"]

# Below this variance a hidden value counts as certain: the root of nothing has no gradient.
LEAST_VARIANCE = 1e-8
# A grid of more sites than this is a mistake.
MOST_SITES = 10_000
# What random numbers are for; each purpose has its own.
STANDING, TRAINING = range(2)


class Rule(nn.Module, ABC):
    """Sites of all hidden layers.

    Attributes
    ----------
    crossed : bool
        Whether every site of a layer meets every site of the layers before it; otherwise they are lined up, and there
        are as many in the end as in the beginning.
    """

    crossed: bool

    @abstractmethod
    def points(self, layer: int, n_rows: int = 1) -> Tensor:
        """ξ of each site and GP of a hidden layer, (S, 1, W); or (S, row, W), where rows have their own."""

    @abstractmethod
    def log_weight(self) -> Float[Tensor, "*models sites 1"]:
        """Logarithms of what each site counts in the end; these weights add up to one."""

    @abstractmethod
    def settled(self) -> FixedSites:
        """The sites that predictions use, which share nothing with these."""

    def refresh(self, step: int) -> None:
        """Called before every step of training."""

    def propagate(
        self, layer: int, mean: Float[Tensor, "*chains s n w"], variance: Float[Tensor, "*chains s n w"]
    ) -> Float[Tensor, "*chains t n w"]:
        """Values of a hidden layer at the sites, from its moments at the sites of the layers before it."""
        # μ + ξσ
        deviation = variance.clamp_min(LEAST_VARIANCE).sqrt()
        points = self.points(layer, mean.shape[-2])
        if not self.crossed:
            return mean + points * deviation
        return (mean.unsqueeze(-3) + points * deviation.unsqueeze(-3)).flatten(-4, -3)


class FixedSites(Rule):
    """Sites that are what they are.

    Parameters
    ----------
    points : sequence of Tensor
        Of each hidden layer, (site, GP).
    log_weight : Tensor
        (site, 1).
    crossed : bool

    Models side by side that have sites of their own are an axis in front of both.
    """

    weights: Tensor

    def __init__(self, points: Sequence[Tensor], log_weight: Float[Tensor, "*models t 1"], crossed: bool) -> None:
        super().__init__()
        self.crossed, self.n_layers = crossed, len(points)
        for layer, values in enumerate(points):
            self.register_buffer(f"points_{layer}", values)
        self.register_buffer("weights", log_weight)

    def points(self, layer: int, n_rows: int = 1) -> Float[Tensor, "*models s 1 w"]:
        return getattr(self, f"points_{layer}").unsqueeze(-2)

    def log_weight(self) -> Float[Tensor, "*models sites 1"]:
        return self.weights

    def settled(self) -> FixedSites:
        points = [self.points(layer).squeeze(-2).detach().clone() for layer in range(self.n_layers)]
        return FixedSites(points, _settled(self.weights), self.crossed)


class LearnedSites(Rule):
    """S sites that the GPs of all layers have in common (qr3): S·W points and S weights, all of them learned.

    The points of each GP start as the quantiles of a normal distribution, in an order of its own, times a ``scale``. It
    is small: of sites that start far from each other one takes most of the weight before the others are of use.
    """

    crossed = False

    def __init__(self, n_sites: int, widths: Sequence[int], seed: int = 0, scale: float = 0.3) -> None:
        super().__init__()
        start = scale * _stratified(n_sites, sum(widths), seed)
        self.sites = nn.ParameterList([nn.Parameter(values) for values in start.split(list(widths), -1)])
        self.logits = nn.Parameter(torch.zeros(n_sites))

    def points(self, layer: int, n_rows: int = 1) -> Float[Tensor, "s 1 w"]:
        return self.sites[layer].unsqueeze(-2)

    def log_weight(self) -> Float[Tensor, "sites 1"]:
        return self.logits.log_softmax(-1).unsqueeze(-1)

    def settled(self) -> FixedSites:
        return FixedSites(
            [values.detach().clone() for values in self.sites], _settled(self.logits.unsqueeze(-1)), crossed=False
        )


class LearnedGrid(Rule):
    """All combinations of S points for each of the W GPs of a layer (qr1), with learned points and S^W learned weights.

    With ``symmetric`` points (qr2), those of a GP are ξ₁, …, −ξ₁; of an odd number the one in the middle is zero.
    Points and weights start as those of Gauss and Hermite.
    """

    crossed = True

    def __init__(self, n_sites: int, widths: Sequence[int], symmetric: bool = False) -> None:
        super().__init__()
        _check_size(n_sites, widths)
        nodes, weights = gauss_hermite(n_sites)
        self.symmetric, self.odd = symmetric, n_sites % 2 == 1
        free = nodes[: n_sites // 2] if symmetric else nodes
        self.nodes = nn.ParameterList([nn.Parameter(free[:, None].repeat(1, width)) for width in widths])
        self.logits = nn.Parameter(_combinations(weights.log()[:, None].expand(-1, sum(widths))).sum(-1))

    def line(self, layer: int) -> Float[Tensor, "s w"]:
        """The S points of each GP of a layer."""
        nodes = self.nodes[layer]
        if not self.symmetric:
            return nodes
        centre = nodes.new_zeros(int(self.odd), nodes.shape[-1])
        return torch.cat([nodes, centre, -nodes.flip(0)])

    def points(self, layer: int, n_rows: int = 1) -> Float[Tensor, "s 1 w"]:
        return _combinations(self.line(layer)).unsqueeze(-2)

    def log_weight(self) -> Float[Tensor, "sites 1"]:
        return self.logits.log_softmax(-1).unsqueeze(-1)

    def settled(self) -> FixedSites:
        points = [self.points(layer).squeeze(-2).detach() for layer in range(len(self.nodes))]
        return FixedSites(points, _settled(self.logits.unsqueeze(-1)), crossed=True)


class MonteCarlo(Rule):
    """S random sites, of their own for each row and GP, drawn anew at every step; all of them count the same.

    Draws follow from the seed and the step. Without gradients, where training only asks how it stands, they are the
    same at every step. Predictions use ``n_settled`` sites that all rows share, from a scrambled Sobol sequence. Where
    there are several models side by side, which is an axis in front of all tensors, each has draws and sites of its
    own.
    """

    crossed = False

    def __init__(self, n_sites: int, widths: Sequence[int], n_settled: int = 32, seed: int = 0) -> None:
        super().__init__()
        self.n_sites, self.widths, self.n_settled, self.seed = n_sites, list(widths), n_settled, seed
        self.step = 0
        # Tells the device and the dtype of draws.
        self.register_buffer("even", torch.full((n_sites, 1), -math.log(n_sites)), persistent=False)

    even: Tensor

    def refresh(self, step: int) -> None:
        self.step = step

    def points(self, layer: int, n_rows: int = 1) -> Float[Tensor, "*models s n w"]:
        purpose = (TRAINING, self.step) if torch.is_grad_enabled() else (STANDING, 0)
        (seed,) = np.random.SeedSequence((self.seed, *purpose, layer)).generate_state(1)
        generator = torch.Generator().manual_seed(int(seed))
        return torch.randn(*self.even.shape[:-1], n_rows, self.widths[layer], generator=generator).to(self.even)

    def log_weight(self) -> Float[Tensor, "*models sites 1"]:
        return self.even

    def settled(self) -> FixedSites:
        models = self.even.shape[:-2]
        n_points = math.prod(models) * self.n_settled
        even = _settled(self.even.new_zeros(*models, self.n_settled, 1))
        if not self.widths:
            return FixedSites((), even, crossed=False)
        # As many as the next power of two, as the sequence wants it.
        sequence = qmc.Sobol(sum(self.widths), rng=np.random.default_rng(self.seed))
        uniform = sequence.random_base2(math.ceil(math.log2(n_points)))[:n_points]
        points = torch.from_numpy(ndtri(uniform.clip(1e-9, 1 - 1e-9))).to(self.even)
        return FixedSites(points.reshape(*models, self.n_settled, -1).split(self.widths, -1), even, crossed=False)


def gauss_hermite(n_points: int) -> tuple[Float[Tensor, " s"], Float[Tensor, " s"]]:
    """Points and weights that average polynomials of degree below 2S over a standard normal exactly."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(n_points)
    return torch.from_numpy(nodes), torch.from_numpy(weights / weights.sum())


def _fixed_grid(n_sites: int, widths: Sequence[int]) -> FixedSites:
    _check_size(n_sites, widths)
    nodes, weights = gauss_hermite(n_sites)
    points = [_combinations(nodes[:, None].expand(-1, width)) for width in widths]
    log_weight = _combinations(weights.log()[:, None].expand(-1, sum(widths))).sum(-1, keepdim=True)
    return FixedSites(points, log_weight, crossed=True)


#: Quadrature rules by their name: from the number of sites, the widths of hidden layers and a seed.
RULES = {
    "qr1": lambda n_sites, widths, seed: LearnedGrid(n_sites, widths),
    "qr2": lambda n_sites, widths, seed: LearnedGrid(n_sites, widths, symmetric=True),
    "qr3": LearnedSites,
    "gauss-hermite": lambda n_sites, widths, seed: _fixed_grid(n_sites, widths),
}


def make_rule(name: str, n_sites: int, widths: Sequence[int], seed: int = 0) -> Rule:
    """The quadrature rule called ``name``."""
    if name not in RULES:
        raise ValueError(f"unknown quadrature rule {name!r}; choose one of {', '.join(RULES)}")
    return RULES[name](n_sites, widths, seed)


def _combinations(line: Float[Tensor, "s w"]) -> Float[Tensor, "grid w"]:
    """All S^W choices of one row for each column; those of the last column change the fastest."""
    columns = torch.meshgrid(*line.unbind(-1), indexing="ij")
    return torch.stack([column.flatten() for column in columns], -1)


def _check_size(n_sites: int, widths: Sequence[int]) -> None:
    total = n_sites ** sum(widths)
    if total > MOST_SITES:
        raise ValueError(
            f"a grid of {n_sites} points for each of {sum(widths)} hidden GPs has {total} sites, more than "
            f"{MOST_SITES}; use fewer sites, narrower layers, or quadrature='qr3', whose sites are lined up"
        )


def _stratified(n_sites: int, width: int, seed: int) -> Float[Tensor, "s w"]:
    """Normal quantiles in each column, in an order of its own."""
    quantiles = torch.from_numpy(ndtri((np.arange(n_sites) + 0.5) / n_sites)).float()
    generator = torch.Generator().manual_seed(seed)
    return torch.stack([quantiles[torch.randperm(n_sites, generator=generator)] for _ in range(width)], -1)


def _settled(logits: Float[Tensor, "*models sites 1"]) -> Float[Tensor, "*models sites 1"]:
    """Logarithms of weights that add up to one in float64, in which predictions are made."""
    return logits.detach().double().log_softmax(-2)
