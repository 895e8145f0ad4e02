"""Machine code for what inducing points leave of the covariance of some rows, C = K_xx − AᵀA + τI: it and its gradient.

Points and rows are those of :mod:`candid.linalg.block_kernels`; here both are the rows of a batch. C is symmetric, so
of each column only what is on and above the diagonal is computed; members of a crew take panels of columns in turn.
"""

from __future__ import annotations

from typing import no_type_check

import numpy as np

from candid.linalg.block_kernels import add_gradients, write_covariances
from candid.linalg.machine_code import kept_on_disk
from candid.linalg.machine_products import first_rows, multiply, pack_transposed, panel_width

__all__ = ["column_panels", "pull_back_residual", "write_residual"]


@kept_on_disk
@no_type_check
def column_panels(n, item):
    """The shape of an n×n matrix as panels of columns, if numbers have so many bytes."""
    width = panel_width(item)
    return -(-n // width), n, width


@kept_on_disk
@no_type_check
def write_residual(profile, rows, columns, floor, features, panels, slopes, member, members):
    """Write −C to the ``panels`` of a :class:`~candid.linalg.crew_cholesky.Bordered`, and the slopes of K_xx."""
    (depth, n), (n_panels, _, width), group = features.shape, slopes.shape, panels.shape[2]
    factor, product = pack_transposed(features, depth, n), np.empty((n, width), features.dtype)
    covariances = np.empty((n, width), features.dtype)
    for panel in range(member, n_panels, members):
        first = panel * width
        stop = min(first + width, n)
        multiply(first_rows(factor, stop), features, first, stop - first, product, 0)
        write_covariances(
            profile, rows[:stop], columns, first, covariances[:stop], slopes[panel, :stop], 0, stop - first
        )
        for start in range(first, stop, group):
            own, at, count = panels[start // group], start - first, min(group, stop - start)
            for i in range(start + count):
                for j in range(count):
                    own[i, j] = product[i, at + j] - covariances[i, at + j]
            for j in range(count):
                own[start + j, j] -= floor


@kept_on_disk
@no_type_check
def pull_back_residual(rows, columns, slopes, solved, grad, columns_bar, rows_bar, moment, member, members):
    """Add what the gradient C̄ = −½ g YᵀY means for rows and lengthscales, of which :func:`add_gradients` tells more."""
    (depth, n), (n_panels, _, width), nothing = solved.shape, slopes.shape, solved.dtype.type(0)
    factor, bar = pack_transposed(solved, depth, n), np.empty((n, width), solved.dtype)
    for panel in range(member, n_panels, members):
        first = panel * width
        stop = min(first + width, n)
        multiply(first_rows(factor, stop), solved, first, stop - first, bar, 0)
        for i in range(stop):
            own = bar[i]
            # What is above the diagonal counts twice; no row has a distance to itself.
            for j in range(max(i + 1 - first, 0), stop - first):
                own[j] *= -grad
            own[: max(i + 1 - first, 0)] = nothing
        add_gradients(
            bar[:stop], slopes[panel, :stop], 0, stop - first, rows[:stop], columns, first,
            rows_bar[:stop], columns_bar, moment,
        )  # fmt: skip
