"""Traces of rounds, as `golden show` prints them."""

import pytest
from syrupy.assertion import SnapshotAssertion

from mtp_conformance.commands import golden as command
from mtp_conformance.golden.reading import Golden
from mtp_conformance.golden.showing import trace
from tests.golden.conftest import ROOT
from tests.harness.command_line import run


@pytest.mark.parametrize("name", ["attn-float32", "window-float32", "flash-next-bfloat16"])
def test_trace(name: str, snapshot: SnapshotAssertion) -> None:
    """Drafts, accepts, rewinds, tokens, and the arrays that are left."""
    golden = Golden(ROOT / "golden")
    floats = golden.floats(golden.machines[0].key, name)
    assert "\n".join(trace(golden.tokens(name), floats.arrays)) == snapshot


def test_unknown_name(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A checkpoint that does not exist ends with 2 and the names of those that do."""
    monkeypatch.chdir(ROOT)
    assert run(command, "golden", "show", "gdn") == 2
    assert "no checkpoint gdn; there are attn-float32, " in capsys.readouterr().err
