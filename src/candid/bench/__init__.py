"""Measurements of this library: its accuracy beside published figures, its speed beside GPyTorch."""

from candid.bench.comparison import Comparison, compare_with
from candid.bench.published import read_published
from candid.bench.race import Course, Lap
from candid.bench.results import Results
from candid.bench.runner import Event, Outcome, Runner
from candid.bench.spec import METRICS, Budget, Choice, Grid, Row, Spec, Sweep
from candid.bench.specs import SPECS, find_spec
from candid.bench.speed import Goal, Measurement, default_goals, measure

#: Name of each benchmark of speed → what it measures.
BENCHMARKS = {
    "speed": "time of a training step and of predictions, beside GPyTorch and the machine's limit",
    "decoupled": "time of training steps of decoupled conditionals, with and without Ω, beside those of svgp",
    "neighbours": "time of a step with nearest neighbours, by three ways, and its growth with the number of rows",
    "peers": "nearest-neighbour GPs of other libraries beside ours: seconds, and scores of test rows",
    "race": "seconds of training to a given NLL, beside the published recipe in GPyTorch",
    "study": "studies of the paper on leave-one-out losses: misspecification, objectives, neighbours, duplicates",
    "calibration": "how often the predictions of some methods come true, in numbers and pictures",
}

__all__ = [
    "BENCHMARKS",
    "METRICS",
    "SPECS",
    "Budget",
    "Choice",
    "Comparison",
    "Course",
    "Event",
    "Goal",
    "Grid",
    "Lap",
    "Measurement",
    "Outcome",
    "Results",
    "Row",
    "Runner",
    "Spec",
    "Sweep",
    "compare_with",
    "default_goals",
    "find_spec",
    "measure",
    "read_published",
]
