"""The one comparator: two arrays are equal when shape, dtype and every bit are.

``mx.array_equal`` is no comparator: it ignores dtype, holds +0.0 equal to -0.0 and NaN unequal to
itself. Here arrays are compared as bytes, and a difference is located by reading those bytes as
unsigned integers of the dtype's width. There is no tolerance.

The bytes come through the buffer protocol, which costs under a microsecond an array once it is
evaluated; ``array.view(uint16)`` would schedule one more graph node each time. The module needs the
standard library and mlx only, since a runtime's environment may hold no more.
"""

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal, cast

import mlx.core as mx

Value = bool | int | float | complex | str

_UNSIGNED: dict[int, Literal["B", "H", "I", "Q"]] = {1: "B", 2: "H", 4: "I", 8: "Q"}
_VALUE_FORMATS = {
    mx.bool_: "?",
    mx.uint8: "B",
    mx.uint16: "H",
    mx.uint32: "I",
    mx.uint64: "Q",
    mx.int8: "b",
    mx.int16: "h",
    mx.int32: "i",
    mx.int64: "q",
    mx.float16: "e",
    mx.float32: "f",
    mx.float64: "d",
}
_EXPONENT_BITS = {mx.float16: 5, mx.bfloat16: 8, mx.float32: 8, mx.float64: 11}
_LISTED = 6


class DifferenceKind(str, Enum):
    """Which of the three comparisons failed first."""

    SHAPE = "shape"
    DTYPE = "dtype"
    BITS = "bits"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Difference:
    """How one array differs from the one expected.

    For kinds ``shape`` and ``dtype``, ``actual`` and ``expected`` are those, as text, and every
    element counts as differing. For kind ``bits`` they are the values at ``index``, the first
    differing element in row-major order; ``ulp`` is their distance in representable values, None
    for anything but floats and for NaN. (+0.0 and -0.0 are 0 ULP apart and differ.)
    """

    kind: DifferenceKind
    actual: Value
    expected: Value
    differing: int
    total: int
    index: tuple[int, ...] | None = None
    actual_bits: str | None = None
    expected_bits: str | None = None
    ulp: int | None = None

    def __str__(self) -> str:
        if self.kind is not DifferenceKind.BITS:
            return f"{self.kind} {self.actual} vs {self.expected}"
        distance = "" if self.ulp is None else f" ({self.ulp} ULP)"
        return (
            f"{self.differing} of {self.total} elements, first at {self.index}: "
            f"{self.actual_bits} vs {self.expected_bits}{distance}"
        )


@dataclass(frozen=True)
class Comparison:
    """What comparing two states found; ``arrays`` and ``elements`` count the names both have.

    ``packed`` are those that hold quantised rows as whole numbers, ``wild`` those that differ in
    where they are finite.
    """

    arrays: int
    elements: int
    differences: tuple[tuple[str, Difference], ...]
    missing: tuple[str, ...]
    unexpected: tuple[str, ...]
    packed: frozenset[str] = frozenset()
    wild: frozenset[str] = frozenset()

    @property
    def differing(self) -> tuple[str, ...]:
        """Every name that differs: in its bits, by being absent, or by being there."""
        return tuple(name for name, _ in self.differences) + self.missing + self.unexpected

    @property
    def in_values(self) -> bool:
        """Whether all that differs are values of floats or of quantised rows."""
        if self.missing or self.unexpected or self.wild:
            return False
        return all(
            found.ulp is not None or (name in self.packed and found.kind is DifferenceKind.BITS)
            for name, found in self.differences
        )


class StateDiffers(AssertionError):
    """A state is not the one expected; the attributes say where it first went wrong.

    `rounding` is whether rounding can explain it: values differ, of floats or of quantised rows,
    and nothing else does. Counts, types, shapes, NaN and which arrays there are never do.
    """

    def __init__(
        self,
        message: str,
        *,
        layer: str,
        component: str,
        round: int | None,
        difference: Difference | None,
        differing: tuple[str, ...],
        rounding: bool = True,
    ) -> None:
        super().__init__(message)
        self.layer = layer
        self.component = component
        self.round = round
        self.difference = difference
        self.differing = differing
        self.rounding = rounding


class NothingCompared(Exception):
    """Both states are empty: a comparison of nothing is an error, never a verdict."""


def same_state(one: Mapping[str, mx.array], other: Mapping[str, mx.array]) -> bool:
    """Whether two states have the same arrays with the same bits."""
    return set(one) == set(other) and not compare_states(one, other).differing


def bits_equal(actual: mx.array, expected: mx.array) -> Difference | None:
    """Compare shape, then dtype, then bits. None when equal, else the first difference.

    Any shape, 0-d and 0-size included; every dtype of mlx.
    """
    if actual.shape != expected.shape:
        return _header_difference(
            DifferenceKind.SHAPE, actual, str(actual.shape), str(expected.shape)
        )
    if actual.dtype != expected.dtype:
        return _header_difference(
            DifferenceKind.DTYPE, actual, _dtype_name(actual.dtype), _dtype_name(expected.dtype)
        )
    actual_bytes, expected_bytes = _bytes(actual), _bytes(expected)
    if actual_bytes == expected_bytes:
        return None
    return _locate(actual_bytes, expected_bytes, tuple(actual.shape), actual.dtype)


def compare_states(actual: Mapping[str, mx.array], expected: Mapping[str, mx.array]) -> Comparison:
    """Compare two states name by name, in the order of ``expected``."""
    mx.eval(list(actual.values()), list(expected.values()))
    shared = [name for name in expected if name in actual]
    differences: list[tuple[str, Difference]] = []
    elements = 0
    for name in shared:
        elements += expected[name].size
        difference = bits_equal(actual[name], expected[name])
        if difference is not None:
            differences.append((name, difference))
    return Comparison(
        arrays=len(shared),
        elements=elements,
        differences=tuple(differences),
        missing=tuple(name for name in expected if name not in actual),
        unexpected=tuple(name for name in actual if name not in expected),
        packed=frozenset(name for name in expected if is_packed(name, expected)),
        wild=frozenset(
            name
            for name, found in differences
            if found.ulp is not None and _wild(actual[name], expected[name])
        ),
    )


def _wild(actual: mx.array, expected: mx.array) -> bool:
    """Whether one of two float arrays is finite where the other is not."""
    return bool(mx.any(mx.isfinite(actual) != mx.isfinite(expected)).item())


def is_packed(name: str, state: Mapping[str, mx.array]) -> bool:
    """Whether an array holds quantised rows as whole numbers: it has scales beside it."""
    return f"{name}_scales" in state


def require_equal(
    actual: Mapping[str, mx.array],
    expected: Mapping[str, mx.array],
    *,
    what: str,
    round: int | None = None,
) -> int:
    """Return how many arrays were compared, all bit-equal; ``what`` names the expected side.

    Raises ``StateDiffers`` where any array differs, is missing or was not expected, and
    ``NothingCompared`` where neither side holds a single element.
    """
    comparison = compare_states(actual, expected)
    if comparison.differing:
        raise _state_differs(comparison, what, round)
    if comparison.elements == 0:
        raise NothingCompared(
            f"proves nothing: compared no element with {what} ({comparison.arrays} arrays)"
        )
    return comparison.arrays


def split_name(name: str) -> tuple[str, str]:
    """Split an array's name into layer and component: "layers.3.keys" → ("layers.3", "keys")."""
    layer, _, component = name.rpartition(".")
    return layer, component


def _bytes(array: mx.array) -> bytes:
    return memoryview(cast("Any", array)).tobytes()


def _dtype_name(dtype: mx.Dtype) -> str:
    return str(dtype).removeprefix("mlx.core.")


def _header_difference(
    kind: DifferenceKind, array: mx.array, actual: str, expected: str
) -> Difference:
    return Difference(kind, actual, expected, differing=array.size, total=array.size)


def _locate(actual: bytes, expected: bytes, shape: tuple[int, ...], dtype: mx.Dtype) -> Difference:
    width = dtype.size
    actual_words = memoryview(actual).cast(_UNSIGNED[width])
    expected_words = memoryview(expected).cast(_UNSIGNED[width])
    places = [
        place
        for place, (a, b) in enumerate(zip(actual_words, expected_words, strict=True))
        if a != b
    ]
    actual_bits, expected_bits = actual_words[places[0]], expected_words[places[0]]
    return Difference(
        kind=DifferenceKind.BITS,
        actual=_value(actual_bits, dtype),
        expected=_value(expected_bits, dtype),
        differing=len(places),
        total=len(actual_words),
        index=_unravel(places[0], shape),
        actual_bits=f"0x{actual_bits:0{2 * width}x}",
        expected_bits=f"0x{expected_bits:0{2 * width}x}",
        ulp=_ulp_distance(actual_bits, expected_bits, dtype),
    )


def _unravel(place: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    index: list[int] = []
    for extent in reversed(shape):
        place, position = divmod(place, extent)
        index.append(position)
    return tuple(reversed(index))


def _value(bits: int, dtype: mx.Dtype) -> Value:
    """Read a bit pattern as a value; bfloat16 is the upper half of a float32."""
    if dtype == mx.bfloat16:
        return struct.unpack("=f", struct.pack("=I", bits << 16))[0]
    raw = struct.pack(f"={_UNSIGNED[dtype.size]}", bits)
    if dtype == mx.complex64:
        return complex(*struct.unpack("=ff", raw))
    return struct.unpack(f"={_VALUE_FORMATS[dtype]}", raw)[0]


def _ulp_distance(actual: int, expected: int, dtype: mx.Dtype) -> int | None:
    if dtype not in _EXPONENT_BITS or _is_nan(actual, dtype) or _is_nan(expected, dtype):
        return None
    return abs(_ordered(actual, dtype) - _ordered(expected, dtype))


def _ordered(bits: int, dtype: mx.Dtype) -> int:
    """Map a float's bits to an integer that grows with its value and counts representable ones."""
    sign = 1 << (8 * dtype.size - 1)
    return -(bits - sign) if bits & sign else bits


def _is_nan(bits: int, dtype: mx.Dtype) -> bool:
    magnitude_bits = 8 * dtype.size - 1
    exponent_bits = _EXPONENT_BITS[dtype]
    infinity = ((1 << exponent_bits) - 1) << (magnitude_bits - exponent_bits)
    return bits & ((1 << magnitude_bits) - 1) > infinity


def _state_differs(comparison: Comparison, what: str, round: int | None) -> StateDiffers:
    names = comparison.differing
    layer, component = split_name(names[0])
    difference = comparison.differences[0][1] if comparison.differences else None
    when = "" if round is None else f"after round {round}: "
    message = f"{when}{_spoken(names[0])} {_finding(comparison, names[0], what)}{_also(names[1:])}"
    return StateDiffers(
        message,
        layer=layer,
        component=component,
        round=round,
        difference=difference,
        differing=names,
        rounding=comparison.in_values,
    )


def _finding(comparison: Comparison, name: str, what: str) -> str:
    if comparison.differences:
        return f"differs from {what}: {comparison.differences[0][1]}"
    if name in comparison.missing:
        return f"is missing: {what} has it"
    return f"is unexpected: {what} has no such array"


def _also(names: tuple[str, ...]) -> str:
    if not names:
        return ""
    more = "" if len(names) <= _LISTED else f" and {len(names) - _LISTED} more"
    return f"; also: {_joined(names[:_LISTED])}{more}"


def _joined(names: Iterable[str]) -> str:
    return ", ".join(_spoken(name) for name in names)


def _spoken(name: str) -> str:
    return " ".join(part for part in split_name(name) if part)
