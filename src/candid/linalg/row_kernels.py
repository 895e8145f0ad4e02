"""Machine code for rows that are conditioned on their neighbours under one stationary kernel, all of a row in cache.

For each row: the Gram matrix of its k neighbours, the factorisation UᵀU = C (the two right-hand sides are columns of
the same matrix, so elimination whitens them on the way), b = C⁻¹k and α = C⁻¹r, and the sums over pairs that gradients
of lengthscales need. Numba compiles it; the loops are written so that vectors of a processor fit them:

- matrices are stored by rows and padded to whole vectors, and loops over columns start where a vector starts. What is
  left of the diagonal inside such a vector is eliminated, too, and never read;
- elimination takes four rows at a time. A copy of them with a fixed stride tells the compiler that nothing overlaps.

Distances are sums of squared differences from the row itself, which do not cancel, however far the origin is.
"""

from __future__ import annotations

import math
from typing import no_type_check

import numpy as np

from candid.linalg.machine_code import compiled, compiled_sums, decay, inlined, kept_on_disk
from candid.linalg.stationary_conditional import MOST_NEIGHBOURS

__all__ = ["condition_rows"]

# The profiles, by number.
RBF, MATERN12, MATERN32, MATERN52 = range(4)
# Entries between two of the four rows that are eliminated at a time; not a power of two, so that they share the cache.
STRIDE = MOST_NEIGHBOURS + 32
# Bytes of a vector.
VECTOR = 64


@inlined
@no_type_check
def covariances(profile, q, largest, k, w):
    """Covariances k and their slopes w from squared distances q, as the profile of the kernel defines them."""
    third, nothing = q.dtype.type(1 / 3), q.dtype.type(0)
    for j in range(q.shape[0]):
        r = q[j] if profile == RBF else math.sqrt(q[j])
        # NaN stays what it is.
        r = largest if r > largest else r
        e = decay(r)
        if profile == RBF:
            # k = exp(−q), w = k
            k[j], w[j] = e, e
        elif profile == MATERN12:
            # k = exp(−r), w = k/r; two points at the same place have no gradient
            k[j], w[j] = e, e / r if r > nothing else nothing
        elif profile == MATERN32:
            # k = (1 + r) exp(−r), w = exp(−r)
            k[j], w[j] = e + e * r, e
        else:
            # k = (1 + r + r²/3) exp(−r), w = (1 + r) exp(−r)
            k[j], w[j] = e + e * r + (e * r) * (r * third), e + e * r


@inlined
@no_type_check
def squared_distances(a, first, row, q):
    """‖row − a_j‖² for the points j from ``first`` on, columns of a; four features at a time."""
    for j in range(q.shape[0]):
        q[j] = 0
    for d in range(0, a.shape[0], 4):
        t0, t1, t2, t3 = row[d], row[d + 1], row[d + 2], row[d + 3]
        a0, a1, a2, a3 = a[d, first:], a[d + 1, first:], a[d + 2, first:], a[d + 3, first:]
        for j in range(q.shape[0]):
            x0, x1, x2, x3 = a0[j] - t0, a1[j] - t1, a2[j] - t2, a3[j] - t3
            q[j] += (x0 * x0 + x1 * x1) + (x2 * x2 + x3 * x3)


@inlined
@no_type_check
def factorise_corner(u, p, least, corner):
    """The lower factor of the 4×4 block at (p, p); whether there is one with squared diagonal above ``least``."""
    for i in range(4):
        for j in range(i + 1):
            rest = u[p + j, p + i]
            for q in range(j):
                rest -= corner[i, q] * corner[j, q]
            if i != j:
                corner[i, j] = rest / corner[j, j]
            elif rest > least:
                corner[i, i] = math.sqrt(rest)
            else:
                return False
    return True


@inlined
@no_type_check
def solve_four(u0, u1, u2, u3, corner, four):
    """Four rows of the factor from what elimination has left of them: corner⁻¹ [u0; u1; u2; u3]."""
    one = u0.dtype.type(1)
    i0, i1, i2, i3 = one / corner[0, 0], one / corner[1, 1], one / corner[2, 2], one / corner[3, 3]
    c10, c20, c21, c30, c31, c32 = corner[1, 0], corner[2, 0], corner[2, 1], corner[3, 0], corner[3, 1], corner[3, 2]
    for j in range(u0.shape[0]):
        x0 = u0[j] * i0
        x1 = (u1[j] - c10 * x0) * i1
        x2 = (u2[j] - c20 * x0 - c21 * x1) * i2
        x3 = (u3[j] - c30 * x0 - c31 * x1 - c32 * x2) * i3
        four[j], four[j + STRIDE], four[j + 2 * STRIDE], four[j + 3 * STRIDE] = x0, x1, x2, x3


@inlined
@no_type_check
def eliminate_from_two(u0, u1, four, i, first):
    """Rows i and i + 1 minus their parts along the four rows, from column ``first`` on."""
    a0, a1, a2, a3 = four[i], four[i + STRIDE], four[i + 2 * STRIDE], four[i + 3 * STRIDE]
    b0, b1, b2, b3 = four[i + 1], four[i + 1 + STRIDE], four[i + 1 + 2 * STRIDE], four[i + 1 + 3 * STRIDE]
    x = four[first:]
    for j in range(u0.shape[0]):
        x0, x1, x2, x3 = x[j], x[j + STRIDE], x[j + 2 * STRIDE], x[j + 3 * STRIDE]
        u0[j] -= (a0 * x0 + a1 * x1) + (a2 * x2 + a3 * x3)
        u1[j] -= (b0 * x0 + b1 * x1) + (b2 * x2 + b3 * x3)


@compiled
@no_type_check
def factorise(u, lanes, corner, four):
    """Turn [C, k, r] into [U, U⁻ᵀk, U⁻ᵀr], where UᵀU = C; whether that can be done without jitter."""
    size, width = u.shape
    # What is left of a diagonal entry, which is one or more, is rounding error below this.
    least = u.dtype.type(1e-6 if lanes == 16 else 2e-15)
    for p in range(0, size, 4):
        start = p - p % lanes
        if not factorise_corner(u, p, least, corner):
            return False
        solve_four(u[p, start:], u[p + 1, start:], u[p + 2, start:], u[p + 3, start:], corner, four)
        for q in range(4):
            row, copy = u[p + q, start:], four[q * STRIDE : q * STRIDE + width - start]
            for j in range(row.shape[0]):
                row[j] = copy[j]
        for i in range(p + 4, size, 2):
            first = i - i % lanes
            eliminate_from_two(u[i, first:], u[i + 1, first:], four, i - start, first - start)
    return True


@compiled_sums
@no_type_check
def conclude(u, n, lanes, b, alpha, results):
    """kᵀC⁻¹r and kᵀC⁻¹k, and by back-substitution b = U⁻¹U⁻ᵀk and α = U⁻¹U⁻ᵀr.

    The right-hand sides are columns of u, and entries of −1 in b and α belong to them.
    """
    size = u.shape[0]
    for j in range(b.shape[0]):
        b[j] = 0
        alpha[j] = 0
    b[size], alpha[size + 1] = -1, -1
    for i in range(n - 1, -1, -1):
        first = i - i % lanes
        row, known_b, known_alpha = u[i, first:], b[first:], alpha[first:]
        sum_b, sum_alpha = u.dtype.type(0), u.dtype.type(0)
        # b_i = −Σ_{j>i} U_ij b_j / U_ii; what is not known yet is zero
        for j in range(row.shape[0]):
            sum_b += row[j] * known_b[j]
            sum_alpha += row[j] * known_alpha[j]
        b[i], alpha[i] = -sum_b / u[i, i], -sum_alpha / u[i, i]
        results[0] += u[i, size] * u[i, size + 1]
        results[1] += u[i, size] * u[i, size]
    # α of the row itself, which is point number ``size``, where b = −1
    alpha[size + 1] = 0


@compiled_sums
@no_type_check
def add_pairs(a, i, first, slopes, b, alpha, v_mean, v_explained, moments):
    """Add Σ_{j>i} v_j (a_i − a_j)² to the moments of the mean and of the explained variance, feature by feature.

    For the mean v = −w(b_iα_j + α_i b_j), for the explained variance v = −2w b_i b_j. With b = −1 and α = 0 for the row
    itself these are the gradients with respect to its covariances, too: wα and 2wb.
    """
    two, nothing = a.dtype.type(2), a.dtype.type(0)
    b_i, alpha_i, b, alpha = b[i], alpha[i], b[first:], alpha[first:]
    for j in range(slopes.shape[0]):
        slope = slopes[j] if first + j > i else nothing
        v_mean[j] = -slope * (b_i * alpha[j] + alpha_i * b[j])
        v_explained[j] = -slope * (two * b_i * b[j])
    for d in range(0, a.shape[0], 4):
        t0, t1, t2, t3 = a[d, i], a[d + 1, i], a[d + 2, i], a[d + 3, i]
        a0, a1, a2, a3 = a[d, first:], a[d + 1, first:], a[d + 2, first:], a[d + 3, first:]
        m, e = moments[0, d : d + 4], moments[1, d : d + 4]
        m0, m1, m2, m3, e0, e1, e2, e3 = m[0], m[1], m[2], m[3], e[0], e[1], e[2], e[3]
        for j in range(slopes.shape[0]):
            x0, x1, x2, x3 = a0[j] - t0, a1[j] - t1, a2[j] - t2, a3[j] - t3
            x0, x1, x2, x3, of_mean, of_explained = x0 * x0, x1 * x1, x2 * x2, x3 * x3, v_mean[j], v_explained[j]
            m0, m1, m2, m3 = m0 + of_mean * x0, m1 + of_mean * x1, m2 + of_mean * x2, m3 + of_mean * x3
            e0, e1, e2 = e0 + of_explained * x0, e1 + of_explained * x1, e2 + of_explained * x2
            e3 = e3 + of_explained * x3
        m[0], m[1], m[2], m[3], e[0], e[1], e[2], e[3] = m0, m1, m2, m3, e0, e1, e2, e3


@compiled
@no_type_check
def gather(points, centre, rates, absent, noise, targets, jitter, a, right, diagonal, places):
    """(X − x)/ℓ of neighbours that are there, one feature after the other, with their targets and the diagonal of C.

    Returns how many there are, or −1 if some number is not finite.
    """
    n, k = 0, absent.shape[0]
    total, trace = a.dtype.type(0), a.dtype.type(0)
    for j in range(k):
        if absent[j]:
            trace += a.dtype.type(1)
            continue
        for d in range(centre.shape[0]):
            a[d, n] = (points[j, d] - centre[d]) * rates[d]
            total += a[d, n]
        places[n], right[n], diagonal[n] = j, targets[j], a.dtype.type(1) + noise[j]
        trace += diagonal[n]
        n += 1
    for j in range(n):
        diagonal[j] += jitter * trace / k
    return n if math.isfinite(total) else -1


@compiled
@no_type_check
def fill(profile, a, n, lanes, largest, diagonal, right, q, u, w):
    """[C, k, r] and slopes w. Behind the n points, C is the identity, and the row itself is point number ``size``."""
    size = u.shape[0]
    for i in range(size):
        first = i - i % lanes
        if i < n:
            squared_distances(a, first, a[:, i], q[first:])
            covariances(profile, q[first:], largest, u[i, first:], w[i, first:])
            u[i, n:size] = 0
            u[i, size + 2 :] = 0
            u[i, i], u[i, size + 1] = diagonal[i], right[i]
        else:
            u[i, first:] = 0
            u[i, i] = 1


@kept_on_disk
@no_type_check
def condition_rows(
    profile, points, centres, of_points, rates, of_rates, absent, noise, targets, jitter, start, stop, learns,
    results, b, alpha, moments, failed,
):  # fmt: skip
    """Condition systems ``start`` to ``stop``; all that comes after ``learns`` is written, and zero on entry.

    System s has the neighbours ``points[of_points[s]]`` of the row ``centres[of_points[s]]``, and inputs are multiplied
    by ``rates[of_rates[s]]``. ``moments`` are made only for a model that learns.
    """
    dtype, lanes, k = points.dtype, VECTOR // points.itemsize, points.shape[1]
    # The decay of anything farther away is nothing in this precision.
    largest = dtype.type(87 if lanes == 16 else 708)
    most = (k + 4 + lanes) // lanes * lanes
    entries, slopes = np.empty(most * most, dtype), np.empty(most * most, dtype)
    a, four, corner = np.zeros((moments.shape[2], most), dtype), np.empty(4 * STRIDE, dtype), np.empty((4, 4), dtype)
    vectors, places = np.empty((7, most), dtype), np.empty(most, np.int64)
    q, right, diagonal, b_s, alpha_s = vectors[0], vectors[1], vectors[2], vectors[3], vectors[4]
    v_mean, v_explained = vectors[5], vectors[6]
    for s in range(start, stop):
        of = of_points[s]
        a[:] = 0
        n = gather(
            points[of], centres[of], rates[of_rates[s]], absent[of], noise[s], targets[s], jitter,
            a, right, diagonal, places,
        )  # fmt: skip
        # Whole fours of rows, and whole vectors of columns, two of which are right-hand sides
        size = (n + 3) // 4 * 4
        width = (size + 1 + lanes) // lanes * lanes
        u, w = entries[: size * width].reshape(size, width), slopes[: size * width].reshape(size, width)
        if n >= 0:
            fill(profile, a, n, lanes, largest, diagonal, right, q[:width], u, w)
        if n < 0 or not factorise(u, lanes, corner, four):
            failed[s] = True
            continue
        conclude(u, n, lanes, b_s[:width], alpha_s[:width], results[s])
        for i in range(n):
            b[s, places[i]], alpha[s, places[i]] = b_s[i], alpha_s[i]
            if learns:
                first = i - i % lanes
                add_pairs(a, i, first, w[i, first:], b_s, alpha_s, v_mean, v_explained, moments[s])
