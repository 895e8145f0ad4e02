"""Machine code for one row that is compared with fixed points: all it needs between the inputs and the two moments."""

from __future__ import annotations

from typing import no_type_check

import numpy as np

from candid.linalg.machine_code import compiled_sums, dot, kept_on_disk
from candid.linalg.row_kernels import covariances, squared_distances

__all__ = ["row_moments"]


@compiled_sums
@no_type_check
def signed_squares(matrix, signs, offset, k):
    """Σ_j sign_j (G k)_j², where G is zero above the diagonal number ``offset``."""
    total = k.dtype.type(0)
    for j in range(matrix.shape[0]):
        product = dot(matrix[j, : min(j + 1 + offset, matrix.shape[1])], k)
        total += signs[j] * product * product
    return total


@kept_on_disk
@no_type_check
def row_moments(profile, x, centre, rates, points, coefficients, matrix, signs, offset, results):
    """Write kᵀc and, if there are two results, 1 − Σ_j sign_j (G k)_j², for the covariances k of ``x`` and points.

    Points are columns, centred and multiplied by the rates as x is going to be, and features are padded to whole fours.
    The first points belong to c, the last ones to G.
    """
    dtype, (n_features, n_points) = points.dtype, points.shape
    row, q = np.zeros(n_features, dtype), np.empty(n_points, dtype)
    k, slopes = np.empty(n_points, dtype), np.empty(n_points, dtype)
    total = dtype.type(0)
    for d in range(x.shape[0]):
        row[d] = (x[d] - centre[d]) * rates[d]
        total += row[d]
    if np.isnan(total):
        results[:] = total
        return
    squared_distances(points, 0, row, q)
    # The decay of anything farther away is nothing in this precision.
    covariances(profile, q, dtype.type(87 if points.itemsize == 4 else 708), k, slopes)
    results[0] = dot(coefficients, k)
    if results.shape[0] > 1:
        explained = signed_squares(matrix, signs, offset, k[n_points - matrix.shape[1] :])
        results[1] = max(dtype.type(1) - explained, dtype.type(0))
