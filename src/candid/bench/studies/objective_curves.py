"""Where training objectives have their maximum: as functions of one hyper-parameter, the others at rest."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from candid.bench.studies.findings import Findings, Panel, Record
from candid.bench.studies.tables import StudyTable, study_tables
from candid.engines import Problem, Rows, fit_by_evidence, place_points
from candid.families import Exact, Inducing, Mean, Neighbours, Vecchia, make_mean, metric_of
from candid.kernels import Kernel, Scale, make_kernel
from candid.likelihoods import Gaussian
from candid.linalg import ORDERINGS
from candid.weights import Solved

__all__ = ["ObjectiveCurves", "objective_curves"]

# Hyper-parameters are varied by factors between 1/REACH and REACH.
REACH = 4.0
# What the picture shows of objectives: nats per row below the maximum.
LOWEST = -1.0
AMPLITUDE, NOISE = "kernel scale σ_K", "noise σ"
TITLE = "Objectives as functions of a hyper-parameter"


@dataclass(frozen=True)
class ObjectiveCurves:
    """How large the study is: the table, its rows, values of each hyper-parameter, neighbours, inducing points."""

    data: str = "noisy"
    n_rows: int = 600
    n_values: int = 33
    k: int = 64
    n_inducing: int = 50
    seed: int = 0


def objective_curves(size: ObjectiveCurves, tell: Callable[[str], None] = lambda text: None) -> Findings:
    """Evaluate objectives around the maximum of the exact marginal likelihood."""
    (table,) = study_tables([size.data], size.n_rows, size.seed)
    tell(f"marginal likelihood of {len(table.x):,} rows …")
    model = _Model(table, size)
    records: list[Record] = []
    for parameter in (AMPLITUDE, NOISE):
        tell(f"{parameter} …")
        records += model.curve(parameter, np.geomspace(1 / REACH, REACH, size.n_values))
    names, places = list(model.objectives), (AMPLITUDE, NOISE)
    best = {(p, name): max((r for r in records if (r["parameter"], r["objective"]) == (p, name)), key=_value)
            for p in places for name in names}  # fmt: skip
    summary = [{"objective": name, **{f"best {p}": float(best[p, name]["value"]) for p in places}} for name in names]
    description = (
        f"{len(table.x):,} rows of {size.data}. Kernel (Matérn-5/2), mean and noise are at the maximum of the exact "
        "marginal likelihood, and one of them is varied. Every objective is divided by the number of rows and shifted "
        f"so that its maximum is zero. loo-∞ conditions a row on all others, loo-{size.k} and the others on {size.k} "
        f"(mll-{size.k}: in groups; vecchia: earlier ones, along the first principal component); svgp has "
        f"{size.n_inducing} inducing points, and the best q(u) for every value. Dots are maxima."
    )
    return Findings(TITLE, description, records, summary, [_panel(records, p, names, best) for p in places])


def _value(record: Record) -> float:
    return float(record["per row"])


def _panel(records: Sequence[Record], parameter: str, names: Sequence[str], best: dict) -> Panel:
    curves = {}
    for name in names:
        line = [r for r in records if (r["parameter"], r["objective"]) == (parameter, name)]
        top = _value(best[parameter, name])
        curves[name] = ([float(r["value"]) for r in line], [_value(r) - top for r in line])
    marks = {name: float(best[parameter, name]["value"]) for name in names}
    return Panel(f"Varied: {parameter}", parameter, "nats per row − maximum", curves, marks, log_x=True, bottom=LOWEST)


class _Model:
    """One kernel, mean and noise behind several objectives."""

    def __init__(self, table: StudyTable, size: ObjectiveCurves) -> None:
        x, y = (torch.as_tensor(part, dtype=torch.float64) for part in (table.x, table.y.reshape(-1, 1)))
        self.rows = Rows(x, y, torch.ones(len(x), dtype=torch.float64))
        kernel, mean = make_kernel("matern52", x.shape[1], batch_shape=(1,)), make_mean("constant", x.shape[1], 1)
        self.likelihood = Gaussian(0.1).double()
        kernel, mean = kernel.double(), mean.double()
        fit_by_evidence(kernel, mean, self.likelihood, None, self.rows, size.seed)
        assert isinstance(kernel, Scale)
        assert self.likelihood.noise is not None
        self.parameters = {AMPLITUDE: kernel.amplitude, NOISE: self.likelihood.noise}
        self.objectives = self._objectives(kernel, mean, size)

    def _objectives(self, kernel: Kernel, mean: Mean, size: ObjectiveCurves) -> dict[str, Callable[[], float]]:
        """Each per row, at the present values."""
        rows, k = self.rows, min(size.k, len(self.rows) - 1)
        parts = kernel, mean, rows.x, self.likelihood.sites(rows.y), rows.weight
        exact, order = Exact(*parts), ORDERINGS["pca"](rows.x, size.seed)
        problems = {
            "mll": (exact, "marginal_likelihood"),
            f"loo-{k}": (Neighbours(*parts, k), "predictive"),
            f"mll-{k}": (Neighbours(*parts, k), "marginal_likelihood"),
            "vecchia": (Vecchia(*parts, order, n_neighbours=k), "chain_rule"),
            "svgp": (self._inducing(kernel, mean, size), "sgpr"),
        }
        losses = {name: Problem(family, self.likelihood, goal) for name, (family, goal) in problems.items()}
        objectives = {name: lambda p=problem: -float(p.loss(rows.whole())) for name, problem in losses.items()}
        return {"mll": objectives.pop("mll"), "loo-∞": lambda: self._leave_one_out(exact), **objectives}

    def _leave_one_out(self, exact: Exact) -> float:
        """The average of log p(y_n | all others), in closed form."""
        prior = exact.prior(self.rows.whole())
        noise = self.likelihood.at().variance * torch.eye(len(self.rows), dtype=torch.float64)
        inverse = torch.linalg.inv(prior.covariance.squeeze(0) + noise)
        # With P = C⁻¹ the variance is 1/P_nn, and y_n minus the mean is (P(y − mu))_n/P_nn.
        precision = inverse.diagonal()
        rest = (inverse @ (self.rows.y - prior.mean)).squeeze(-1)
        return float(0.5 * (precision.log() - math.log(2 * math.pi) - rest.square() / precision).mean())

    def _inducing(self, kernel: Kernel, mean: Mean, size: ObjectiveCurves) -> Inducing:
        x = self.rows.x
        lengths = metric_of(kernel, x.shape[1]).detach().numpy()
        points = torch.as_tensor(place_points(x.numpy(), size.n_inducing, "kmeans", size.seed, lengths)).unsqueeze(0)
        return Inducing(kernel, mean, points, Solved(points.shape[-2], (1,)), jitter=1e-8).double()

    @torch.no_grad()
    def curve(self, parameter: str, factors: np.ndarray) -> list[Record]:
        """Every objective per row, where the standard deviation that a parameter stands for is multiplied."""
        owner = self.parameters[parameter]
        middle: Tensor = owner.value.clone()
        records: list[Record] = []
        # Models have no less noise than their floor.
        for factor in factors[float(middle) * factors**2 > owner.lower]:
            owner.set(middle * factor**2)
            value = float(owner.value.sqrt())
            for name, objective in self.objectives.items():
                records.append({"parameter": parameter, "objective": name, "value": value, "per row": objective()})
        owner.set(middle)
        return records
