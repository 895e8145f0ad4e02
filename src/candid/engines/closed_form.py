"""q(v), and the noise that goes with it, in closed form from one pass over the rows in float64."""

from __future__ import annotations

import copy
import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce

import numpy as np
import torch
from scipy.optimize import minimize_scalar
from torch import Tensor

from candid.engines.rows import Rows
from candid.families import Regressors, Sparse
from candid.likelihoods import Binomial, Gaussian, Likelihood, NegativeBinomial, matching_observations
from candid.linalg import cholesky
from candid.linalg.triangular import lower_half_of_product, solve_lower
from candid.parameters import Hyperparameter
from candid.priors import HyperPrior
from candid.weights import optimal_weights

__all__ = ["match_noise", "opened", "settle_weights", "solve_weights"]

CHUNK = 4096
# A start needs no more rows than this, and should not take longer than the training.
MOST_ROWS = 100_000
# Of a q(v) that is wide open, in units of the prior's.
OPEN_PRECISION = 10.0
# Rounds for a likelihood that is not Gaussian, of which all but the last see no more than so many rows, and the change
# of coefficients after which there are no more.
ROUNDS, ROUND_ROWS, SETTLED = 10, 10_000, 0.01
#: Confidence h, (P, n), in some rows, from their weight, their residual variance (P, n) and their index.
Confidence = Callable[[Tensor, Tensor, Tensor], Tensor]
#: Confidence and r = y − mu, both (P, n), of some rows, from these, their regressors, their mu (n, P) and their index.
Observed = Callable[[Rows, Regressors, Tensor, Tensor], tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Statistics:
    """Sums over all rows, one for each output; r = y − mu, c the residual variance, h the confidence in a row.

    φ are the regressors of the mean, a those of the spread.
    """

    gram: Tensor  # Σ h φ φᵀ, (P, J, J)
    projection: Tensor  # Σ h φ r, (P, J)
    squares: Tensor  # Σ h r², (P,)
    residual: Tensor  # Σ h c, (P,)
    spread: Tensor  # Σ h a aᵀ, (P, M, M); (P, 0, 0) where it is not needed, or the first block of ``gram``

    def scaled(self, factor: float) -> Statistics:
        return Statistics(*(factor * mine for mine in vars(self).values()))

    def __add__(self, other: Statistics) -> Statistics:
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return Statistics(*(mine + theirs for mine, theirs in pairs))


@torch.no_grad()
def solve_weights(
    family: Sparse,
    likelihood: Gaussian,
    rows: Rows,
    beta: float = 1.0,
    residual_is_noise: bool = False,
    openness: float = 0.0,
) -> None:
    """Set the weights of the mean and q(v), in place, to the best ones at the present hyper-parameters.

    Best for the ELBO with noise variances σ², or, if ``residual_is_noise``, for its FITC variant, whose noise in row i
    is c_i + σ²: that is the better start for objectives that count the residual c_i as spread of the prediction.

    With an ``openness`` above zero, the precision of q(v) goes that share of the way to ten times the prior's. A bound
    leaves S nearly nothing where rows abound, and from there an objective that needs the spread does not get away: its
    gradient with respect to a root of S vanishes with S.
    """
    noise = copy.deepcopy(likelihood).double()

    def confidence(weight: Tensor, residual: Tensor, index: Tensor) -> Tensor:
        # w_i / β(σ_i² [+ c_i])
        variance = noise.at(index).variance.mT
        return weight / (beta * (variance + residual if residual_is_noise else variance))

    sums = _gather(family, rows, _as_they_are(confidence), with_spread=True)
    coefficients, precision = _solution(sums)
    family.assign(coefficients, opened(precision, openness))


@torch.no_grad()
def settle_weights(
    family: Sparse, likelihood: Likelihood, rows: Rows, beta: float = 1.0, openness: float = 0.0, rounds: int = ROUNDS
) -> None:
    """The same for any likelihood, by turns: normal observations that are like the real ones at the present q(v), and
    the best q(v) for these.

    With Pólya–Gamma variables or Student's t each turn makes the bound higher (Wenzel et al. 2019); one that begins
    where it ends is at its maximum. With large counts such turns would be very short. So counts count by themselves at
    first, and then as what matches them on average: turns of Newton's method, so to speak.
    """
    exact, n_points = copy.deepcopy(likelihood).double(), family.points.shape[-2]
    known: tuple[Tensor, Tensor] | None = None

    def observed(some: Rows, at_rows: Regressors, mu: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
        features = at_rows.mean[..., :n_points, :] if at_rows.spread is None else at_rows.spread
        mean, spread = mu, features.square().sum(-2)
        if known is not None:
            # mu + Φᵀw, and aᵀP⁻¹a with P = C Cᵀ
            mean = mu + (known[0].unsqueeze(-2) @ at_rows.mean).squeeze(-2).mT
            spread = solve_lower(cholesky(known[1][..., :n_points, :n_points]).lower, features).square().sum(-2)
        there, variance = exact.at(index), (at_rows.residual + spread).mT
        if not isinstance(exact, (Binomial, NegativeBinomial)):
            targets, precision = there.pseudo_observations(some.y, mean, variance)
        elif known is not None:
            targets, precision = matching_observations(there, some.y, mean, variance)
        else:
            targets, blur = there.logits(some.y)
            precision = blur.reciprocal()
        return some.weight * precision.mT / beta, (targets - mu).mT

    for turn in range(rounds):
        last = turn == rounds - 1
        before, known = known, _solution(_gather(family, rows, observed, True, None if last else ROUND_ROWS))
        if before is not None and bool((known[0] - before[0]).abs().max() < SETTLED * known[0].abs().max()):
            break
    assert known is not None
    family.assign(known[0], opened(known[1], openness))


def _solution(sums: Statistics) -> tuple[Tensor, Tensor]:
    """The best coefficients of the mean, and the precision of q(v) or of all coefficients."""
    # Of the mean (I + ΦHΦᵀ)⁻¹ΦH r, of S⁻¹ I + AHAᵀ
    coefficients, precision = optimal_weights(sums.gram, sums.projection)
    if sums.spread.numel():
        precision = sums.spread + torch.eye(sums.spread.shape[-1]).to(sums.spread)
    return coefficients, precision


def opened(precision: Tensor, openness: float) -> Tensor:
    """A precision that goes a share of the way to that of a q(v) that is wide open."""
    wide = OPEN_PRECISION * torch.eye(precision.shape[-1]).to(precision)
    return (1 - openness) * precision + openness * wide


def _as_they_are(confidence: Confidence) -> Observed:
    """Normal observations."""

    def observed(some: Rows, at_rows: Regressors, mu: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
        r = (some.y - mu).mT
        return confidence(some.weight, at_rows.residual, index).expand_as(r), r

    return observed


@torch.no_grad()
def match_noise(family: Sparse, likelihood: Gaussian, prior: HyperPrior | None, rows: Rows, share: float = 1.0) -> None:
    """Move a learned noise variance, in place, to the best one for the ELBO with these inducing points.

    Hyper-parameters that were fitted without inducing points know nothing of the error that these make on all rows.
    With q(v) at its optimum the bound depends on σ² alone (Titsias 2009); λ are the eigenvalues of Σ w φ φᵀ, and p is
    Σ w φ r in their basis:

        −½ [ N log 2πσ² + Σ log(1 + λ/σ²) + (Σ w r² − Σ p²/(σ² + λ) + Σ w c) / σ² ]

    For families whose mean has regressors φ of its own this is the bound of a model that has the same ones for its
    spread, but the residual c of the real ones: a point estimate of many coefficients fits noise, and would understate
    it.

    With a ``share`` below one, log σ² goes only that share of the way: objectives that count the residual c as spread
    of the prediction need less noise than the ELBO, but more than a model without inducing points.
    """
    noise = likelihood.noise
    if noise is None or noise.fixed:
        return
    sums = _gather(family, rows, _as_they_are(lambda weight, residual, index: weight), with_spread=False)
    outputs = range(len(sums.squares))
    best = torch.tensor([[_best_noise(sums, output, rows.total, noise, prior) for output in outputs]])
    noise.set(noise.value.double().cpu() ** (1 - share) * best.double() ** share)


def _best_noise(sums: Statistics, output: int, total: float, noise: Hyperparameter, prior: HyperPrior | None) -> float:
    """The σ² of one output that maximises the bound and the noise's prior."""
    values, basis = (part.cpu().numpy() for part in torch.linalg.eigh(sums.gram[output]))
    values = np.maximum(values, 0.0)
    projected = (basis.T @ sums.projection[output].cpu().numpy()) ** 2
    rest = float(sums.squares[output] + sums.residual[output])

    def negative(log_noise: float) -> float:
        variance = math.exp(log_noise)
        fit = (rest - (projected / (variance + values)).sum()) / variance
        bound = -0.5 * (total * log_noise + np.log1p(values / variance).sum() + fit)
        density = prior.log_density_of(noise, torch.tensor(variance)) if prior is not None else 0.0
        return -bound - float(density)

    best = minimize_scalar(negative, bounds=_search_range(noise, rest / total), method="bounded")
    return math.exp(float(best.x))  # pyright: ignore[reportAttributeAccessIssue]


def _search_range(noise: Hyperparameter, mean_square: float) -> tuple[float, float]:
    """Where to look for log σ²: inside the noise's domain, off its floor, and not far above the data's variance."""
    if noise.upper < math.inf:
        return math.log(max(noise.lower, 1e-12)), math.log(noise.upper)
    least = max(2 * noise.lower, 1e-12)
    return math.log(least), math.log(max(100 * mean_square, 2 * least))


def _gather(
    family: Sparse, rows: Rows, observed: Observed, with_spread: bool, most_rows: int | None = None
) -> Statistics:
    """The sums, from one pass over the rows; a very long table is represented by ``most_rows`` of them."""
    # The jitter that training will need, in its own precision: coefficients for another one are of no use. It has to do
    # for few rows and for many, whose Gram matrices are rounded differently.
    for n_rows in (1, min(len(rows), CHUNK)):
        family.evaluate(rows.batch(torch.arange(n_rows, device=rows.x.device)))
    mean, regression = copy.deepcopy(family.mean).double(), family.regression()
    index = torch.arange(len(rows), device=rows.x.device)
    most_rows = MOST_ROWS if most_rows is None else most_rows
    if len(rows) > most_rows:
        index = torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))[:most_rows].to(rows.x.device)
    share = float(rows.weight[index].double().sum()) / rows.total

    def sums(part: Tensor) -> Statistics:
        some = rows.subset(part).to(torch.float64)
        at_rows = regression(some.x)
        h, r = observed(some, at_rows, mean(some.x), part)
        root = h.sqrt().unsqueeze(-2)
        weighted = root * at_rows.mean
        separate = at_rows.spread if with_spread else None
        return Statistics(
            gram=_gram(weighted),
            projection=(weighted @ (root.mT * r.unsqueeze(-1))).squeeze(-1),
            squares=(h * r.square()).sum(-1),
            residual=(h * at_rows.residual).sum(-1),
            spread=_gram(weighted[..., :0, :] if separate is None else root * separate),
        )

    return reduce(operator.add, map(sums, index.split(CHUNK))).scaled(1 / share)


def _gram(features: Tensor) -> Tensor:
    """F Fᵀ."""
    lower = lower_half_of_product(features, features)
    return lower + lower.tril(-1).mT
