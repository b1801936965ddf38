"""Bit operations that Python has no word for, as single instructions."""

# mypy: ignore-errors
# these are LLVM's instructions

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.extending import intrinsic


@intrinsic
def ones(typing, bits):
    """Count the bits that are set."""

    def emit(context, builder, signature, given):
        return builder.ctpop(given[0])

    return types.uint64(types.uint64), emit


@intrinsic
def lowest(typing, bits):
    """The place of the lowest bit that is set; 64 when none is."""

    def emit(context, builder, signature, given):
        return builder.cttz(given[0], ir.Constant(ir.IntType(1), 0))

    return types.uint64(types.uint64), emit
