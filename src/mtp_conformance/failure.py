"""A runtime that did not do its part: its cases are errors, and the run goes on."""

from __future__ import annotations


class RuntimeFailure(Exception):
    """A runtime hung, died, answered with nonsense or broke the protocol.

    Attributes:
        stderr: the tail of what it wrote to stderr; empty for a runtime in process.
    """

    def __init__(self, message: str, stderr: str = "") -> None:
        self.stderr = stderr
        tail = f"\nits stderr ended with:\n{stderr}" if stderr else ""
        super().__init__(message + tail)


class UsageError(ValueError):
    """An option that cannot be used; the message says what to give."""


class RuntimeNameError(ValueError):
    """A `--runtime` that names no factory; the message says what to give."""
