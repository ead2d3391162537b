"""`golden diff`: a change of goldens is reviewed by its meaning."""

import json
import subprocess
from pathlib import Path

import pytest

from mtp_conformance.commands import golden as command
from mtp_conformance.failure import UsageError
from tests.golden.conftest import NAMES, ROOT
from tests.golden.damage import DAMAGES, Pin
from tests.harness.command_line import run


def _git(root: Path, *words: str) -> str:
    author = ("-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false")
    done = subprocess.run(
        ["git", *author, *words], cwd=root, check=True, capture_output=True, text=True
    )
    return done.stdout


@pytest.fixture
def committed(root: Path) -> Path:
    """Return a root whose golden is committed, after a commit without one."""
    _git(root, "init", "-q")
    _git(root, "add", "noxfile.py")
    _git(root, "commit", "-q", "-m", "no golden")
    _git(root, "add", "golden")
    _git(root, "commit", "-q", "-m", "a golden")
    return root


def _change_a_token(root: Path, pin: Pin) -> None:
    file = root / "golden" / "tokens" / f"{NAMES[0]}.json"
    document = json.loads(file.read_text())
    document["vectors"][0]["stream"][3] += 1
    file.write_text(json.dumps(document))
    pin(root / "golden")
    id = json.loads((root / "golden" / "manifest.json").read_text())["id"]
    from dataclasses import replace

    from mtp_conformance.golden.reading import Golden
    from mtp_conformance.golden.writing import write_floats

    whole = Golden(ROOT / "golden")
    for name in NAMES:
        floats = whole.floats(whole.machines[0].key, name)
        arrays = {n: a for n, a in floats.arrays.items() if n.startswith("prose/")}
        write_floats(root / "golden", replace(floats, arrays=arrays), id)
    pin(root / "golden")


def test_nothing_differs(committed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A golden that was not touched is said to be the same."""
    assert committed
    assert run(command, "golden", "diff", "HEAD") == 0
    assert capsys.readouterr().out == "no golden value differs\n"


def test_a_changed_token_is_named(
    committed: Path, pin: Pin, capsys: pytest.CaptureFixture[str]
) -> None:
    """Model, vector, index and both tokens stand in one line, also between two revisions."""
    _change_a_token(committed, pin)
    assert run(command, "golden", "diff", "HEAD") == 1
    line = capsys.readouterr().out
    assert line.startswith("attn-float32: tokens: prose/stream ")
    assert line.endswith(" at index 3 (1 of 12 elements)\n")
    _git(committed, "commit", "-qam", "another token")
    assert run(command, "golden", "diff", "HEAD~1", "HEAD", "--json") == 1
    record = json.loads(capsys.readouterr().out)
    assert [change["where"] for change in record["changes"]] == ["prose/stream"]


def test_revision_without_golden(committed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where there was none, all of it is new."""
    assert committed
    assert run(command, "golden", "diff", "HEAD~1") == 1
    assert capsys.readouterr().out == "HEAD~1 has no golden: all of it is new\n"
    assert run(command, "golden", "diff", "HEAD", "HEAD~1") == 1
    assert capsys.readouterr().out == "HEAD~1 has no golden: all of it is gone\n"


def test_refusals(committed: Path, pin: Pin, capsys: pytest.CaptureFixture[str]) -> None:
    """No revision, an unknown one, no commit, and a damaged golden end with 2."""
    with pytest.raises(UsageError, match="give a revision"):
        run(command, "golden", "diff")
    for name in ("no-such-branch", "HEAD^{tree}"):
        assert run(command, "golden", "diff", name) == 2
        assert f"git knows no revision {name!r}" in capsys.readouterr().err
    DAMAGES["tokens-cut"][0](committed / "golden", pin)
    assert run(command, "golden", "diff", "HEAD") == 2
    assert "it is truncated" in capsys.readouterr().err


@pytest.mark.parametrize(
    "file", ["manifest.json", "tokens/a.json", "floats/k/a.json", "checkpoints/a/config.json"]
)
def test_bytes_are_not_shown_by_git(file: str) -> None:
    """In a diff of git, goldens are files that differ, and generated ones."""
    said = _git(ROOT, "check-attr", "diff", "linguist-generated", "--", f"golden/{file}")
    assert [line.rpartition(" ")[2] for line in said.splitlines()] == ["unset", "set"]
