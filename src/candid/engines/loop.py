"""The one training loop."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from torch import Tensor

from candid.engines.checkpoint import Checkpoint
from candid.engines.machine import keep_freed_memory
from candid.engines.moment import Moment
from candid.engines.problem import Problem
from candid.engines.progress import ProgressBar
from candid.engines.rows import Rows, batch_at, n_batches
from candid.engines.schedules import SCHEDULES
from candid.engines.steppers import make_steppers, take_step
from candid.engines.stopping import EarlyStopping

__all__ = ["Plan", "TrainingDiverged", "train"]

#: Called after every epoch with its record; a true answer ends training.
Callback = Callable[[dict[str, Any]], Any]


class TrainingDiverged(ArithmeticError):
    """The loss is no longer a finite number."""


@dataclass(frozen=True)
class Plan:
    """How to train, independent of what.

    ``steppers`` maps parameter groups ("all", "weights", "points", "network", "rest") to steppers, ``rates`` some of
    these groups to learning rates of their own instead of ``lr``, and ``decay`` some to a weight decay (L2); networks
    that no stepper is named for belong to the rest. ``patience`` counts epochs without a better held-out NLL;
    ``max_steps`` may end training within an epoch; ``time_budget`` is in seconds and covers this call and what it
    resumes; ``offset`` is added to the recorded losses, to give them in other units, and ``spent`` to the seconds;
    ``with_start`` begins the history with a record of the starting point, as epoch 0, and goes back there if training
    (without held-out rows, which would decide) ends with a worse loss.
    """

    steppers: Mapping[str, str]
    max_epochs: int
    batch_size: int
    lr: float = 0.01
    rates: Mapping[str, float] = field(default_factory=dict)
    decay: Mapping[str, float] = field(default_factory=dict)
    schedule: str = "constant"
    patience: int | None = None
    time_budget: float | None = None
    max_steps: int | None = None
    seed: int = 0
    offset: float = 0.0
    spent: float = 0.0
    with_start: bool = False


@dataclass
class State:
    """Where a run stands, apart from tensors; plain numbers, so that it can be written down."""

    step: int = 0
    loss_sum: float = 0.0
    seconds: float = 0.0
    finished: bool = False
    history: list[dict[str, Any]] = field(default_factory=list)


def train(
    problem: Problem,
    rows: Rows,
    plan: Plan,
    held_out: Rows | None = None,
    checkpoint: Checkpoint | None = None,
    callbacks: Sequence[Callback] = (),
    progress: ProgressBar | None = None,
) -> list[dict[str, Any]]:
    """Minimise the problem's loss in place and return the history, one record for each epoch.

    With a checkpoint, an interrupted run goes on from it and ends with the tensors it would have had without the
    interruption; the file is left behind, marked as finished, for the caller to delete.
    """
    keep_freed_memory()
    rates = {group: plan.rates.get(group, plan.lr) for group in plan.steppers}
    named = make_steppers(plan.steppers, problem.groups("network" in plan.steppers), rates, plan.decay)
    steppers = list(named.values())
    beginning = _tensors(problem) if plan.with_start else {}
    state, stopping = State(), EarlyStopping(plan.patience)
    saved = checkpoint.read() if checkpoint is not None else None
    if saved is not None:
        state = State(**saved["state"])
        problem.load_state_dict(saved["problem"])
        stopping.restore(saved["stopping"])
        for stepper, memory in zip(steppers, saved["steppers"], strict=True):
            stepper.restore(memory)

    def save() -> None:
        if checkpoint is not None:
            checkpoint.write(
                {
                    "state": asdict(state),
                    "problem": problem.state_dict(),
                    "steppers": [stepper.state() for stepper in steppers],
                    "stopping": stopping.state(),
                }
            )

    def tell(record: dict[str, Any]) -> bool:
        """Write a record down, show it around, and say whether training is over."""
        if held_out is not None or callbacks:
            problem.settle(rows)
        if held_out is not None:
            record["validation_nll"] = problem.held_out_nll(held_out) + plan.offset
        state.history.append(record)
        stale = held_out is not None and stopping.observe(record["epoch"], record["validation_nll"], problem)
        return any([*(bool(callback(record)) for callback in callbacks), stale])

    per_epoch = n_batches(len(rows), plan.batch_size)
    n_steps = per_epoch * plan.max_epochs
    if plan.max_steps is not None:
        n_steps = min(n_steps, plan.max_steps)
    clock = time.perf_counter() - state.seconds
    if progress is not None:
        progress.begin(state.step / max(n_steps, 1))
    if plan.with_start and not state.history and not state.step:
        loss = problem.standing(rows, plan.batch_size) + plan.offset
        state.finished = tell({"epoch": 0, "step": 0, "loss": loss, "lr": 0.0, "seconds": plan.spent})
    while steppers and not state.finished and state.step < n_steps:
        problem.family.refresh(state.step)
        decay = SCHEDULES[plan.schedule](_share_done(state, plan, n_steps))
        for group, stepper in named.items():
            stepper.set_rate(rates[group] * decay)
        batch = batch_at(rows, state.step, plan.batch_size, plan.seed)
        loss = take_step(steppers, Moment(problem, batch, state.step, plan.seed))
        if not math.isfinite(loss):
            raise TrainingDiverged(
                f"the loss became {loss} at step {state.step}; try standardize=True, and where the model has them a "
                f"smaller lr (now {plan.lr:g}) or dtype='float64'"
            )
        state.step += 1
        state.loss_sum += loss
        state.seconds = time.perf_counter() - clock
        out_of_time = plan.time_budget is not None and state.seconds >= plan.time_budget
        if state.step % per_epoch == 0 or state.step == n_steps or out_of_time:
            enough = tell(_close_epoch(state, plan, per_epoch, decay))
            state.finished = out_of_time or enough or all(stepper.converged for stepper in steppers)
        if progress is not None:
            progress.update(_share_done(state, plan, n_steps), state.step, n_steps, f"loss {loss:.4f}")
        if checkpoint is not None and checkpoint.due():
            save()
    problem.zero_grad(set_to_none=True)
    stopping.bring_back(problem)
    # Training that has made its own objective worse has been in vain.
    if beginning and held_out is None:
        start = state.history[0]["loss"]
        if problem.standing(rows, plan.batch_size) + plan.offset > start:
            problem.load_state_dict(beginning)
            state.history.append({**state.history[-1], "loss": start, "lr": 0.0})
    problem.settle(rows)
    state.finished = True
    save()
    return state.history


def _tensors(problem: Problem) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in problem.state_dict().items()}


def _share_done(state: State, plan: Plan, n_steps: int) -> float:
    """How much of the training is behind us: of its steps, or of its time where that runs out first."""
    of_time = 0.0 if not plan.time_budget else min(state.seconds / plan.time_budget, 1.0)
    return max(state.step / n_steps, of_time)


def _close_epoch(state: State, plan: Plan, per_epoch: int, decay: float) -> dict[str, Any]:
    """The record of the epoch (or the part of one) that has just ended."""
    steps = state.step - (state.history[-1]["step"] if state.history else 0)
    loss, state.loss_sum = state.loss_sum / steps, 0.0
    return {
        "epoch": math.ceil(state.step / per_epoch),
        "step": state.step,
        "loss": loss + plan.offset,
        "lr": plan.lr * decay,
        "seconds": plan.spent + state.seconds,
    }
