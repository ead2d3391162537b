"""Reading TOML files of entries, with errors that say which file, entry and field is wrong.

The suite's lists (faults, clauses, known failures) are arrays of tables. Each is read through a
`Table`, which checks types, and refuses what it was not asked for.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import TypeVar, cast

import tomllib

_Choice = TypeVar("_Choice", bound=Enum)


class TomlError(Exception):
    """A file that cannot be used; the message names file, entry and field."""


class Table:
    """One table of a file. Every field that exists must be read before `finish`."""

    def __init__(self, file: Path, place: str, fields: Mapping[str, object]) -> None:
        self.place = place
        self.file = file
        self._fields = fields
        self._read: set[str] = set()

    def __contains__(self, name: str) -> bool:
        """Whether the field is there."""
        return name in self._fields

    def error(self, reason: str) -> TomlError:
        """An error about this table."""
        return TomlError(f"{self.file}: {self.place}: {reason}")

    def text(self, name: str) -> str:
        """A text with something in it."""
        value = self.value(name)
        if not isinstance(value, str) or not value.strip():
            raise self.error(f"field `{name}` is no text")
        return value

    def optional_text(self, name: str) -> str | None:
        """A text with something in it, None where the field is missing."""
        return self.text(name) if name in self else None

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of texts, none twice."""
        value = self.value(name)
        items = cast("list[object]", value) if isinstance(value, list) else [None]
        found = tuple(item for item in items if isinstance(item, str) and item.strip())
        if len(found) != len(items):
            raise self.error(f"field `{name}` is no list of texts")
        if len(set(found)) != len(found):
            raise self.error(f"field `{name}` lists a value twice")
        return found

    def choice(self, name: str, choices: type[_Choice]) -> _Choice:
        """A value of an enum."""
        return self._chosen(name, self.text(name), choices)

    def choices(self, name: str, choices: type[_Choice]) -> tuple[_Choice, ...]:
        """A list of values of an enum, none twice."""
        return tuple(self._chosen(name, value, choices) for value in self.texts(name))

    def date(self, name: str) -> datetime.date:
        """A day, written without quotes: 2026-12-31."""
        value = self.value(name)
        if not isinstance(value, datetime.date) or isinstance(value, datetime.datetime):
            raise self.error(f"field `{name}` is no day such as 2026-12-31, without quotes")
        return value

    def url(self, name: str) -> str:
        """The address of a page."""
        return self._checked_url(name, self.text(name))

    def urls(self, name: str) -> tuple[str, ...]:
        """Addresses of pages, none twice."""
        return tuple(self._checked_url(name, value) for value in self.texts(name))

    def value(self, name: str) -> object:
        """Whatever the field holds."""
        self._read.add(name)
        if name not in self._fields:
            raise self.error(f"field `{name}` is missing")
        return self._fields[name]

    def finish(self) -> None:
        """Refuse fields that nobody read."""
        unknown = sorted(set(self._fields) - self._read)
        if unknown:
            raise self.error(f"unknown field `{unknown[0]}`")

    def _chosen(self, name: str, value: str, choices: type[_Choice]) -> _Choice:
        known = [str(choice.value) for choice in choices]
        if value not in known:
            raise self.error(f"field `{name}` is {value!r}, not one of {', '.join(known)}")
        return choices(value)

    def _checked_url(self, name: str, value: str) -> str:
        if not value.startswith(("https://", "http://")):
            raise self.error(f"field `{name}` has {value!r}, which is no address")
        return value


def read_tables(file: Path, array: str, key: str) -> tuple[list[Table], Table]:
    """The entries of a file, and its top level with the array taken out.

    Args:
        file: what to read.
        array: name of the array of tables, such as `fault`.
        key: the field that names an entry in messages.

    Raises:
        TomlError: no such file, no TOML, or the array is something else.
    """
    try:
        data = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise TomlError(f"{file}: {error}") from error
    rows = data.pop(array, [])
    if not isinstance(rows, list) or not all(
        isinstance(r, dict) for r in cast("list[object]", rows)
    ):
        raise TomlError(f"{file}: `{array}` is no array of tables: write [[{array}]]")
    tables: list[Table] = []
    for number, row in enumerate(cast("list[dict[str, object]]", rows), start=1):
        name = row.get(key)
        label = f" ({name})" if isinstance(name, str) and name.strip() else ""
        tables.append(Table(file, f"{array} {number}{label}", row))
    return tables, Table(file, "top level", data)
