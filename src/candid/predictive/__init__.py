"""Predictive distributions: what a fitted model says about new rows, in the units of y.

Arrays have shape ``(N,)`` for one output or ``(N, P)`` for several; mixtures carry their sites on one more, last, axis.
Everything here is numpy in float64. Rows and outputs are described by their marginals; only :class:`JointNormal` knows
how rows depend on each other, and :class:`PredictiveCorrelated` how the outputs of a row do. A standard deviation of
zero is allowed and means a point mass, which counts half at its own position in ``cdf``. Class probabilities have shape
``(N, K)``, with one column for every class.

References
----------
Grimit, Gneiting, Berrocal, Johnson (2006): the CRPS of a mixture of normals in closed form.
"""

from __future__ import annotations

from candid.predictive.base import Predictive
from candid.predictive.classes import PredictiveBernoulli, PredictiveCategorical
from candid.predictive.correlated import PredictiveCorrelated
from candid.predictive.counts import PredictiveBinomial, PredictiveCounts, PredictiveNegativeBinomial
from candid.predictive.joint import JointNormal
from candid.predictive.mixture import PredictiveMixture
from candid.predictive.normal import PredictiveNormal
from candid.predictive.student_t import PredictiveStudentT

__all__ = [
    "JointNormal",
    "Predictive",
    "PredictiveBernoulli",
    "PredictiveBinomial",
    "PredictiveCategorical",
    "PredictiveCorrelated",
    "PredictiveCounts",
    "PredictiveMixture",
    "PredictiveNegativeBinomial",
    "PredictiveNormal",
    "PredictiveStudentT",
]
