"""A tile of a product, which stays in vector registers while it is added up, and transposes of small squares.

Neither is something that a compiler makes of loops, so they are written in the language of LLVM: with the widest
instructions of the processor, whoever has made it, and masks in place of cases at the edges.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, no_type_check

from llvmlite import binding, ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

__all__ = ["SHAPE", "Shape", "add_tile", "make_add_tile", "make_transpose", "transpose"]

WHOLE = ir.IntType(64)


class Shape(NamedTuple):
    """Of a tile: with its sums, one vector of each kind of column and one entry, it fills the registers."""

    vector_bytes: int
    rows: int
    vectors: int  # how many of them a row is wide; as many columns as that are a multiple of the rows


def _best_shape() -> Shape:
    """For the processor that this runs on."""
    try:
        features: dict[str, bool] = dict(binding.get_host_cpu_features())
    except RuntimeError:
        features = {}
    if features.get("avx512f"):
        return Shape(64, 8, 3)
    if features.get("avx2"):
        return Shape(32, 4, 3)
    return Shape(16, 4, 4) if features.get("neon") else Shape(16, 4, 2)


SHAPE = _best_shape()


@no_type_check
def make_add_tile(shape: Shape) -> Callable[..., Any]:
    """The function :func:`add_tile` for tiles of any shape."""

    @intrinsic
    def add_tile(typing_context, like, left, left_step, right, depth, out, step, rows, columns, add):
        """out ← Σ_k left_k right_kᵀ, and what was there if it is to ``add``.

        ``left`` is the address of as many numbers as a tile has rows for each of ``depth`` k, which are ``left_step``
        numbers apart, ``right`` of as many as it has columns, one after the other. Rows of ``out`` are ``step`` numbers
        apart; only the first ``rows`` and ``columns`` are read or written, of which there may be more than the tile
        has. ``like`` is any number of the type that all have.
        """

        def generate(context, builder, signature, values):
            number = context.get_value_type(signature.args[0])
            _write_add_tile(builder, _Vectors(builder, number, shape.vector_bytes), shape, *values[1:])
            return context.get_dummy_value()

        return types.none(like, *[types.int64] * 8, types.boolean), generate

    return add_tile


@no_type_check
def make_transpose(shape: Shape) -> Callable[..., Any]:
    """The function :func:`transpose` for vectors of any length."""

    @intrinsic
    def transpose(typing_context, like, x, step, out, out_step, rows, columns, filled):
        """out ← Xᵀ for a square with as many rows as a vector has entries.

        The first ``rows`` and ``columns`` of X are read, and as many rows of ``out`` are written as X has columns: of
        each the first ``filled`` entries, zeros where there are no rows of X.
        """

        def generate(context, builder, signature, values):
            number = context.get_value_type(signature.args[0])
            _write_transpose(builder, _Vectors(builder, number, shape.vector_bytes), *values[1:])
            return context.get_dummy_value()

        return types.none(like, *[types.int64] * 7), generate

    return transpose


class _Vectors:
    """What is done with vectors of one type."""

    def __init__(self, builder: Any, number: Any, n_bytes: int) -> None:
        self.builder, self.number = builder, number
        self.item, self.n_bytes = 4 if isinstance(number, ir.FloatType) else 8, n_bytes
        self.count = n_bytes // self.item
        self.type, self._mask = ir.VectorType(number, self.count), ir.VectorType(ir.IntType(1), self.count)
        self.zero = ir.Constant(self.type, [0.0] * self.count)
        self._name = f"v{self.count}f{8 * self.item}"

    def filled_with(self, value: Any) -> Any:
        """The same entry everywhere."""
        kind = ir.VectorType(value.type, self.count)
        first = self.builder.insert_element(ir.Constant(kind, ir.Undefined), value, ir.Constant(ir.IntType(32), 0))
        return self.shuffled(first, first, [0] * self.count)

    def shuffled(self, one: Any, other: Any, places: list[int]) -> Any:
        """Entries of both, those of the other one behind those of the one."""
        return self.builder.shuffle_vector(one, other, ir.Constant(ir.VectorType(ir.IntType(32), self.count), places))

    def before(self, stop: Any, start: int = 0) -> Any:
        """The mask of entries whose number, from ``start`` on, is below ``stop``."""
        numbers = ir.Constant(ir.VectorType(WHOLE, self.count), [start + place for place in range(self.count)])
        return self.builder.icmp_signed("<", numbers, self.filled_with(stop))

    def both(self, mask: Any, condition: Any) -> Any:
        """The mask, or nothing."""
        return self.builder.and_(mask, self.filled_with(condition))

    def load(self, address: Any, mask: Any) -> Any:
        """Zero where the mask is."""
        routine = self._routine("masked.load", self.type, self._pointer, ir.IntType(32), self._mask, self.type)
        return self.builder.call(routine, [self._at(address), self._alignment, mask, self.zero])

    def store(self, value: Any, address: Any, mask: Any) -> None:
        routine = self._routine("masked.store", ir.VoidType(), self.type, self._pointer, ir.IntType(32), self._mask)
        self.builder.call(routine, [value, self._at(address), self._alignment, mask])

    def load_all(self, address: Any) -> Any:
        return self.builder.load(self._at(address), align=self.item)

    def multiply_add(self, x: Any, y: Any, total: Any) -> Any:
        """x y + total, rounded once."""
        return self.builder.call(self._routine("fma", self.type, *[self.type] * 3), [x, y, total])

    @property
    def _pointer(self) -> Any:
        return self.type.as_pointer()

    @property
    def _alignment(self) -> Any:
        return ir.Constant(ir.IntType(32), self.item)

    def _at(self, address: Any) -> Any:
        return self.builder.inttoptr(address, self._pointer)

    def _routine(self, name: str, result: Any, *arguments: Any) -> Any:
        """One that LLVM has for vectors like these."""
        place = ".p0" if name.startswith("masked") else ""
        full_name = f"llvm.{name}.{self._name}{place}"
        return cgutils.get_or_insert_function(self.builder.module, ir.FunctionType(result, arguments), full_name)


def _plus(builder: Any, address: Any, n_bytes: int) -> Any:
    return builder.add(address, ir.Constant(WHOLE, n_bytes))


def _row(builder: Any, address: Any, number: int, step: Any, item: int) -> Any:
    """The address of a row of a matrix."""
    return builder.add(address, builder.mul(ir.Constant(WHOLE, number * item), step))


def _write_add_tile(
    builder: Any, vectors: _Vectors, shape: Shape, left: Any, left_step: Any, right: Any, depth: Any, *others: Any
) -> None:
    out, step, rows, columns, add = others
    places = [(row, column) for row in range(shape.rows) for column in range(shape.vectors)]
    # Where each vector of the tile is, and which of its entries count.
    addresses, masks = {}, {}
    for row, column in places:
        inside = builder.icmp_signed("<", ir.Constant(WHOLE, row), rows)
        masks[row, column] = vectors.both(vectors.before(columns, column * vectors.count), inside)
        start = _row(builder, out, row, step, vectors.item)
        addresses[row, column] = _plus(builder, start, column * vectors.n_bytes)
    sums = {place: vectors.load(addresses[place], vectors.both(masks[place], add)) for place in places}

    one, right_stride = (ir.Constant(WHOLE, number) for number in (1, shape.vectors * vectors.n_bytes))
    strides = one, builder.mul(ir.Constant(WHOLE, vectors.item), left_step), right_stride
    before, loop, after = builder.block, builder.append_basic_block(), builder.append_basic_block()
    nothing = ir.Constant(WHOLE, 0)
    builder.cbranch(builder.icmp_signed(">", depth, nothing), loop, after)
    builder.position_at_end(loop)
    moving = [(builder.phi(WHOLE), start) for start in (nothing, left, right)]
    totals = {place: builder.phi(vectors.type) for place in places}
    _, (left_at, _), (right_at, _) = moving
    beside = [vectors.load_all(_plus(builder, right_at, c * vectors.n_bytes)) for c in range(shape.vectors)]
    added = {}
    for row in range(shape.rows):
        entry = builder.inttoptr(_plus(builder, left_at, row * vectors.item), vectors.number.as_pointer())
        factor = vectors.filled_with(builder.load(entry))
        for column in range(shape.vectors):
            added[row, column] = vectors.multiply_add(factor, beside[column], totals[row, column])
    moved = [builder.add(value, stride) for (value, _), stride in zip(moving, strides, strict=True)]
    for (value, start), following in zip(moving, moved, strict=True):
        value.add_incoming(start, before)
        value.add_incoming(following, loop)
    for place in places:
        totals[place].add_incoming(sums[place], before)
        totals[place].add_incoming(added[place], loop)
    builder.cbranch(builder.icmp_signed("<", moved[0], depth), loop, after)

    builder.position_at_end(after)
    results = {place: builder.phi(vectors.type) for place in places}
    for place in places:
        results[place].add_incoming(sums[place], before)
        results[place].add_incoming(added[place], loop)
    for place in places:
        vectors.store(results[place], addresses[place], masks[place])


def _write_transpose(builder: Any, vectors: _Vectors, x: Any, step: Any, out: Any, out_step: Any, *limits: Any) -> None:
    rows, columns, filled = limits
    count, given = vectors.count, vectors.before(columns)
    lines = []
    for row in range(count):
        inside = builder.icmp_signed("<", ir.Constant(WHOLE, row), rows)
        lines.append(vectors.load(_row(builder, x, row, step, vectors.item), vectors.both(given, inside)))
    # Swap squares beside the diagonal: first half of a side long, at last single entries.
    distance = count // 2
    while distance:
        first = [j if not j & distance else count + j - distance for j in range(count)]
        second = [j + distance if not j & distance else count + j for j in range(count)]
        for row in range(count):
            if not row & distance:
                one, other = lines[row], lines[row + distance]
                lines[row] = vectors.shuffled(one, other, first)
                lines[row + distance] = vectors.shuffled(one, other, second)
        distance //= 2
    written = vectors.before(filled)
    for row, line in enumerate(lines):
        inside = builder.icmp_signed("<", ir.Constant(WHOLE, row), columns)
        vectors.store(line, _row(builder, out, row, out_step, vectors.item), vectors.both(written, inside))


add_tile, transpose = make_add_tile(SHAPE), make_transpose(SHAPE)
