"""A number type for numba: 32 floats at once, as LLVM has it.

A loop over single floats is fast only if the compiler vectorizes it, which depends on what it can
prove about pointers and on the order of sums. A loop over vectors says both. 32 lanes are two
registers of AVX-512, four of AVX2 and eight of NEON: sums run in as many independent chains.

Memory is an address, an integer. The type of `kind` says what lies there: float32, or two bytes
that hold a bfloat16 (uint16) or a float16 (int16). Lanes beyond the first `k` are neither read nor
written; LLVM drops the mask where `k` is the constant `LANES`.
"""

from __future__ import annotations

import operator
from typing import Any, ClassVar

from llvmlite import ir
from numba import types
from numba.core import cgutils, codegen, config
from numba.core.typing.templates import ConcreteTemplate, infer_global, signature
from numba.extending import intrinsic, lower_builtin, models, register_model

LANES = 32

_FLOATS = ir.VectorType(ir.FloatType(), LANES)
_DOUBLES = ir.VectorType(ir.DoubleType(), LANES)
_INTS = ir.VectorType(ir.IntType(32), LANES)
_SHORTS = ir.VectorType(ir.IntType(16), LANES)
_HALVES = ir.VectorType(ir.HalfType(), LANES)
_MASK = ir.VectorType(ir.IntType(1), LANES)


def cpu_features() -> set[str]:
    """What the processor that is compiled for can do, as LLVM names it."""
    features = config.CPU_FEATURES
    if features is None:
        features = codegen.get_host_cpu_features()
    return {name[1:] for name in features.split(",") if name.startswith("+")}


class _BFloat(ir.Type):
    """LLVM's bfloat16, which llvmlite lacks."""

    def _to_string(self) -> str:
        return "bfloat"


# Elsewhere LLVM rounds by calling functions that numba does not link.
_ROUNDS = "avx512bf16" in cpu_features()


class _Vector(types.Type):
    def __init__(self) -> None:
        super().__init__(name=f"Vector{LANES}")


vector = _Vector()


@register_model(_Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, dmm: Any, fe_type: Any) -> None:
        super().__init__(dmm, fe_type, _FLOATS)


def _constant(kind: ir.VectorType, value: int | float) -> ir.Constant:
    return ir.Constant(kind, [value] * LANES)


def _declare(builder: Any, name: str, result: Any, arguments: list[Any]) -> Any:
    return cgutils.get_or_insert_function(builder.module, ir.FunctionType(result, arguments), name)


def _splat(builder: Any, scalar: Any, kind: ir.VectorType) -> Any:
    single = builder.insert_element(ir.Constant(kind, ir.Undefined), scalar, ir.IntType(32)(0))
    return builder.shuffle_vector(single, single, ir.Constant(_INTS, [0] * LANES))


def _mask(builder: Any, k: Any) -> Any:
    lanes = ir.Constant(_INTS, list(range(LANES)))
    return builder.icmp_signed("<", lanes, _splat(builder, builder.trunc(k, ir.IntType(32)), _INTS))


def _pointer(builder: Any, base: Any, i: Any, element: Any) -> Any:
    return builder.gep(builder.inttoptr(base, element.as_pointer()), [i])


def _element(kind: Any) -> tuple[ir.Type, ir.VectorType, int]:
    if kind == types.float32:
        return ir.FloatType(), _FLOATS, 4
    return ir.IntType(16), _SHORTS, 2


_SUFFIX = {4: "f32", 2: "i16", 8: "f64"}


def _load(builder: Any, base: Any, i: Any, k: Any, element: Any, vec: Any, size: int) -> Any:
    pointer = builder.bitcast(_pointer(builder, base, i, element), vec.as_pointer())
    name = f"llvm.masked.load.v{LANES}{_SUFFIX[size]}.p0"
    function = _declare(builder, name, vec, [pointer.type, ir.IntType(32), _MASK, vec])
    zeros = ir.Constant(vec, None)
    return builder.call(function, [pointer, ir.IntType(32)(size), _mask(builder, k), zeros])


def _store(
    builder: Any, base: Any, i: Any, k: Any, value: Any, element: Any, vec: Any, size: int
) -> None:
    pointer = builder.bitcast(_pointer(builder, base, i, element), vec.as_pointer())
    name = f"llvm.masked.store.v{LANES}{_SUFFIX[size]}.p0"
    arguments = [vec, pointer.type, ir.IntType(32), _MASK]
    function = _declare(builder, name, ir.VoidType(), arguments)
    builder.call(function, [value, pointer, ir.IntType(32)(size), _mask(builder, k)])


def _widen(builder: Any, kind: Any, value: Any) -> Any:
    if kind == types.float32:
        return value
    if kind == types.int16:
        return builder.fpext(builder.bitcast(value, _HALVES), _FLOATS)
    high = builder.shl(builder.zext(value, _INTS), _constant(_INTS, 16))
    return builder.bitcast(high, _FLOATS)


def _narrow(builder: Any, kind: Any, value: Any) -> Any:
    if kind == types.float32:
        return value
    if kind == types.int16:
        return builder.bitcast(builder.fptrunc(value, _HALVES), _SHORTS)
    if _ROUNDS:  # as below, but for numbers below 1.2e-38, which become 0
        return builder.bitcast(builder.fptrunc(value, ir.VectorType(_BFloat(), LANES)), _SHORTS)
    # round to nearest, ties to even; a NaN stays one, whatever its lower bits
    bits = builder.bitcast(value, _INTS)
    odd = builder.and_(builder.lshr(bits, _constant(_INTS, 16)), _constant(_INTS, 1))
    rounded = builder.add(bits, builder.add(odd, _constant(_INTS, 0x7FFF)))
    is_nan = builder.fcmp_unordered("uno", value, value)
    chosen = builder.select(is_nan, _constant(_INTS, 0x7FC00000), rounded)
    return builder.trunc(builder.lshr(chosen, _constant(_INTS, 16)), _SHORTS)


@intrinsic
def load(context: Any, kind: Any, base: Any, i: Any, k: Any) -> Any:
    """The first k numbers from element i on, and zeros."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        _, base, i, k = args
        return _widen(builder, kind, _load(builder, base, i, k, *_element(kind)))

    return vector(kind, types.int64, types.int64, types.int64), generate


@intrinsic
def store(context: Any, kind: Any, base: Any, i: Any, k: Any, value: Any) -> Any:
    """Write the first k lanes to element i and those behind it."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        _, base, i, k, value = args
        _store(builder, base, i, k, _narrow(builder, kind, value), *_element(kind))

    return types.void(kind, types.int64, types.int64, types.int64, vector), generate


@intrinsic
def stream(context: Any, kind: Any, base: Any, i: Any, value: Any) -> Any:
    """Write all lanes past the cache; the address must be a multiple of 64 bytes."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        _, base, i, value = args
        element, vec, _ = _element(kind)
        pointer = builder.bitcast(_pointer(builder, base, i, element), vec.as_pointer())
        done = builder.store(_narrow(builder, kind, value), pointer, align=64)
        one = builder.module.add_metadata([ir.IntType(32)(1)])
        done.set_metadata("nontemporal", one)

    return types.void(kind, types.int64, types.int64, vector), generate


@intrinsic
def fetch(context: Any, kind: Any, base: Any, i: Any) -> Any:
    """Ask for the numbers from element i on, to be in the second cache when they are read."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        _, base, i = args
        element, _, size = _element(kind)
        start = builder.bitcast(_pointer(builder, base, i, element), ir.IntType(8).as_pointer())
        number = ir.IntType(32)
        arguments = [start.type, number, number, number]
        function = _declare(builder, "llvm.prefetch.p0", ir.VoidType(), arguments)
        for offset in range(0, LANES * size, 64):
            line = builder.gep(start, [ir.IntType(64)(offset)])
            builder.call(function, [line, number(0), number(2), number(1)])

    return types.void(kind, types.int64, types.int64), generate


@intrinsic
def finish_streams(context: Any) -> Any:
    """Make streamed stores visible to other threads."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        builder.fence("seq_cst")

    return types.void(), generate


@intrinsic
def add_double(context: Any, base: Any, i: Any, k: Any, value: Any) -> Any:
    """Add the first k lanes to the float64 numbers at element i and behind it."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        base, i, k, value = args
        place = (ir.DoubleType(), _DOUBLES, 8)
        old = _load(builder, base, i, k, *place)
        new = builder.fadd(old, builder.fpext(value, _DOUBLES))
        _store(builder, base, i, k, new, *place)

    return types.void(types.int64, types.int64, types.int64, vector), generate


@intrinsic
def spread(context: Any, scalar: Any) -> Any:
    """The same number in all lanes."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return _splat(builder, args[0], _FLOATS)

    return vector(types.float32), generate


@intrinsic
def keep(context: Any, value: Any, k: Any) -> Any:
    """The first k lanes, and zeros."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.select(_mask(builder, args[1]), args[0], ir.Constant(_FLOATS, None))

    return vector(vector, types.int64), generate


@intrinsic
def fma(context: Any, a: Any, b: Any, c: Any) -> Any:
    """a * b + c, with one rounding where the processor can."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        name = f"llvm.fmuladd.v{LANES}f32"
        return builder.call(_declare(builder, name, _FLOATS, [_FLOATS] * 3), args)

    return vector(vector, vector, vector), generate


@intrinsic
def total(context: Any, value: Any) -> Any:
    """Sum of all lanes, in pairs, in float64."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        value, lanes = builder.fpext(args[0], _DOUBLES), LANES
        while lanes > 1:
            lanes //= 2
            kind = ir.VectorType(ir.IntType(32), lanes)
            low, high = (
                builder.shuffle_vector(
                    value, value, ir.Constant(kind, list(range(start, start + lanes)))
                )
                for start in (0, lanes)
            )
            value = builder.fadd(low, high)
        return builder.extract_element(value, ir.IntType(32)(0))

    return types.float64(vector), generate


def _arithmetic(symbol: Any, name: str) -> None:
    @infer_global(symbol)
    class _Typing(ConcreteTemplate):
        cases: ClassVar[list[Any]] = [signature(vector, vector, vector)]

    @lower_builtin(symbol, vector, vector)
    def _lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return getattr(builder, name)(*args)


for _symbol, _name in (
    (operator.add, "fadd"),
    (operator.iadd, "fadd"),
    (operator.sub, "fsub"),
    (operator.mul, "fmul"),
):
    _arithmetic(_symbol, _name)


@intrinsic
def read(context: Any, base: Any, i: Any) -> Any:
    """The float32 at element i."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.load(_pointer(builder, *args, ir.FloatType()), align=4)

    return types.float32(types.int64, types.int64), generate


@intrinsic
def write(context: Any, base: Any, i: Any, value: Any) -> Any:
    """Write a float32 to element i."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        base, i, value = args
        builder.store(value, _pointer(builder, base, i, ir.FloatType()), align=4)

    return types.void(types.int64, types.int64, types.float32), generate


@intrinsic
def add_number(context: Any, base: Any, i: Any, value: Any) -> Any:
    """Add to the float64 at element i."""

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        base, i, value = args
        pointer = _pointer(builder, base, i, ir.DoubleType())
        builder.store(builder.fadd(builder.load(pointer, align=8), value), pointer, align=8)

    return types.void(types.int64, types.int64, types.float64), generate
