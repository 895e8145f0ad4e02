"""How parameters move: one training loop for every method, and the parts it is made of."""

from candid.engines.checkpoint import Checkpoint
from candid.engines.closed_form import match_noise, settle_weights, solve_weights
from candid.engines.coupled_weights import solve_together
from candid.engines.gaps import fill_gaps
from candid.engines.initialise import fit_by_evidence, fit_by_neighbours, fit_points, nearest_rows, place_points
from candid.engines.level import likeliest_shift
from candid.engines.local_start import fit_locally
from candid.engines.loop import Plan, TrainingDiverged, train
from candid.engines.machine import keep_freed_memory, pick_device, step_crew, threads
from candid.engines.nearby import changes_nearby
from candid.engines.outliers import find_outliers
from candid.engines.output_noise import match_output_noise
from candid.engines.problem import Problem
from candid.engines.progress import ProgressBar
from candid.engines.resolution import JITTER, Resolvable
from candid.engines.rows import Rows, n_batches
from candid.engines.sampling import Sampling
from candid.engines.schedules import SCHEDULES
from candid.engines.small_model import SMALL_POINTS, fit_small

__all__ = [
    "JITTER",
    "SCHEDULES",
    "SMALL_POINTS",
    "Checkpoint",
    "Plan",
    "Problem",
    "ProgressBar",
    "Resolvable",
    "Rows",
    "Sampling",
    "TrainingDiverged",
    "changes_nearby",
    "fill_gaps",
    "find_outliers",
    "fit_by_evidence",
    "fit_by_neighbours",
    "fit_locally",
    "fit_points",
    "fit_small",
    "keep_freed_memory",
    "likeliest_shift",
    "match_noise",
    "match_output_noise",
    "n_batches",
    "nearest_rows",
    "pick_device",
    "place_points",
    "settle_weights",
    "solve_together",
    "solve_weights",
    "step_crew",
    "threads",
    "train",
]
