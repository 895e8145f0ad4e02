"""Small models at random parameters, for tests of any room."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from candid.engines import Problem, Rows
from candid.families import (
    SWSGP,
    Conditional,
    Decoupled,
    Dropout,
    Exact,
    FixedSites,
    Inducing,
    Layers,
    LearnedSites,
    MonteCarlo,
    Neighbours,
    Orthogonal,
    Posterior,
    Rule,
    Sparse,
    Vecchia,
    Wiring,
    decoupled_kernel,
    make_mean,
)
from candid.kernels import Kernel, make_kernel, make_network
from candid.likelihoods import Bernoulli, Gaussian, Likelihood, OneAgainstAll, make_sites
from candid.parameters import hyperparameters
from candid.weights import WEIGHTS, Full, Implicit

__all__ = [
    "chained",
    "conditional_problem",
    "decoupled_problem",
    "exact_problem",
    "implicit_problem",
    "label_problem",
    "layers_problem",
    "neighbour_problem",
    "network_problem",
    "orthogonal_problem",
    "random_rows",
    "randomise",
    "separated_points",
    "sparse_problem",
    "swsgp_problem",
]


def random_rows(
    n_rows: int = 30, n_features: int = 2, n_outputs: int = 1, seed: int = 0, weighted: bool = False
) -> Rows:
    """A smooth function of standard normal inputs plus noise of standard deviation 0.2, in float64."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n_rows, n_features, dtype=torch.float64, generator=generator)
    noise = torch.randn(n_rows, n_outputs, dtype=torch.float64, generator=generator)
    y = torch.stack([torch.sin(1.5 * x[:, 0] + k) + 0.3 * x[:, -1] for k in range(n_outputs)], dim=1) + 0.2 * noise
    weight = torch.randint(1, 5, (n_rows,), generator=generator).double() if weighted else torch.ones(n_rows).double()
    return Rows(x, y, weight)


def chained(problem: Problem, n_chains: int) -> Problem:
    """Several chains of a problem, which start alike; its family becomes theirs."""
    family = Posterior(problem.family, n_chains)
    if problem.prior is not None:
        problem.prior.chains = (n_chains,)
    return Problem(family, problem.likelihood, problem.objective, problem.coefficients, problem.prior)


def separated_points(n_points: int, n_features: int, n_outputs: int, generator: torch.Generator) -> Tensor:
    """Inducing points that no kernel of these tests confuses: random corners of a grid, slightly moved."""
    side = int(torch.tensor(float(n_points)).pow(1 / n_features).ceil())
    axes = torch.meshgrid(*[torch.linspace(-1.5, 1.5, max(side, 2)).double()] * n_features, indexing="ij")
    corners = torch.stack([axis.flatten() for axis in axes], dim=1)
    chosen = [corners[torch.randperm(len(corners), generator=generator)[:n_points]] for _ in range(n_outputs)]
    moves = torch.randn(n_outputs, n_points, n_features, dtype=torch.float64, generator=generator)
    return torch.stack(chosen) + 0.1 * moves


@torch.no_grad()
def randomise(problem: Problem, generator: torch.Generator) -> None:
    """Move every hyper-parameter and every weight to a random place near its start."""

    def draw(like: Tensor) -> Tensor:
        return torch.randn(like.shape, dtype=torch.float64, generator=generator).to(like)

    for _, parameter in hyperparameters(problem):
        parameter.raw.add_(0.3 * draw(parameter.raw))
    for parameter in problem.family.weight_parameters():
        parameter.add_(0.3 * draw(parameter))


def sparse_problem(
    rows: Rows,
    weights: str = "full",
    objective: str = "elbo",
    kernel: str = "matern52",
    n_points: int = 8,
    beta: float = 1.0,
    jitter: float = 0.0,
    mean: str = "constant",
    points: Tensor | None = None,
    known: Tensor | None = None,
    seed: int = 0,
    kind: Callable[..., Sparse] = Inducing,
    **options,
) -> Problem:
    """Inducing points at random parameters, in float64; further options are those of the ``kind`` of family."""
    generator = torch.Generator().manual_seed(1000 + seed)
    n_features, n_outputs = rows.x.shape[1], rows.y.shape[1]
    if points is None:
        points = separated_points(n_points, n_features, n_outputs, generator)
    likelihood = Gaussian(0.1, n_outputs, known)
    family = kind(
        make_kernel(kernel, n_features, batch_shape=(n_outputs,)),
        make_mean(mean, n_features, n_outputs),
        points,
        WEIGHTS[weights](points.shape[-2], (n_outputs,)),
        jitter,
        **options,
    )
    problem = Problem(family, likelihood, objective, {"kl": beta}).double()
    randomise(problem, generator)
    return problem


def decoupled_problem(rows: Rows, weights: str = "diagonal", objective: str = "elbo", **options) -> Problem:
    """Decoupled inducing points at random parameters, in float64; options as of :func:`two_bases`."""
    return two_bases(Decoupled, rows, weights, objective, **options)


def orthogonal_problem(rows: Rows, weights: str = "full", objective: str = "elbo", **options) -> Problem:
    """Orthogonally decoupled bases at random parameters, in float64; options as of :func:`two_bases`."""
    return two_bases(Orthogonal, rows, weights, objective, **options)


def two_bases(
    kind: type[Decoupled] | type[Orthogonal],
    rows: Rows,
    weights: str,
    objective: str,
    kernel: str = "matern52",
    n_mean_points: int = 6,
    n_points: int = 8,
    beta: float = 1.0,
    jitter: float = 0.0,
    mean: str = "constant",
    mean_points: Tensor | None = None,
    points: Tensor | None = None,
    known: Tensor | None = None,
    seed: int = 0,
) -> Problem:
    """A family whose mean has points of its own, at random parameters."""
    generator = torch.Generator().manual_seed(2000 + seed)
    n_features, n_outputs = rows.x.shape[1], rows.y.shape[1]
    if points is None:
        points = separated_points(n_points, n_features, n_outputs, generator)
    if mean_points is None:
        # Off the grid of the others
        mean_points = 0.8 * separated_points(n_mean_points, n_features, n_outputs, generator) + 0.3
    family = kind(
        make_kernel(kernel, n_features, batch_shape=(n_outputs,)),
        make_mean(mean, n_features, n_outputs),
        mean_points,
        points,
        WEIGHTS[weights](points.shape[-2], (n_outputs,)),
        jitter,
    )
    problem = Problem(family, Gaussian(0.1, n_outputs, known), objective, {"kl": beta}).double()
    randomise(problem, generator)
    return problem


def conditional_problem(
    rows: Rows,
    weights: str = "full",
    objective: str = "elbo",
    kernel: str = "rbf",
    omega_weight: float = 1.0,
    **options,
) -> Problem:
    """Decoupled lengthscales at random parameters, in float64; options as of :func:`sparse_problem` and the family."""

    def with_two_kernels(kernel: Kernel, *parts, **options) -> Conditional:
        return Conditional(kernel, decoupled_kernel(kernel), *parts, **options)

    problem = sparse_problem(rows, weights, objective, kernel, kind=with_two_kernels, **options)
    problem.coefficients["omega"] = omega_weight
    return problem


def exact_problem(
    rows: Rows, kernel: str = "matern52", mean: str = "constant", known: Tensor | None = None, seed: int = 0
) -> Problem:
    """An exact GP at random parameters, in float64."""
    n_features, n_outputs = rows.x.shape[1], rows.y.shape[1]
    likelihood = Gaussian(0.1, n_outputs, known)
    family = Exact(
        make_kernel(kernel, n_features, batch_shape=(n_outputs,)),
        make_mean(mean, n_features, n_outputs),
        rows.x,
        likelihood.sites(rows.y),
        rows.weight,
    )
    problem = Problem(family, likelihood, "marginal_likelihood").double()
    randomise(problem, torch.Generator().manual_seed(1000 + seed))
    return problem


def label_problem(rows: Rows, n_classes: int = 2, k: int | None = None, seed: int = 1) -> Problem:
    """Neighbours whose labels have auxiliary variables, at random parameters; by default they are all other rows."""
    likelihood = Bernoulli() if n_classes == 2 else OneAgainstAll(n_classes)
    n_features, n_latents = rows.x.shape[1], 1 if n_classes == 2 else n_classes
    family = Neighbours(
        make_kernel("matern52", n_features, batch_shape=(n_latents,)),
        make_mean("zero", n_features, n_latents),
        rows.x,
        make_sites(likelihood, rows.y, rows.weight, seed),
        rows.weight,
        n_neighbours=len(rows.x) - 1 if k is None else k,
        refresh_every=2,
    )
    problem = Problem(family, likelihood, "predictive").double()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in problem.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, dtype=torch.float64, generator=generator))
    return problem


def count_problem(rows: Rows, likelihood: Likelihood, k: int) -> Problem:
    """Neighbours whose counts are numbers with normal noise that are learned, where they start, in float64."""
    n_features = rows.x.shape[1]
    kernel, mean = make_kernel("matern52", n_features, batch_shape=(1,)), make_mean("zero", n_features, 1)
    family = Neighbours(kernel, mean, rows.x, make_sites(likelihood, rows.y), rows.weight, n_neighbours=k)
    return Problem(family, likelihood, "predictive").double()


def neighbour_problem(
    rows: Rows,
    k: int = 6,
    kernel: str = "matern52",
    mean: str = "constant",
    known: Tensor | None = None,
    seed: int = 0,
    objective: str = "predictive",
    **options,
) -> Problem:
    """Neighbours at random parameters, in float64; with those of :func:`exact_problem` for the same seed.

    An ``order`` makes it Vecchia's; further options are those of the family.
    """
    n_features, n_outputs = rows.x.shape[1], rows.y.shape[1]
    likelihood = Gaussian(0.1, n_outputs, known)
    kind = Vecchia if "order" in options else Neighbours
    family = kind(
        make_kernel(kernel, n_features, batch_shape=(n_outputs,)),
        make_mean(mean, n_features, n_outputs),
        rows.x,
        likelihood.sites(rows.y),
        rows.weight,
        n_neighbours=k,
        **options,
    )
    problem = Problem(family, likelihood, objective).double()
    randomise(problem, torch.Generator().manual_seed(1000 + seed))
    family.refresh(0)
    return problem


def swsgp_problem(
    rows: Rows,
    k: int,
    n_points: int = 9,
    mean: str = "constant",
    seed: int = 0,
    points: Tensor | None = None,
    **options,
) -> Problem:
    """Points of which each row sees k, at random parameters, in float64."""
    generator = torch.Generator().manual_seed(5000 + seed)
    n_features, n_outputs = rows.x.shape[1], rows.y.shape[1]
    if points is None:
        (points,) = separated_points(n_points, n_features, 1, generator)
    kernel = make_kernel("matern52", n_features, batch_shape=(n_outputs,))
    family = SWSGP(kernel, make_mean(mean, n_features, n_outputs), points, k, **options)
    problem = Problem(family, Gaussian(0.1, n_outputs), "elbo").double()
    randomise(problem, generator)
    family.refresh(0)
    return problem


def network_problem(
    rows: Rows, features=(6, 4), dropout: float = 0.3, n_passes: int = 5, known: Tensor | None = None, seed: int = 0
) -> Problem:
    """A network with dropout at random parameters, in float64."""
    n_features, n_outputs = rows.x.shape[1], rows.y.shape[1]
    family = Dropout(make_network(features, n_features, seed), n_outputs, dropout, n_passes, seed)
    problem = Problem(family, Gaussian(0.1, n_outputs, known), "elbo").double()
    generator = torch.Generator().manual_seed(4000 + seed)
    with torch.no_grad():
        for parameter in problem.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, dtype=torch.float64, generator=generator))
    return problem


def layers_problem(
    rows: Rows,
    widths: tuple[int, ...] = (2,),
    rule: Rule | None = None,
    weights: str = "diagonal",
    objective: str = "predictive",
    n_points: int = 6,
    beta: float = 0.3,
    topology: str = "chain",
    skip: bool = False,
    jitter: float = 0.0,
    n_draws: int | None = None,
    seed: int = 0,
) -> Problem:
    """A deep GP at random parameters, in float64; its sites are four learned ones, or follow a rule, or are drawn."""
    generator = torch.Generator().manual_seed(5000 + seed)
    n_features, n_outputs, wiring = rows.x.shape[1], rows.y.shape[1], Wiring(len(widths) + 1, topology, skip)
    layers = []
    for layer, n_gps in enumerate([*widths, n_outputs]):
        n_kernel, n_mean = wiring.widths(layer, n_features, widths)
        layers.append(
            Inducing(
                make_kernel("matern52", n_kernel, batch_shape=(n_gps,)),
                make_mean("linear" if layer < len(widths) else "constant", n_mean, n_gps),
                separated_points(n_points, n_kernel, n_gps, generator),
                WEIGHTS[weights](n_points, (n_gps,)),
                jitter,
            )
        )
    if n_draws is not None:
        rule = MonteCarlo(n_draws, widths, seed=seed)
    rule = rule or (LearnedSites(4, widths, seed, scale=1.0) if widths else FixedSites((), torch.zeros(1, 1), False))
    family = Layers(layers, rule, wiring)
    problem = Problem(family, Gaussian(0.1, n_outputs), objective, {"kl": beta}).double()
    randomise(problem, generator)
    return problem


def implicit_problem(
    rows: Rows,
    widths: tuple[int, ...] = (2,),
    n_draws: int = 6,
    n_settled: int = 8,
    learned: bool = True,
    n_points: int = 4,
    **options,
) -> Problem:
    """A deep GP whose inducing values are drawn, from a normal q(v) at random parameters or from the prior."""
    rule = MonteCarlo(n_draws, widths, n_settled)
    problem = layers_problem(rows, widths, rule, "full", "elbo", n_points, 1.0, jitter=1e-8, **options)
    for number, layer in enumerate(problem.family.layers):
        normal = layer.weights if learned else Full(n_points, (len(layer.weights.mean),))
        layer.weights = Implicit(normal, layer.points, n_draws, n_settled, number > 0, learned, seed=number)
    return problem.double()
