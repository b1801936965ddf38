"""Bit operations that Python lacks, each compiled to a single instruction."""

# mypy: ignore-errors
# mypy cannot check functions that emit LLVM instructions

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.extending import intrinsic


@intrinsic
def ones(typing, bits):
    """Return the number of set bits."""

    def emit(context, builder, signature, given):
        return builder.ctpop(given[0])

    return types.uint64(types.uint64), emit


@intrinsic
def lowest(typing, bits):
    """Return the index of the lowest set bit, or 64 if no bit is set."""

    def emit(context, builder, signature, given):
        return builder.cttz(given[0], ir.Constant(ir.IntType(1), 0))

    return types.uint64(types.uint64), emit
