"""Priors and bounds on hyper-parameters, and priors of inducing inputs."""

from candid.priors.attach import HyperPrior, attach, complete
from candid.priors.densities import Gamma, HalfNormal, Interval, LogNormal, Normal, Prior
from candid.priors.points import (
    POINT_PRIORS,
    Box,
    DeterminantalPoints,
    NormalPoints,
    PointPrior,
    StraussPoints,
    UniformPoints,
)

__all__ = [
    "POINT_PRIORS",
    "Box",
    "DeterminantalPoints",
    "Gamma",
    "HalfNormal",
    "HyperPrior",
    "Interval",
    "LogNormal",
    "Normal",
    "NormalPoints",
    "PointPrior",
    "Prior",
    "StraussPoints",
    "UniformPoints",
    "attach",
    "complete",
]
