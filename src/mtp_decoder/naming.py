"""Choices that a caller makes by name."""

from __future__ import annotations

from enum import Enum
from typing import TypeVar

from mtp_decoder.errors import DecoderError

Chosen = TypeVar("Chosen", bound=Enum)


def member_of(kind: type[Chosen], value: Chosen | str, what: str) -> Chosen:
    """The member of that name.

    Args:
        kind: the choices there are.
        value: one of them, or its name.
        what: the argument, as the caller knows it.

    Raises:
        DecoderError: there is none; the message lists those there are.
    """
    try:
        return kind(value)
    except ValueError as error:
        known = ", ".join(str(member.value) for member in kind)
        raise DecoderError(f"{what} is one of {known}, not {value!r}") from error
