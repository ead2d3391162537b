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


def test_what_belongs_to_nothing_is_stale(root: Path) -> None:
    """Files anywhere in the folder, links and empty folders are called stale; none is followed."""
    folder = root / "golden"
    assert Golden(folder).stale == ()
    (folder / "extra.json").write_text("{}")
    (folder / "schema" / "x.json").write_text("{}")
    (folder / "tokens" / "away").symlink_to(root)
    (folder / "tokens" / "nowhere.json").symlink_to(root / "nothing")
    (folder / "floats" / "empty").mkdir()
    (folder / "oracle").mkdir()
    (folder / "oracle" / "manifest.json").write_text('{"models": {}}')
    (folder / "oracle" / "old.safetensors").write_text("old")
    assert Golden(folder).stale == (
        *("extra.json", "floats/empty", "oracle/old.safetensors", "schema/x.json"),
        *("tokens/away", "tokens/nowhere.json"),
    )


@pytest.mark.parametrize(
    "damage", ["manifest-too-deep", "schema-that-is-none", "schema-that-takes-anything"]
)
def test_what_cannot_be_validated_ends_with_2(
    root: Path, pin: Pin, capsys: pytest.CaptureFixture[str], damage: str
) -> None:
    """A manifest or a schema that no validator takes is refused like any other file."""
    DAMAGES[damage][0](root / "golden", pin)
    assert run(command, "golden", "check", "--quiet") == 2
    assert capsys.readouterr().err.startswith("error: ")


@pytest.mark.parametrize("action", [("check", "--quiet"), ("show", "attn-float32")])
def test_commands_end_with_2(
    root: Path, pin: Pin, capsys: pytest.CaptureFixture[str], action: tuple[str, ...]
) -> None:
    """A refused golden is an error of its own, not a difference."""
    DAMAGES["tokens-cut"][0](root / "golden", pin)
    assert run(command, "golden", *action) == 2
    assert "it is truncated" in capsys.readouterr().err
