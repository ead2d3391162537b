"""A stream case whose drafts were never verified proves nothing and says so."""

from pathlib import Path

import pytest

from conformance.stream.test_greedy import test_guessed_drafts as stream_case
from mtp_conformance import Cell, Inconclusive, Oracles, Witness
from mtp_conformance.adapters import builtin
from mtp_decoder import Session


def test_silent_k0_decoding_is_inconclusive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A decoder that ignores its drafts emits the right tokens and gets no pass."""
    monkeypatch.setattr(
        Session, "inject", lambda self, drafts: [] if drafts else Session.draft(self, 0)
    )
    rounds = Session.round
    monkeypatch.setattr(
        Session, "round", lambda self, k=0, *, drafts=None, more=False: rounds(self)
    )
    oracles = Oracles(builtin.make_runtime(), builtin.zoo_materials(tmp_path))
    cell = Cell("attn", "tape", 3, dtype="float32", prompt_length=4)
    with pytest.raises(Inconclusive, match="accepted 0 of at least 1"):
        stream_case(oracles, cell, Witness())
