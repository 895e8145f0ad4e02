"""Priors and bounds on hyper-parameters."""

from candid.priors.attach import HyperPrior, attach
from candid.priors.densities import Gamma, HalfNormal, Interval, LogNormal, Normal, Prior

__all__ = ["Gamma", "HalfNormal", "HyperPrior", "Interval", "LogNormal", "Normal", "Prior", "attach"]
