"""Products inside machine code, for every kind of processor."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location

import numpy as np
import pytest

pytest.importorskip("numba")

from llvmlite import binding
from numba import njit

from candid.linalg import machine_products, machine_tiles

PROCESSORS = {
    "AVX-512": {"avx512f": True, "avx2": True},
    "AVX2": {"avx512f": False, "avx2": True},
    "NEON": {"neon": True},
    "any": {},
}
# Less than a tile, tiles with edges, and several panels.
SHAPES = [(1, 1), (3, 5), (19, 53), (52, 131)]


@pytest.fixture(scope="module", params=PROCESSORS)
def room(request):
    """The module as such a processor loads it: what is compiled here emulates instructions that are not there."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(binding, "get_host_cpu_features", lambda: PROCESSORS[request.param])
        patch.setattr(machine_tiles, "SHAPE", machine_tiles._best_shape())
        for make in (machine_tiles.make_add_tile, machine_tiles.make_transpose):
            patch.setattr(machine_tiles, make.__name__.removeprefix("make_"), make(machine_tiles.SHAPE))
        spec = spec_from_file_location("products_elsewhere", machine_products.__file__)
        room = module_from_spec(spec)
        spec.loader.exec_module(room)
    return room


def matrices():
    """Square matrices, and columns for each, in both precisions."""
    rng = np.random.default_rng(0)
    for n, columns in SHAPES:
        a, x = rng.normal(size=(n, n)), rng.normal(size=(n, columns))
        yield from ((a, x), (a.astype(np.float32), x.astype(np.float32)))


def close(found, expected):
    tolerance = 1e-12 if found.dtype == np.float64 else 1e-5
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance * len(found))


def test_tiles_fill_the_registers(room):
    """Panels hold whole tiles in both precisions, so that a tile of one factor is part of a panel of the other."""
    n_bytes, rows, vectors = room.SHAPE
    assert all(vectors * n_bytes // item % rows == 0 for item in (4, 8))
    assert rows * vectors + vectors + 1 <= (32 if n_bytes == 64 or rows * vectors > 12 else 16)


@pytest.mark.parametrize("name", ["pack", "pack_lower", "pack_lower_transposed", "pack_transposed"])
def test_products_with_a_left_factor(room, name):
    """What is above the diagonal of a triangle is not read, and what is beside the columns not written."""
    dense = {
        "pack": lambda a: a,
        "pack_lower": np.tril,
        "pack_lower_transposed": lambda a: np.tril(a).T,
        "pack_transposed": lambda a: a.T,
    }[name]
    packed = getattr(room, name)

    @njit
    def multiply(a, x, first, out, at):
        factor = packed(a, *a.shape) if name == "pack_transposed" else packed(a)
        room.multiply(factor, x, first, x.shape[1] - first, out, at)

    for a, x in matrices():
        given = np.where(np.tril(np.ones_like(a)) > 0, a, np.nan).astype(a.dtype) if "lower" in name else a
        expected, out = dense(a) @ x, np.full((len(a) + 1, x.shape[1] + 3), 7.0, a.dtype)
        multiply(given, x, 0, out, 2)
        close(out[:-1, 2:-1], expected)
        assert (out[-1] == 7).all()
        assert (out[:, [0, 1, -1]] == 7).all()
        # In the same place, but for the first column.
        own = x.copy()
        multiply(given, own, 1, own, 1)
        close(own, np.hstack([x[:, :1], expected[:, 1:]]))


def test_a_left_factor_with_more_columns_than_rows(room):
    @njit
    def multiply(a, x, out):
        room.multiply(room.pack(a), x, 0, x.shape[1], out, 0)

    rng = np.random.default_rng(1)
    a, x, out = rng.normal(size=(5, 23)), rng.normal(size=(23, 30)), np.full((7, 30), 7.0)
    multiply(a, x, out)
    close(out[:5], a @ x)
    assert (out[5:] == 7).all()


def test_the_first_rows_of_a_transpose_that_is_wider(room):
    @njit
    def multiply(a, x, count, out):
        room.multiply(room.first_rows(room.pack_transposed(a, *a.shape), count), x, 0, x.shape[1], out, 0)

    rng = np.random.default_rng(2)
    a, x = rng.normal(size=(9, 70)), rng.normal(size=(9, 30))
    for count in (1, 8, 13, 70):
        out = np.full((70, 30), 7.0)
        multiply(a, x, count, out)
        close(out[:count], (a.T @ x)[:count])
        assert (out[count:] == 7).all()


def test_solutions_with_a_triangle(room):
    """What is above its diagonal is not read; columns beside, and further rows, are left alone."""

    @njit
    def solve(lower, inverse, x, first, out, at):
        room.solve_lower(room.pack_solver(lower, inverse), x, first, x.shape[1] - first, out, at)

    for a, x in matrices():
        n = len(a)
        lower = np.tril(a) / n + np.eye(n, dtype=a.dtype)
        loose = np.where(np.tril(np.ones_like(a)) > 0, lower, np.nan).astype(a.dtype)
        inverse, expected = np.tril(np.linalg.inv(lower)), np.linalg.solve(lower, x)
        out = np.full((n + 1, x.shape[1] + 3), 7.0, a.dtype)
        solve(loose, inverse, x, 0, out, 2)
        close(out[:-1, 2:-1], expected)
        assert (out[-1] == 7).all()
        assert (out[:, [0, 1, -1]] == 7).all()
        own = x.copy()
        solve(loose, inverse, own, 1, own, 1)
        close(own, np.hstack([x[:, :1], expected[:, 1:]]))


def test_solutions_are_accurate_where_products_with_an_inverse_are_not(room):
    @njit
    def both(lower, inverse, x, solved, multiplied):
        room.solve_lower(room.pack_solver(lower, inverse), x, 0, x.shape[1], solved, 0)
        room.multiply(room.pack_lower(inverse), x, 0, x.shape[1], multiplied, 0)

    rng = np.random.default_rng(4)
    points, rows = rng.normal(size=(200, 2)), rng.normal(size=(60, 2))
    gram, cross = (np.exp(-0.1 * ((points[:, None] - other) ** 2).sum(-1)) for other in (points, rows))
    lower = np.linalg.cholesky(gram + 1e-6 * np.eye(200)).astype(np.float32)
    inverse = np.linalg.inv(lower.astype(np.float64)).astype(np.float32)
    x = cross.astype(np.float32)
    solved, multiplied = np.empty_like(x), np.empty_like(x)
    both(lower, inverse, x, solved, multiplied)
    exact = np.square(np.linalg.solve(lower.astype(np.float64), x)).sum(0)
    errors = [abs(np.square(own.astype(np.float64)).sum(0) - exact).max() for own in (solved, multiplied)]
    assert errors[0] < 0.1 * errors[1]


@pytest.mark.parametrize("half", [True, False], ids=["lower half", "all rows"])
def test_products_with_columns_of_a_triangle(room, half):
    """What is above their diagonals is left out, and by the lower half nothing is written there but in tiles of it."""

    @njit
    def multiply(a, x, first, count, out, at):
        room.multiply_lower(room.pack(a), x, first, count, out, at, half)

    for a, x in ((a, a[::-1].copy()) for a, _ in matrices()):
        # Zeros and not NaN: a panel is as long as its first column.
        lower, (first, count) = np.tril(x), (0, len(a)) if len(a) < 17 else (8, len(a) - 11)
        out = np.zeros((len(a), count + 2), a.dtype)
        multiply(a, lower, first, count, out, 1)
        expected = a @ lower[:, first : first + count]
        rows = np.arange(len(a))[:, None] >= np.arange(first, first + count) if half else np.ones(expected.shape, bool)
        close(np.where(rows, out[:, 1:-1], 0), np.where(rows, expected, 0))
        assert (out[:, [0, -1]] == 0).all()


@pytest.mark.parametrize("item", [4, 8])
def test_tiles_of_columns_that_are_not_stored_anew(room, item):
    @njit
    def width(item):
        return room.panel_width(item)

    @njit
    def add(left, start, panel, depth, out, top, count):
        room.add_tiles(left[0, start:].ctypes.data, left.shape[1], panel, depth, out, top, count)

    rng, dtype = np.random.default_rng(3), {4: np.float32, 8: np.float64}[item]
    left, panel = rng.normal(size=(20, 61)).astype(dtype), rng.normal(size=(20, width(item))).astype(dtype)
    # As many as whole tiles have may be read.
    for count in (1, 8, 19, 40):
        out = np.full((45, width(item)), 3.0, dtype)
        add(left, 5, panel, 15, out, 2, count)
        close(out[2 : 2 + count], 3 + left[:15, 5 : 5 + count].T @ panel[:15])
        assert (out[:2] == 3).all()
        assert (out[2 + count :] == 3).all()


def test_weighted_squares(room):
    @njit
    def add(total, x, scale, first, count):
        room.add_lower_half(total, x, scale, first, count)

    for a, x in matrices():
        n, columns = x.shape
        scale, first = np.sin(np.arange(columns) + 1).astype(a.dtype), columns // 3
        # There may be further rows, which are somebody else's.
        total, count, part = np.vstack([a, a]), columns - first, x[:, first:]
        add(total, x, scale, first, count)
        close(np.tril(total[:n]), np.tril(a + (part * scale[:count]) @ part.T))
        assert np.isfinite(total).all()
        assert (total[n:] == a).all()
