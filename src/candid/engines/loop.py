"""The one training loop."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from torch import Tensor

from candid.engines.checkpoint import Checkpoint
from candid.engines.machine import keep_freed_memory, step_crew
from candid.engines.moment import Moment
from candid.engines.plan import Plan, State
from candid.engines.problem import Problem
from candid.engines.progress import ProgressBar
from candid.engines.rows import Rows, batch_at, n_batches
from candid.engines.sampling import Draws, Sampling
from candid.engines.schedules import SCHEDULES
from candid.engines.steppers import Stepper, make_steppers, take_step
from candid.engines.stopping import EarlyStopping
from candid.linalg.crew import crew

__all__ = ["Plan", "TrainingDiverged", "train"]

#: Called after every epoch with its record; a true answer ends training.
Callback = Callable[[dict[str, Any]], Any]
# Where samples are drawn, the share of a time budget after which training has to be over, and burn-in.
TRAINING_SHARE, BURN_IN_SHARE = 0.3, 0.5
# Training that ends so much above its start, in nats per row, has failed. A start on few rows is close to the optimum,
# and there is nothing wrong with staying there.
MUCH_WORSE, MANY_ROWS = 0.1, 1000


class TrainingDiverged(ArithmeticError):
    """The loss is no longer a finite number."""


def train(
    problem: Problem,
    rows: Rows,
    plan: Plan,
    held_out: Rows | None = None,
    checkpoint: Checkpoint | None = None,
    callbacks: Sequence[Callback] = (),
    progress: ProgressBar | None = None,
) -> list[dict[str, Any]]:
    """Minimise the problem's loss in place and return the history: one record for each epoch, and one more, with the
    loss of the start, where training has ended above it and the model went back.

    If the plan says so, samples are drawn from there; the problem keeps them.

    With a checkpoint, an interrupted run goes on from it and ends with the tensors it would have had without the
    interruption; the file is left behind, marked as finished, for the caller to delete.
    """
    keep_freed_memory()
    run = _Run(problem, rows, plan, held_out, checkpoint, callbacks, progress)
    run.begin()
    run.optimise()
    if plan.sampling is not None:
        run.sample(plan.sampling)
    problem.settle(rows)
    run.state.finished = True
    run.save()
    return run.state.history


class _Run:
    """One call of :func:`train`."""

    def __init__(
        self,
        problem: Problem,
        rows: Rows,
        plan: Plan,
        held_out: Rows | None,
        checkpoint: Checkpoint | None,
        callbacks: Sequence[Callback],
        progress: ProgressBar | None,
    ) -> None:
        self.problem, self.rows, self.plan, self.held_out = problem, rows, plan, held_out
        self.checkpoint, self.callbacks, self.progress = checkpoint, callbacks, progress
        self.rates = {group: plan.rates.get(group, plan.lr) for group in plan.steppers}
        groups = problem.groups(plan.steppers)
        self.steppers = make_steppers(plan.steppers, groups, self.rates, plan.decay, plan.limit)
        self.samplers: dict[str, Stepper] = {}
        if plan.sampling is not None:
            named = plan.sampling.steppers
            self.sampling_rates = {group: plan.sampling.rates.get(group, plan.lr) for group in named}
            groups = problem.groups(named)
            self.samplers = make_steppers(named, groups, self.sampling_rates)
            if not any(stepper.samples for stepper in self.samplers.values()):
                raise ValueError(
                    "there is nothing to sample: what should be is fixed or known, or the model does not have it"
                )
        self.draws = Draws(problem, self.samplers.values())
        self.state, self.stopping = State(), EarlyStopping(plan.patience)
        self.per_epoch = n_batches(len(rows), plan.batch_size)
        n_steps = self.per_epoch * plan.max_epochs
        self.n_steps = n_steps if plan.max_steps is None else min(n_steps, plan.max_steps)
        self.crew = step_crew(problem.family, len(rows) // self.per_epoch)
        self.clock = time.perf_counter()

    def begin(self) -> None:
        """Go on where a checkpoint says, or record where the model starts."""
        problem, plan = self.problem, self.plan
        self.beginning = _tensors(problem) if plan.with_start else {}
        saved = self.checkpoint.read() if self.checkpoint is not None else None
        if saved is not None:
            self._restore(saved)
        state = self.state
        self.clock = time.perf_counter() - state.seconds
        if self.progress is not None:
            self.progress.begin(state.step / max(self._all_steps(), 1))
        if plan.with_start and not state.history and not state.step:
            loss = self._standing()
            state.finished = self._tell({"epoch": 0, "step": 0, "loss": loss, "lr": 0.0, "seconds": plan.spent})

    def optimise(self) -> None:
        """The first phase, in which a loss is minimised."""
        state, plan, steppers = self.state, self.plan, list(self.steppers.values())
        if state.trained is not None:
            return
        budget = self._budget(TRAINING_SHARE)
        over = state.finished
        while steppers and not over and state.step < self.n_steps:
            decay = SCHEDULES[plan.schedule](_share(state.step, self.n_steps, state.seconds, budget))
            for group, stepper in self.steppers.items():
                stepper.set_rate(self.rates[group] * decay)
            loss = self._advance(steppers)
            out_of_time = budget is not None and state.seconds >= budget
            if state.step % self.per_epoch == 0 or state.step == self.n_steps or out_of_time:
                enough = self._tell(self._close_epoch(plan.lr * decay))
                over = out_of_time or enough or all(stepper.converged for stepper in steppers)
                state.finished = state.finished or (over and plan.sampling is None)
            self._show(loss)
        self._take_best()
        state.trained = state.step if plan.sampling is not None else None

    def sample(self, sampling: Sampling) -> None:
        """Burn-in, and then the collection of samples; if there is no time for it, of the last values alone."""
        state, every = self.state, max(sampling.thin, self.per_epoch)
        assert state.trained is not None
        while not state.finished and len(self.draws) < sampling.n_samples:
            since = state.step - state.trained
            if state.burnt_in is None and (since >= sampling.burn_in or self._late(BURN_IN_SHARE)):
                state.burnt_in = state.step
                for stepper in self.samplers.values():
                    stepper.freeze()
            if state.burnt_in is None:
                self._set_sampling_rates(since / sampling.burn_in)
            loss = self._advance([s for s in self.samplers.values() if s.samples or state.burnt_in is None])
            if state.burnt_in is not None and (state.step - state.burnt_in) % sampling.thin == 0:
                self.draws.collect()
            state.finished = self._late(1.0)
            if (state.step - state.trained) % every == 0 or state.finished or len(self.draws) == sampling.n_samples:
                phase = "burn-in" if state.burnt_in is None else "sampling"
                record = {**self._close_epoch(0.0), "phase": phase, "samples": len(self.draws)}
                self._tell(record, sampling=True)
            self._show(loss)
        if not len(self.draws):
            self.draws.collect()
        self.problem.keep(self.draws.tensors())

    def save(self) -> None:
        if self.checkpoint is not None:
            self.checkpoint.write(
                {
                    "state": asdict(self.state),
                    "problem": self.problem.state_dict(),
                    "steppers": [stepper.state() for stepper in self._all_steppers()],
                    "stopping": self.stopping.state(),
                    "draws": self.draws.tensors(),
                }
            )

    def _restore(self, saved: Mapping[str, Any]) -> None:
        self.state = State(**saved["state"])
        self.problem.load_state_dict(saved["problem"])
        self.stopping.restore(saved["stopping"])
        self.draws.restore(saved["draws"])
        for stepper, memory in zip(self._all_steppers(), saved["steppers"], strict=True):
            stepper.restore(memory)

    def _all_steppers(self) -> list[Stepper]:
        return [*self.steppers.values(), *self.samplers.values()]

    def _all_steps(self) -> int:
        trained = self.n_steps if self.state.trained is None else self.state.trained
        return trained + (0 if self.plan.sampling is None else self.plan.sampling.n_steps)

    def _budget(self, share: float) -> float | None:
        """The seconds after which a phase has to be over."""
        budget = self.plan.time_budget
        return budget if budget is None or self.plan.sampling is None else share * budget

    def _late(self, share: float) -> bool:
        budget = self._budget(share)
        return budget is not None and self.state.seconds >= budget

    def _set_sampling_rates(self, done: float) -> None:
        """What is not sampled comes to rest before samples are collected."""
        for group, stepper in self.samplers.items():
            rate = self.sampling_rates[group]
            stepper.set_rate(rate if stepper.samples else rate * SCHEDULES["cosine"](done))

    def _advance(self, steppers: Sequence[Stepper]) -> float:
        """One step; the loss before it, of a chain on average."""
        state, plan, problem = self.state, self.plan, self.problem
        with crew(self.crew):
            problem.family.refresh(state.step)
            batch = batch_at(self.rows, state.step, plan.batch_size, plan.seed)
            loss = take_step(steppers, Moment(problem, batch, state.step, plan.seed)) / problem.n_chains
        if not math.isfinite(loss):
            raise TrainingDiverged(
                f"the loss became {loss} at step {state.step}; try standardize=True, and where the model has them a "
                f"smaller lr (now {plan.lr:g}) or dtype='float64'"
            )
        state.step += 1
        state.loss_sum += loss
        state.seconds = time.perf_counter() - self.clock
        return loss

    def _tell(self, record: dict[str, Any], sampling: bool = False) -> bool:
        """Write a record down, show it around, and say whether the phase is over."""
        if self.held_out is not None or self.callbacks:
            self.problem.settle(self.rows)
            if len(self.draws):
                self.problem.keep(self.draws.tensors())
        if self.held_out is not None:
            record["validation_nll"] = self.problem.held_out_nll(self.held_out) + self.plan.offset
        self.state.history.append(record)
        watched = self.held_out is not None and not sampling
        stale = watched and self.stopping.observe(record["epoch"], record["validation_nll"], self.problem)
        told = [bool(callback(record)) for callback in self.callbacks]
        self.state.finished = self.state.finished or any(told)
        return any([*told, stale])

    def _show(self, loss: float) -> None:
        state, n_steps = self.state, self._all_steps()
        if self.progress is not None:
            share = _share(state.step, n_steps, state.seconds, self.plan.time_budget)
            self.progress.update(share, state.step, n_steps, f"loss {loss:.4f}")
        if self.checkpoint is not None and self.checkpoint.due():
            self.save()

    def _take_best(self) -> None:
        """Training is over: go back to the best of what has been seen."""
        problem, plan, history = self.problem, self.plan, self.state.history
        problem.zero_grad(set_to_none=True)
        self.stopping.bring_back(problem)
        # Training that has made its own objective worse has been in vain.
        if self.beginning and self.held_out is None:
            start, end = history[0]["loss"], self._standing()
            if end > start:
                problem.load_state_dict(self.beginning)
                history.append({**history[-1], "loss": start, "lr": 0.0})
            if end > start + MUCH_WORSE and len(self.rows) >= MANY_ROWS:
                warnings.warn(
                    f"training has made the loss worse, from {start:.3g} to {end:.3g}, so the model is left where it "
                    f"started; try a smaller lr (now {plan.lr:g})",
                    stacklevel=2,
                )

    def _standing(self) -> float:
        """The loss of the whole table, computed as in a step."""
        with crew(self.crew):
            return self.problem.standing(self.rows, self.plan.batch_size) + self.plan.offset

    def _close_epoch(self, rate: float) -> dict[str, Any]:
        """The record of the epoch (or the part of one) that has just ended."""
        state = self.state
        steps = state.step - (state.history[-1]["step"] if state.history else 0)
        loss, state.loss_sum = state.loss_sum / steps, 0.0
        return {
            "epoch": math.ceil(state.step / self.per_epoch),
            "step": state.step,
            "loss": loss + self.plan.offset,
            "lr": float(rate),
            "seconds": self.plan.spent + state.seconds,
        }


def _tensors(problem: Problem) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in problem.state_dict().items()}


def _share(step: int, n_steps: int, seconds: float, budget: float | None) -> float:
    """How much is behind us: of the steps, or of the time where that runs out first."""
    of_time = 0.0 if not budget else min(seconds / budget, 1.0)
    return max(step / n_steps, of_time)
