"""Machine code for :mod:`candid.linalg.divergence`: one pass over each root, and one over its gradient."""

from __future__ import annotations

import math
from typing import no_type_check

import numpy as np

from candid.linalg.machine_code import dot, kept_on_disk

__all__ = ["divergence_gradients", "divergences"]


@kept_on_disk
@no_type_check
def divergences(means, roots, results):
    """½(Σ R² + mᵀm − M − Σ log R_mm²) of each distribution; rows are added up in double precision."""
    for place in range(means.shape[0]):
        mean, root, total = means[place], roots[place], np.float64(0.0)
        for i in range(mean.shape[0]):
            total += dot(root[i, : i + 1], root[i]) - 1.0 - 2.0 * math.log(abs(root[i, i]))
        results[place] = 0.5 * (total + dot(mean, mean))


@kept_on_disk
@no_type_check
def divergence_gradients(roots, results, grads):
    """g (R − diag(1/R_mm)), with zeros above the diagonal."""
    for place in range(roots.shape[0]):
        grad = grads[place]
        for i in range(roots.shape[1]):
            row, own = roots[place, i], results[place, i]
            for j in range(i + 1):
                own[j] = grad * row[j]
            own[i] -= grad / row[i]
            own[i + 1 :] = own.dtype.type(0)
