"""How long a training step and a prediction take: ours, GPyTorch's, and what the machine could do at best."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from candid.bench.case import Case, Sample, default_cases
from candid.bench.contenders import gpytorch_contender, our_contender
from candid.bench.timing import GEMM_FLOPS, interleaved_medians, make_gemm

__all__ = ["Case", "Measurement", "default_cases", "measure"]

N_NEW = 2000


@dataclass(frozen=True)
class Measurement:
    """Median seconds of one case; those of GPyTorch are None where it is not installed.

    ``gemm_rate`` is how many floating-point operations per second a product of float32 matrices reached meanwhile.
    """

    case: Case
    step: float
    step_gpytorch: float | None
    predict64: float
    predict32: float
    predict_gpytorch: float | None
    gemm_rate: float


def measure(
    cases: Sequence[Case], repeats: int = 9, n_new: int = N_NEW, tell: Callable[[str], None] = lambda text: None
) -> list[Measurement]:
    """Time every case: warmed up, contenders taking turns, medians.

    Parameters
    ----------
    cases : sequence of Case
    repeats : int
    n_new : int
        Rows to predict.
    tell : callable
        Hears what is being measured.
    """
    return [_measure(case, repeats, n_new, tell) for case in cases]


def _measure(case: Case, repeats: int, n_new: int, tell: Callable[[str], None]) -> Measurement:
    tell(f"{case.method}, M = {case.n_inducing}, D = {case.n_features} …")
    sample = Sample.draw(case, n_new)
    ours, theirs = our_contender(case, sample), gpytorch_contender(case, sample)
    steps = {"ours": ours.step, "gemm": make_gemm()} | ({} if theirs is None else {"theirs": theirs.step})
    predictions = dict(ours.predictions) | ({} if theirs is None else {"theirs": theirs.predictions["float32"]})
    step = interleaved_medians(steps, repeats)
    predict = interleaved_medians(predictions, repeats)
    return Measurement(
        case=case,
        step=step["ours"],
        step_gpytorch=step.get("theirs"),
        predict64=predict["float64"],
        predict32=predict["float32"],
        predict_gpytorch=predict.get("theirs"),
        gemm_rate=GEMM_FLOPS / step["gemm"],
    )
