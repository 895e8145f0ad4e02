"""The loss, written once for every method."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Collection, Mapping

import torch
from torch import Tensor, nn

from candid.engines.closed_form import solve_weights
from candid.engines.rows import Rows, n_batches
from candid.families import Family, Posterior, Sparse
from candid.kernels import networks_in
from candid.likelihoods import Gaussian, Likelihood
from candid.marginal import Batch
from candid.objectives import EVIDENCES, ROW_OBJECTIVES, predictive
from candid.parameters import hyperparameters
from candid.priors import HyperPrior
from candid.weights import Implicit, Solved

__all__ = ["Problem"]

HELD_OUT_CHUNK = 8192
# How many rows are asked where a run stands.
STANDING_ROWS = 4096


class Problem(nn.Module):
    """A family, a likelihood and an objective: everything that training needs to know of a method.

        loss = −Σ_batch w·term / Σ_batch w + Σ_name coefficient[name]·penalty[name] / N

    Parameters
    ----------
    family : Family
    likelihood : Likelihood
    objective : str
        A key of :data:`~candid.objectives.ROW_OBJECTIVES` or :data:`~candid.objectives.EVIDENCES`.
    coefficients : mapping
        What each penalty counts, e.g. ``{"kl": β}``; a penalty that is not named counts once.
    prior : HyperPrior, optional
        Priors of hyper-parameters; they join the penalties as ``"prior"``.
    options : mapping, optional
        Keyword arguments of a row objective, e.g. ``{"gamma": 1.03}``.
    """

    def __init__(
        self,
        family: Family,
        likelihood: Likelihood,
        objective: str,
        coefficients: Mapping[str, float] | None = None,
        prior: HyperPrior | None = None,
        options: Mapping[str, float] | None = None,
    ) -> None:
        super().__init__()
        self.family, self.likelihood = family, likelihood
        self.objective, self.coefficients, self.prior = objective, dict(coefficients or {}), prior
        self.options = dict(options or {})
        self.draws: dict[str, Tensor] = {}

    def loss(self, batch: Batch) -> Tensor:
        """The negative objective per row, estimated from ``batch``; chains, which share nothing, are added up."""
        losses = self.losses(batch)
        return losses.sum() if losses.dim() else losses

    def losses(self, batch: Batch) -> Tensor:
        """That of each chain."""
        average, penalties = self._data_term(batch)
        if self.prior is not None:
            penalties = {**penalties, "prior": self.prior.penalty()}
        losses = -average
        for name, penalty in penalties.items():
            losses = torch.add(losses, penalty, alpha=self.coefficients.get(name, 1.0) / batch.total)
        return losses

    @property
    def n_chains(self) -> int:
        """How many models side by side this is."""
        return self.family.n_chains

    def _data_term(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        if self.objective in EVIDENCES:
            return self._evidence(batch), {}
        evaluation, likelihood = self.family.evaluate(batch), self.likelihood.at(batch.index)
        terms = ROW_OBJECTIVES[self.objective](evaluation.marginal, likelihood, batch.y, **self.options)
        return _average(terms, batch), evaluation.penalties

    def _evidence(self, batch: Batch) -> Tensor:
        """Log-density of the rows of a batch, or of the group around each of them, per row of it."""
        group = self.family.groups(batch)
        likelihood = self.likelihood.at(group.index)
        evidence = EVIDENCES[self.objective](self.family.prior(group), likelihood, group.y, group.weight)
        per_row = evidence / group.weight.sum(-1)
        return per_row if group is batch else _average(per_row, batch)

    def groups(self, apart: Collection[str] = ("network",)) -> dict[str, list[nn.Parameter]]:
        """Learned parameters by the name under which a method's steppers speak of them.

        Those of networks, of the likelihood and of mean functions between layers are among the rest unless "network",
        "likelihood" and "hidden_means" are in ``apart``. Critics, which learn from a loss of their own, are only in
        their own group.
        """
        implicit = [part for part in self.modules() if isinstance(part, Implicit)]
        critic = [parameter for part in implicit for parameter in part.critic.parameters()]
        generator = [parameter for part in implicit for parameter in part.generator.parameters()]
        learned = _without([parameter for parameter in self.parameters() if parameter.requires_grad], critic)
        weights = _without(self.family.weight_parameters(), [*generator, *critic])
        points = [parameter for parameter in self.family.point_parameters() if parameter.requires_grad]
        sites = [parameter for parameter in self.family.site_parameters() if parameter.requires_grad]
        optional = {
            "network": [parameter for network in networks_in(self) for parameter in network.parameters()],
            "likelihood": self.likelihood.parameters(),
            "hidden_means": self.family.hidden_mean_parameters(),
        }
        named = {"weights": weights, "points": points, "sites": sites, "generator": generator}
        for name, parameters in optional.items():
            own = {id(parameter) for parameter in parameters if name in apart}
            named[name] = [parameter for parameter in learned if id(parameter) in own]
        rest = _without(learned, [parameter for group in named.values() for parameter in group])
        return {"all": learned, **named, "critic": critic, "rest": rest}

    def keep(self, draws: Mapping[str, Tensor]) -> None:
        """Take over samples of parameters, by name and with an axis of draws in front, to predict from them."""
        self.draws = dict(draws)
        self.family.keep({name.removeprefix("family."): draw for name, draw in self.draws.items()})

    def observed(self) -> Likelihood:
        """The likelihood as predictions need it: if it was sampled, with all draws of all chains side by side."""
        return self._likelihood_with(lambda draws: draws.flatten(0, 1))

    def middle(self) -> Problem:
        """One model in the middle of what has been sampled, if anything has: at the averages of raw values."""
        family = self.family.middle() if isinstance(self.family, Posterior) else self.family
        likelihood = self._likelihood_with(lambda draws: draws.mean((0, 1)))
        return Problem(family, likelihood, self.objective, self.coefficients, self.prior, self.options)

    def _likelihood_with(self, change: Callable[[Tensor], Tensor]) -> Likelihood:
        """A copy in which those raw values that were sampled are a function of their draws (draw, chain, …)."""
        likelihood = copy.deepcopy(self.likelihood)
        for name, parameter in hyperparameters(likelihood):
            draws = self.draws.get(f"likelihood.{name}.raw")
            if draws is not None:
                parameter.raw = nn.Parameter(change(draws))
        return likelihood

    def settle(self, rows: Rows) -> None:
        """Compute what follows from the hyper-parameters in closed form, before anything is predicted."""
        if isinstance(self.family, Sparse) and isinstance(self.family.weights, Solved):
            assert isinstance(self.likelihood, Gaussian)
            solve_weights(self.family, self.likelihood, rows, residual_is_noise=self.objective == "fitc")

    @torch.no_grad()
    def standing(self, rows: Rows, batch_size: int | None = None) -> float:
        """The loss at the present parameters, from all training rows or, of a long table, from some of them.

        It is that of a chain, on average.

        A penalty that depends on how many rows there are in a batch is that of ``batch_size`` rows, on average: what
        training minimises.
        """
        all_together = self.objective in EVIDENCES and not self.family.batchwise
        step = 1 if all_together else math.ceil(len(rows) / STANDING_ROWS)
        index = torch.arange(0, len(rows), step, device=rows.x.device)
        count = n_batches(len(index), batch_size) if batch_size is not None and self.family.batchwise else 1
        # Rows next to each other, which in a sorted table are alike, go to different batches.
        batches = [rows.batch(index[first::count]) for first in range(count)]
        # Σ_b (w_b / Σ_b w_b) loss_b
        weights = torch.stack([batch.weight.sum() for batch in batches])
        return float((weights / weights.sum()) @ torch.stack([self.loss(batch) for batch in batches])) / self.n_chains

    @torch.no_grad()
    def held_out_nll(self, rows: Rows) -> float:
        """Mean negative log predictive density of rows that training does not see."""
        predictor, likelihood = self.family.draft_predictor(), self.observed()
        total = 0.0
        for index in torch.arange(len(rows), device=rows.x.device).split(HELD_OUT_CHUNK):
            part = rows.subset(index).to(torch.float64)
            terms = predictive(predictor.marginal(part.x), likelihood.at(None, part.noise), part.y)
            total += float((part.weight * terms).sum())
        return -total / rows.total


def _without(parameters: list[nn.Parameter], others: list[nn.Parameter]) -> list[nn.Parameter]:
    taken = {id(parameter) for parameter in others}
    return [parameter for parameter in parameters if id(parameter) not in taken]


def _average(terms: Tensor, batch: Batch) -> Tensor:
    # Σ_batch w·term / Σ_batch w, for each chain
    return terms @ (batch.weight / batch.weight.sum())
