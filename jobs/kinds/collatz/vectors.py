"""Numba type for vectors of eight 64-bit integers in AVX-512 registers, and operations on these vectors.

numba's own vectorizer can neither compress vectors nor look up tables in registers. Each operation below takes one or
two instructions. Callers must check `available()` first, because LLVM ends the process on CPUs without AVX-512 VBMI2.
"""

# mypy: ignore-errors
# mypy cannot check numba's typing rules and functions that emit LLVM instructions

from __future__ import annotations

from functools import lru_cache

from llvmlite import ir
from numba import types
from numba.core.registry import cpu_target
from numba.extending import intrinsic, models, register_model

#: Number of integers in a vector.
WIDTH = 8
#: Mask of the lowest words of 16 bits of the elements of a vector.
SHORT_WORDS = 0x11111111
NEEDED = ("avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512vbmi2")

_I1, _I8, _I32, _I64 = ir.IntType(1), ir.IntType(8), ir.IntType(32), ir.IntType(64)
_LANES, _MASK = ir.VectorType(_I64, WIDTH), ir.VectorType(_I1, WIDTH)
_BYTES, _BYTE_MASK = ir.VectorType(_I8, 64), ir.VectorType(_I1, 64)


@lru_cache
def available() -> bool:
    """Return True if numba compiles code for a CPU that has the required AVX-512 instructions."""
    _, _, features = cpu_target.target_context.codegen().magic_tuple()
    return {f"+{feature}" for feature in NEEDED} <= set(features.split(","))


class Lanes(types.Type):
    """Numba type of eight unsigned 64-bit integers in a register."""

    def __init__(self) -> None:
        super().__init__(name="CollatzLanes")


class Bytes(types.Type):
    """Numba type of 64 bytes in a register."""

    def __init__(self) -> None:
        super().__init__(name="CollatzBytes")


@register_model(Lanes)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager, kind) -> None:
        super().__init__(manager, kind, _LANES)


@register_model(Bytes)
class _BytesModel(models.PrimitiveModel):
    def __init__(self, manager, kind) -> None:
        super().__init__(manager, kind, _BYTES)


LANES, BYTES = Lanes(), Bytes()


def _address(context, builder, array_type, array, index, pointee):
    """Return the address of element `index` of a contiguous array as a pointer to `pointee`."""
    data = context.make_array(array_type)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [index]), pointee.as_pointer())


def _call(builder, name, result, arguments):
    function = builder.module.globals.get(name)
    if function is None:
        function = ir.Function(builder.module, ir.FunctionType(result, [given.type for given in arguments]), name)
    return builder.call(function, arguments)


def _mask(builder, bits):
    return builder.bitcast(builder.trunc(bits, _I8), _MASK)


@intrinsic
def load(typing, array, index):
    """Load eight elements of a uint64 array into a vector, starting at `index`."""

    def emit(context, builder, signature, given):
        return builder.load(_address(context, builder, signature.args[0], *given, _LANES), align=8)

    return LANES(array, types.intp), emit


@intrinsic
def store(typing, array, index, lanes):
    """Store a vector into eight elements of a uint64 array, starting at `index`."""

    def emit(context, builder, signature, given):
        builder.store(given[2], _address(context, builder, signature.args[0], *given[:2], _LANES), align=8)
        return context.get_dummy_value()

    return types.none(array, types.intp, lanes), emit


@intrinsic
def load_bytes(typing, array, index):
    """Load 64 elements of a uint8 array into a register, starting at `index`."""

    def emit(context, builder, signature, given):
        return builder.load(_address(context, builder, signature.args[0], *given, _BYTES), align=1)

    return BYTES(array, types.intp), emit


@intrinsic
def store_bytes(typing, array, index, content):
    """Store a register of 64 bytes into a uint8 array, starting at `index`."""

    def emit(context, builder, signature, given):
        builder.store(given[2], _address(context, builder, signature.args[0], *given[:2], _BYTES), align=1)
        return context.get_dummy_value()

    return types.none(array, types.intp, content), emit


@intrinsic
def widen(typing, array, index):
    """Load eight elements of a uint8 array into a vector of 64-bit integers, starting at `index`."""
    eight = ir.VectorType(_I8, WIDTH)

    def emit(context, builder, signature, given):
        address = _address(context, builder, signature.args[0], *given, eight)
        return builder.zext(builder.load(address, align=1), _LANES)

    return LANES(array, types.intp), emit


@intrinsic
def splat(typing, value):
    """Return a vector whose elements all have this value."""

    def emit(context, builder, signature, given):
        nothing = ir.Constant(_LANES, ir.Undefined)
        first = builder.insert_element(nothing, given[0], ir.Constant(_I32, 0))
        return builder.shuffle_vector(first, nothing, ir.Constant(ir.VectorType(_I32, WIDTH), [0] * WIDTH))

    return LANES(types.uint64), emit


def _binary(operation):
    @intrinsic
    def lanewise(typing, left, right):
        def emit(context, builder, signature, given):
            return getattr(builder, operation)(*given)

        return LANES(LANES, LANES), emit

    return lanewise


add, sub, mul = _binary("add"), _binary("sub"), _binary("mul")
both, either = _binary("and_"), _binary("or_")
#: Shifts of each element by the number of bits in the same element of a second vector, which must be below 64.
down, up = _binary("lshr"), _binary("shl")


@intrinsic
def below(typing, left, right):
    """Return a bit mask of the elements with left < right."""

    def emit(context, builder, signature, given):
        return builder.zext(builder.bitcast(builder.icmp_unsigned("<", *given), _I8), _I64)

    return types.uint64(LANES, LANES), emit


@intrinsic
def same(typing, left, right):
    """Return a bit mask of the elements with left == right."""

    def emit(context, builder, signature, given):
        return builder.zext(builder.bitcast(builder.icmp_unsigned("==", *given), _I8), _I64)

    return types.uint64(LANES, LANES), emit


@intrinsic
def keep(typing, bits, lanes):
    """Set the elements of a vector to 0 if their bit in the mask is not set."""

    def emit(context, builder, signature, given):
        return builder.select(_mask(builder, given[0]), given[1], ir.Constant(_LANES, [0] * WIDTH))

    return LANES(types.uint64, LANES), emit


@intrinsic
def choose(typing, bits, lanes, others):
    """Select elements from `lanes` if their bit in the mask is set, and otherwise from `others`."""

    def emit(context, builder, signature, given):
        return builder.select(_mask(builder, given[0]), given[1], given[2])

    return LANES(types.uint64, LANES, LANES), emit


@intrinsic
def squeeze(typing, bits, lanes):
    """Move the elements whose bit in the mask is set to the front; the remaining elements are undefined."""

    def emit(context, builder, signature, given):
        arguments = [given[1], ir.Constant(_LANES, ir.Undefined), _mask(builder, given[0])]
        return _call(builder, "llvm.x86.avx512.mask.compress.v8i64", _LANES, arguments)

    return LANES(types.uint64, LANES), emit


@intrinsic
def squeeze_bytes(typing, bits, content):
    """Move the bytes whose bit in the mask is set to the front; the remaining bytes are undefined."""

    def emit(context, builder, signature, given):
        arguments = [given[1], ir.Constant(_BYTES, ir.Undefined), builder.bitcast(given[0], _BYTE_MASK)]
        return _call(builder, "llvm.x86.avx512.mask.compress.v64i8", _BYTES, arguments)

    return BYTES(types.uint64, BYTES), emit


@intrinsic
def pick(typing, first, index, second):
    """Look up each element of `index`, modulo 16, in a table of 16 integers that two registers contain."""

    def emit(context, builder, signature, given):
        return _call(builder, "llvm.x86.avx512.vpermi2var.q.512", _LANES, list(given))

    return LANES(LANES, LANES, LANES), emit


@intrinsic
def pick_short(typing, first, index, second, words):
    """Look up each element of `index`, modulo 64, in a table of 64 integers of 16 bits that two registers contain.

    `words` must be SHORT_WORDS, the mask of the words of 16 bits that contain results. As a constant, LLVM would use
    one more instruction for it.
    """
    shorts = ir.VectorType(ir.IntType(16), 4 * WIDTH)

    def emit(context, builder, signature, given):
        arguments = [builder.bitcast(each, shorts) for each in given[:3]]
        found = _call(builder, "llvm.x86.avx512.vpermi2var.hi.512", shorts, arguments)
        mask = builder.bitcast(builder.trunc(given[3], _I32), ir.VectorType(_I1, 4 * WIDTH))
        found = builder.select(mask, found, ir.Constant(shorts, [0] * 4 * WIDTH))
        return builder.bitcast(found, _LANES)

    return LANES(LANES, LANES, LANES, types.uint64), emit


@intrinsic
def product(typing, left, right):
    """Multiply the lower 32 bits of the elements of two vectors."""
    low_half = ir.Constant(_LANES, [2**32 - 1] * WIDTH)

    def emit(context, builder, signature, given):
        return builder.mul(*(builder.and_(side, low_half) for side in given))

    return LANES(LANES, LANES), emit


@intrinsic
def iota(typing):
    """Return the vector 0, 1, ..., 7."""

    def emit(context, builder, signature, given):
        return ir.Constant(_LANES, list(range(WIDTH)))

    return LANES(), emit
