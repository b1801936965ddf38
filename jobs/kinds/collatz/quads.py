"""Numba type for vectors of four 64-bit integers in AVX2 registers, and operations on these vectors.

A comparison returns elements of all ones or all zeros. Callers must check `available()` first, because LLVM ends the
process on CPUs without AVX2.
"""

# mypy: ignore-errors
# mypy cannot check numba's typing rules and functions that emit LLVM instructions

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.registry import cpu_target
from numba.extending import intrinsic, models, register_model

#: Number of integers in a vector.
WIDTH = 4
NEEDED = ("avx2", "popcnt", "lzcnt", "bmi")

_I1, _I8, _I32, _I64 = ir.IntType(1), ir.IntType(8), ir.IntType(32), ir.IntType(64)
_LANES, _MASK, _HALVES = ir.VectorType(_I64, WIDTH), ir.VectorType(_I1, WIDTH), ir.VectorType(_I32, 2 * WIDTH)
_DOUBLE, _DOUBLES = ir.DoubleType(), ir.VectorType(ir.DoubleType(), WIDTH)
_NOTHING, _LOW_HALF = ir.Constant(_LANES, [0] * WIDTH), ir.Constant(_LANES, [2**32 - 1] * WIDTH)


class Orders(NamedTuple):
    """Tables for permuting the elements of vectors and for listing set bits."""

    #: For each 4-bit mask, the permutation that moves the elements whose bit is set to the front.
    squeezes: Any
    #: For each 4-bit mask, the permutation that moves the elements whose bit is set to the end, in reverse order.
    partitions: Any
    #: For each count 0..4, a vector whose first `count` elements are all ones and whose other elements are 0.
    firsts: Any
    #: For each byte, the indexes of its set bits, packed as bytes of a word.
    places: Any
    #: The indexes of the elements of a vector: 0, 1, 2, 3.
    lanes: Any


@lru_cache
def available() -> bool:
    """Return True if numba compiles code for a CPU that has the required AVX2 instructions."""
    _, _, features = cpu_target.target_context.codegen().magic_tuple()
    return {f"+{feature}" for feature in NEEDED} <= set(features.split(","))


@lru_cache
def orders() -> Orders:
    squeezes, partitions, places = (
        np.zeros((16, 8), np.uint32),
        np.zeros((16, 8), np.uint32),
        np.zeros((256, 8), np.uint8),
    )
    for mask in range(16):
        chosen = [lane for lane in range(WIDTH) if mask >> lane & 1]
        others = [lane for lane in range(WIDTH) if not mask >> lane & 1]
        squeezes[mask, : 2 * len(chosen)] = _halves(chosen)
        partitions[mask] = _halves(others + chosen[::-1])
    for byte in range(256):
        found = [bit for bit in range(8) if byte >> bit & 1]
        places[byte, : len(found)] = found
    firsts = np.array([2**64 - 1] * WIDTH + [0] * WIDTH, np.uint64)
    firsts = np.concatenate([firsts[WIDTH - count :][:WIDTH] for count in range(WIDTH + 1)])
    return Orders(
        squeezes=squeezes.ravel(),
        partitions=partitions.ravel(),
        firsts=firsts,
        places=places.view(np.uint64).ravel(),
        lanes=np.arange(WIDTH, dtype=np.uint64),
    )


def _halves(lanes: list[int]) -> list[int]:
    return [half for lane in lanes for half in (2 * lane, 2 * lane + 1)]


class Quad(types.Type):
    """Numba type of four unsigned 64-bit integers in a register."""

    def __init__(self) -> None:
        super().__init__(name="CollatzQuad")


@register_model(Quad)
class _QuadModel(models.PrimitiveModel):
    def __init__(self, manager, kind) -> None:
        super().__init__(manager, kind, _LANES)


QUAD = Quad()


def _address(context, builder, array_type, array, index, pointee):
    """Return the address of element `index` of a contiguous array as a pointer to `pointee`."""
    data = context.make_array(array_type)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [index]), pointee.as_pointer())


@intrinsic
def load(typing, array, index):
    """Load four elements of a uint64 array into a vector, starting at `index`."""

    def emit(context, builder, signature, given):
        return builder.load(_address(context, builder, signature.args[0], *given, _LANES), align=8)

    return QUAD(array, types.intp), emit


@intrinsic
def store(typing, array, index, lanes):
    """Store a vector into four elements of a uint64 array, starting at `index`."""

    def emit(context, builder, signature, given):
        builder.store(given[2], _address(context, builder, signature.args[0], *given[:2], _LANES), align=8)
        return context.get_dummy_value()

    return types.none(array, types.intp, lanes), emit


@intrinsic
def store_word(typing, array, index, word):
    """Store the eight bytes of a word into a uint8 array, lowest byte first, starting at `index`."""

    def emit(context, builder, signature, given):
        builder.store(given[2], _address(context, builder, signature.args[0], *given[:2], _I64), align=1)
        return context.get_dummy_value()

    return types.none(array, types.intp, types.uint64), emit


@intrinsic
def widen(typing, array, index):
    """Load four elements of a uint8 array into a vector of 64-bit integers, starting at `index`."""
    four = ir.VectorType(_I8, WIDTH)

    def emit(context, builder, signature, given):
        address = _address(context, builder, signature.args[0], *given, four)
        return builder.zext(builder.load(address, align=1), _LANES)

    return QUAD(array, types.intp), emit


def _gathered(builder, data, first):
    """Load table elements indexed by the lowest bytes of four words, starting at address `first`.

    The empty assembly keeps LLVM from extracting the bytes from a register, which takes two instructions each. Loads of
    floating-point values combine two elements into a pair without further instructions.
    """
    bytewise = ir.FunctionType(first.type, [first.type])
    first = builder.asm(bytewise, "", "=r,0", [first], side_effect=False)
    data, found = builder.bitcast(data, _DOUBLE.as_pointer()), ir.Constant(_DOUBLES, ir.Undefined)
    for lane in range(WIDTH):
        byte = builder.load(builder.gep(first, [ir.Constant(_I64, 8 * lane)]), align=1)
        element = builder.load(builder.gep(data, [builder.zext(byte, _I64)]), align=8)
        found = builder.insert_element(found, element, ir.Constant(_I32, lane))
    return builder.bitcast(found, _LANES)


@intrinsic
def lookup(typing, table, lanes):
    """Look up the lowest byte of each element of a vector in a uint64 table of 256 entries.

    The bytes are passed through memory.
    """

    def emit(context, builder, signature, given):
        scratch = cgutils.alloca_once(builder, _LANES)
        scratch.align = 32
        builder.store(given[1], scratch, align=32)
        data = context.make_array(signature.args[0])(context, builder, given[0]).data
        return _gathered(builder, data, builder.bitcast(scratch, _I8.as_pointer()))

    return QUAD(table, QUAD), emit


@intrinsic
def lookup_at(typing, table, array, index):
    """Look up the lowest bytes of four elements of `array`, starting at `index`, in a uint64 table of 256 entries."""

    def emit(context, builder, signature, given):
        data = context.make_array(signature.args[0])(context, builder, given[0]).data
        return _gathered(builder, data, _address(context, builder, signature.args[1], *given[1:], _I8))

    return QUAD(table, array, types.intp), emit


@intrinsic
def lookup_nine_at(typing, table, array, index):
    """Look up the lowest nine bits of four elements of `array`, starting at `index`, in a uint64 table."""
    nine_bits = ir.Constant(_I64, 511)

    def emit(context, builder, signature, given):
        data = context.make_array(signature.args[0])(context, builder, given[0]).data
        data, found = builder.bitcast(data, _DOUBLE.as_pointer()), ir.Constant(_DOUBLES, ir.Undefined)
        first = _address(context, builder, signature.args[1], *given[1:], _I64)
        first = builder.asm(ir.FunctionType(first.type, [first.type]), "", "=r,0", [first], side_effect=False)
        for lane in range(WIDTH):
            number = builder.load(builder.gep(first, [ir.Constant(_I64, lane)]), align=8)
            element = builder.load(builder.gep(data, [builder.and_(number, nine_bits)]), align=8)
            found = builder.insert_element(found, element, ir.Constant(_I32, lane))
        return builder.bitcast(found, _LANES)

    return QUAD(table, array, types.intp), emit


@intrinsic
def splat(typing, value):
    """Return a vector whose elements all have this value."""

    def emit(context, builder, signature, given):
        nothing = ir.Constant(_LANES, ir.Undefined)
        first = builder.insert_element(nothing, given[0], ir.Constant(_I32, 0))
        return builder.shuffle_vector(first, nothing, ir.Constant(ir.VectorType(_I32, WIDTH), [0] * WIDTH))

    return QUAD(types.uint64), emit


def _binary(operation):
    @intrinsic
    def lanewise(typing, left, right):
        def emit(context, builder, signature, given):
            return getattr(builder, operation)(*given)

        return QUAD(QUAD, QUAD), emit

    return lanewise


add, sub = _binary("add"), _binary("sub")
both, either = _binary("and_"), _binary("or_")
#: Shifts of each element by the number of bits in the same element of a second vector, which must be below 64.
down, up = _binary("lshr"), _binary("shl")


@intrinsic
def product(typing, left, right):
    """Multiply the lower 32 bits of the elements of two vectors."""

    def emit(context, builder, signature, given):
        return builder.mul(*(builder.and_(side, _LOW_HALF) for side in given))

    return QUAD(QUAD, QUAD), emit


def _comparison(emit_it):
    @intrinsic
    def compare(typing, left, right):
        def emit(context, builder, signature, given):
            return builder.sext(emit_it(builder, *given), _LANES)

        return QUAD(QUAD, QUAD), emit

    return compare


#: Element-wise left < right for unsigned and for signed integers; the signed comparison takes one instruction less.
below = _comparison(lambda builder, left, right: builder.icmp_unsigned("<", left, right))
below_signed = _comparison(lambda builder, left, right: builder.icmp_signed("<", left, right))
same = _comparison(lambda builder, left, right: builder.icmp_unsigned("==", left, right))


@intrinsic
def bits(typing, lanes):
    """Return the highest bit of each element of a vector as a bit mask."""

    def emit(context, builder, signature, given):
        return builder.zext(builder.bitcast(builder.icmp_signed("<", given[0], _NOTHING), ir.IntType(WIDTH)), _I64)

    return types.uint64(QUAD), emit


@intrinsic
def choose(typing, mask, lanes, others):
    """Select elements from `lanes` if the element of the mask is all ones, and otherwise from `others`."""

    def emit(context, builder, signature, given):
        return builder.select(builder.icmp_signed("<", given[0], _NOTHING), given[1], given[2])

    return QUAD(QUAD, QUAD, QUAD), emit


@intrinsic
def squeeze(typing, moves, mask, lanes):
    """Permute the elements of a vector by the row of a mask in `Orders.squeezes` or `Orders.partitions`."""

    def emit(context, builder, signature, given):
        index = builder.shl(given[1], ir.Constant(_I64, 3))
        order = builder.load(_address(context, builder, signature.args[0], given[0], index, _HALVES), align=4)
        name = "llvm.x86.avx2.permd"
        function = builder.module.globals.get(name)
        if function is None:
            function = ir.Function(builder.module, ir.FunctionType(_HALVES, [_HALVES, _HALVES]), name)
        return builder.bitcast(builder.call(function, [builder.bitcast(given[2], _HALVES), order]), _LANES)

    return QUAD(moves, types.uint64, QUAD), emit
