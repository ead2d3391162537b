"""Goldens: what the reader refuses, and why."""

from pathlib import Path

import pytest

from mtp_conformance.commands import golden as command
from mtp_conformance.golden.contents import GoldenError
from mtp_conformance.golden.reading import Golden
from tests.golden.damage import DAMAGES, Damage, Pin
from tests.harness.command_line import run


@pytest.mark.parametrize(("damage", "said"), DAMAGES.values(), ids=DAMAGES.keys())
def test_a_damaged_golden_is_refused(root: Path, pin: Pin, damage: Damage, said: str) -> None:
    """The reader names file and reason, and what to do."""
    damage(root / "golden", pin)
    with pytest.raises(GoldenError, match=said) as caught:
        Golden(root / "golden").verify()
    assert str(root / "golden") in str(caught.value)


def test_an_undamaged_golden_is_read(root: Path, pin: Pin) -> None:
    """Without damage all files are read, also where the manifest was written again."""
    before = (root / "golden" / "manifest.json").read_bytes()
    pin(root / "golden")
    golden = Golden(root / "golden")
    assert golden.verify() == len(golden.files) == 14
    assert (root / "golden" / "manifest.json").read_bytes() == before


@pytest.mark.parametrize("action", [("check", "--quiet"), ("show", "attn-float32")])
def test_commands_end_with_2(
    root: Path, pin: Pin, capsys: pytest.CaptureFixture[str], action: tuple[str, ...]
) -> None:
    """A refused golden is an error of its own, not a difference."""
    DAMAGES["tokens-cut"][0](root / "golden", pin)
    assert run(command, "golden", *action) == 2
    assert "it is truncated" in capsys.readouterr().err
