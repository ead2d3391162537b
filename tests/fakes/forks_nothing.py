"""Offers no fork; optionally saves nothing."""

from dataclasses import replace
from pathlib import Path

from mtp_conformance.adapters.builtin import BuiltinRuntime, BuiltinSession
from mtp_conformance.protocol import Capability, Description, Options


class FilelessSession(BuiltinSession):
    """Writes no file."""

    def save(self, file: Path) -> None:
        """Nothing."""


class ForksNothing(BuiltinRuntime):
    """The builtin runtime without forks."""

    def __init__(self, session: type[BuiltinSession] = BuiltinSession) -> None:
        self.session = session

    def describe(self) -> Description:
        """Everything but forks."""
        card = super().describe()
        return replace(card, capabilities=card.capabilities - {Capability.FORK})

    def open(self, model: str, checkpoint: Path, options: Options) -> BuiltinSession:
        """As the builtin runtime."""
        return self.session(*super().open(model, checkpoint, options).parts)
