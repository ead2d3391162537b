"""A runtime whose K=0 runs differ gets no verdict on anything else."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from mtp_conformance import Cell, Oracles
from mtp_conformance.adapters import builtin
from mtp_conformance.oracles import NotDeterministic
from mtp_conformance.protocol import Outcome


def test_flaky_runtime_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Logits that change from run to run end every case with `NotDeterministic`."""
    prefill, calls = builtin.BuiltinSession.prefill, [0]

    def drifting(self: builtin.BuiltinSession, tokens: Sequence[int]) -> Outcome:
        calls[0] += 1
        outcome = prefill(self, tokens)
        return replace(outcome, logits=outcome.logits + calls[0])

    monkeypatch.setattr(builtin.BuiltinSession, "prefill", drifting)
    oracles = Oracles(builtin.make_runtime(), tmp_path, builtin.prompt(16), builtin.index_gap)
    with pytest.raises(NotDeterministic, match="K=0 run twice"):
        oracles.group(Cell("attn", dtype="float32", prompt_length=3))
