"""Cases: the decorator that gives a test function its identity, and what travels with it.

A case is one required property: a stable id ``area.property.slug`` (never reused), the clause it
stands for, the oracle it judges by and the witness without which its verdict does not count. The
axes it runs over are cells.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from types import CodeType
from typing import TypeVar, cast

from mtp_conformance.verdict import Inconclusive

Scalar = str | int | float | bool
Cells = Callable[[str], "Sequence[Cell]"]
_Function = TypeVar("_Function", bound=Callable[..., object])

_ATTRIBUTE = "__mtp_case__"
_PART = r"[a-z0-9]+(?:-[a-z0-9]+)*"
_ID = re.compile(rf"{_PART}\.{_PART}\.{_PART}")
_AXES = ("model", "strategy", "k", "accepted", "dtype", "prompt_length")
_PREFIXES = {"k": "k", "accepted": "a", "prompt_length": "p"}


class Level(str, Enum):
    """Whether a runtime that fails the case breaks a rule or ignores a recommendation."""

    MUST = "must"
    SHOULD = "should"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Cell:
    """One point of the axes a case runs over. Axes that a case does not have stay None."""

    model: str | None = None
    strategy: str | None = None
    k: int | None = None
    accepted: int | None = None
    dtype: str | None = None
    prompt_length: int | None = None
    extra: tuple[tuple[str, str | int], ...] = ()

    def __post_init__(self) -> None:
        names = [name for name, _ in self.extra]
        if len(set(names)) != len(names) or set(names) & set(_AXES):
            raise ValueError(f"extra axes {names} repeat a name of the cell")

    @property
    def params(self) -> dict[str, str | int]:
        """The axes that are set, by name, extra ones last."""
        axes = {name: cast("str | int | None", getattr(self, name)) for name in _AXES}
        return {name: value for name, value in axes.items() if value is not None} | dict(self.extra)

    @property
    def id(self) -> str:
        """A stable readable name, such as ``gdn-tape-k3-a1-float32-p7``."""
        return params_id(self.params)


def params_id(params: Mapping[str, Scalar]) -> str:
    """The readable name of a cell with these parameters; ``all`` when there are none."""
    return "-".join(_axis_id(name, value) for name, value in params.items()) or "all"


def _axis_id(name: str, value: Scalar) -> str:
    if name in _AXES:
        return f"{_PREFIXES.get(name, '')}{value}"
    return f"{name}-{value}"


@dataclass(frozen=True)
class Case:
    """What is known of a case before it runs."""

    id: str
    clause: str
    level: Level
    needs: tuple[str, ...]
    oracle: str
    witness: str
    faults: tuple[str, ...]
    since: str
    summary: str

    def __post_init__(self) -> None:
        if not _ID.fullmatch(self.id):
            raise ValueError(
                f"case id {self.id!r} is not area.property.slug: "
                "three dotted parts in lower case, words joined by hyphens"
            )

    @property
    def area(self) -> str:
        """The first part of the id."""
        return self.id.split(".", 1)[0]


@dataclass(frozen=True)
class Registration:
    """A case, the cells it runs over, and the place in the source that declares it."""

    case: Case
    cells: Cells | None
    origin: tuple[str, str, int]


_registry: dict[str, Registration] = {}


def case(  # noqa: PLR0913 - one keyword for each piece of metadata
    id: str,
    *,
    clause: str,
    level: str = "must",
    needs: tuple[str, ...] = (),
    oracle: str,
    witness: str,
    faults: tuple[str, ...] = (),
    since: str,
    cells: Cells | None = None,
) -> Callable[[_Function], _Function]:
    """Make a test function a case; ``cells`` maps a profile to the cells the case runs over.

    The summary is the first line of the function's docstring. Raises ValueError for an id of the
    wrong form, an id that another function has, an unknown level or a missing docstring.
    """

    def declare(function: _Function) -> _Function:
        declared = Case(
            id=id,
            clause=clause,
            level=Level(level),
            needs=tuple(needs),
            oracle=oracle,
            witness=witness,
            faults=tuple(faults),
            since=since,
            summary=_summary(id, function),
        )
        _register(function, Registration(declared, cells, _origin(function)))
        return function

    return declare


def registration_of(function: object) -> Registration | None:
    """The registration of a test function, None for a plain test."""
    return cast("Registration | None", getattr(function, _ATTRIBUTE, None))


def registered() -> tuple[Case, ...]:
    """Every case declared so far, by id."""
    return tuple(_registry[id].case for id in sorted(_registry))


def _register(function: Callable[..., object], registration: Registration) -> None:
    known = _registry.get(registration.case.id)
    if known is not None and known.origin != registration.origin:
        raise ValueError(
            f"case id {registration.case.id!r} belongs to {_place(known)} already; "
            f"{_place(registration)} needs another"
        )
    _registry[registration.case.id] = registration
    setattr(function, _ATTRIBUTE, registration)


def _summary(id: str, function: Callable[..., object]) -> str:
    lines = (function.__doc__ or "").strip().splitlines()
    if not lines:
        raise ValueError(f"case {id!r} needs a docstring: its first line is the summary")
    return lines[0].strip()


def _origin(function: Callable[..., object]) -> tuple[str, str, int]:
    """Where a function is written: the same for a second import of the same file."""
    name = getattr(function, "__qualname__", repr(function))
    code = cast("CodeType | None", getattr(function, "__code__", None))
    if code is None:
        return function.__module__, name, 0
    return code.co_filename, name, code.co_firstlineno


def _place(registration: Registration) -> str:
    file, name, line = registration.origin
    return f"{name} ({file}:{line})"


class Witness:
    """Counts what happened while a case ran, so that its verdict can be held to it."""

    def __init__(self) -> None:
        self._counts = {"drafted": 0, "accepted": 0, "rejected": 0, "compared": 0}

    def add(
        self,
        *,
        drafted: int = 0,
        accepted: int = 0,
        rejected: int = 0,
        compared: int = 0,
        **counts: int,
    ) -> None:
        """Add to the sums: draft tokens by fate, arrays compared, and counts of any other name."""
        counts |= {
            "drafted": drafted,
            "accepted": accepted,
            "rejected": rejected,
            "compared": compared,
        }
        for name, count in counts.items():
            self._counts[name] = self._counts.get(name, 0) + int(count)

    def require(self, **minimums: int) -> None:
        """Raise ``Inconclusive`` unless each count has reached its minimum."""
        short = [
            f"{name} {self._counts.get(name, 0)} of at least {minimum}"
            for name, minimum in minimums.items()
            if self._counts.get(name, 0) < minimum
        ]
        if short:
            raise Inconclusive(f"proves nothing: {', '.join(short)}")

    def as_dict(self) -> dict[str, int]:
        """All sums by name."""
        return dict(self._counts)
