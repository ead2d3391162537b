"""`golden diff`: a change of goldens is reviewed by its meaning."""

import hashlib
import json
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from mtp_conformance.commands import golden as command
from mtp_conformance.failure import UsageError
from mtp_conformance.golden.reading import Golden
from mtp_conformance.golden.writing import write_floats, write_manifest
from tests.golden.conftest import NAMES, ROOT
from tests.golden.damage import DAMAGES, Damage, Pin
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


def _edit(file: Path, change: Callable[[Any], object]) -> None:
    document = json.loads(file.read_text())
    change(document)
    file.write_text(json.dumps(document))


def _with_metadata(file: Path, **metadata: str) -> None:
    arrays: Any = mx.load(str(file))
    mx.eval(list(arrays.values()))
    mx.save_safetensors(str(file), arrays, metadata)


def _clear_by(folder: Path, pin: Pin) -> None:
    file = folder / "tokens" / f"{NAMES[0]}.json"
    _edit(file, lambda d: d["vectors"][0].update(clear_by=0.02))
    _renewed(folder, pin)


def _renewed(folder: Path, pin: Pin) -> None:
    """Tokens or checkpoints have changed, and with them the id that floats carry."""
    before = json.loads((folder / "manifest.json").read_text())["id"]
    pin(folder)
    after = json.loads((folder / "manifest.json").read_text())["id"]
    for file in (folder / "floats").rglob("*.*"):
        if file.is_dir():
            continue
        file.write_bytes(file.read_bytes().replace(before.encode(), after.encode()))
    pin(folder)


def _made_on(folder: Path, _: Pin) -> None:
    golden = Golden(folder)
    machine = replace(golden.machines[0], made_on={"processor": "another"})
    for name in NAMES:
        floats = golden.floats(machine.key, name)
        stored = {n: a for n, a in floats.arrays.items() if a.data is not None}
        write_floats(folder, replace(floats, machine=machine, arrays=stored), golden.id)
    write_manifest(folder, NAMES, [machine])


def _checkpoint_metadata(folder: Path, pin: Pin) -> None:
    _with_metadata(folder / "checkpoints" / NAMES[0] / "model.safetensors", format="pt")
    _renewed(folder, pin)


def _schema(folder: Path, _: Pin) -> None:
    _edit(folder / "schema" / "tokens.schema.json", lambda d: d.update(title="another"))


def _oracle_value(folder: Path, _: Pin) -> None:
    file = folder / "oracle" / "attn.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    _edit(
        folder / "oracle" / "manifest.json",
        lambda d: d["models"]["attn"].update(sha256=digest),
    )


def _oracle_measured(folder: Path, _: Pin) -> None:
    _edit(folder / "oracle" / "manifest.json", lambda d: d["models"]["attn"].update(ways=0.5))


def _spaces(folder: Path, pin: Pin) -> None:
    file = folder / "floats" / Golden(folder).machines[0].key / f"{NAMES[0]}.json"
    file.write_text(file.read_text() + "\n")
    pin(folder)


SILENT: dict[str, tuple[Damage, str]] = {
    "clear_by": (_clear_by, r"attn-float32: tokens: prose/clear_by 0.01 became 0.02"),
    "made_on": (_made_on, r"cpu-\S+: made on: .*C library"),
    "metadata": (_checkpoint_metadata, r"attn-float32: checkpoint: metadata format '\w+' became"),
    "schema": (_schema, r"schema/tokens.schema.json: schema: title .* became .another"),
    "oracle-value": (_oracle_value, r"oracle/attn: \w+: \S+ 0x\w+ became 0x\w+ at "),
    "oracle-manifest": (_oracle_measured, r"oracle/attn: manifest: ways \S+ became 0.5"),
    "bytes-alone": (_spaces, r"floats/cpu-\S+/attn-float32.json: bytes: the file differs"),
    "page": (
        lambda f, _: (f / "README.md").write_text("x") and None,
        "README.md: bytes: .* is new",
    ),
    "extra": (lambda f, _: (f / "extra.json").write_text("{}"), "extra.json: bytes: "),
}


@pytest.mark.parametrize(("change", "said"), SILENT.values(), ids=SILENT.keys())
def test_no_change_is_silent(
    root: Path,
    pin: Pin,
    capsys: pytest.CaptureFixture[str],
    tmp_path_factory: pytest.TempPathFactory,
    change: Damage,
    said: str,
) -> None:
    """Whatever differs is named by its meaning, or else as a file, and the exit code is 1."""
    golden = root / "golden"
    (golden / "oracle").mkdir()
    shutil.copy(ROOT / "golden/oracle/attn.safetensors", golden / "oracle")
    manifest = json.loads((ROOT / "golden/oracle/manifest.json").read_text())
    manifest["models"] = {"attn": manifest["models"]["attn"]}
    (golden / "oracle" / "manifest.json").write_text(json.dumps(manifest))
    before = shutil.copytree(golden, tmp_path_factory.mktemp("before") / "golden")
    assert run(command, "golden", "diff", "--folder", str(before)) == 0
    capsys.readouterr()
    change(golden, pin)
    assert run(command, "golden", "diff", "--folder", str(before)) == 1
    assert re.search(said, capsys.readouterr().out)


def test_an_array_that_is_stored_no_more(
    root: Path,
    pin: Pin,
    capsys: pytest.CaptureFixture[str],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """The same hash without its bytes is a change."""
    golden = root / "golden"
    before = shutil.copytree(golden, tmp_path_factory.mktemp("before") / "golden")
    whole = Golden(golden)
    floats = whole.floats(whole.machines[0].key, NAMES[0])
    name = "prose/prefill/layers.0.offset"
    arrays = {**floats.arrays, name: replace(floats.arrays[name], data=None)}
    write_floats(golden, replace(floats, arrays=arrays), whole.id)
    pin(golden)
    assert run(command, "golden", "diff", "--folder", str(before)) == 1
    assert f"{name} is stored in full no more" in capsys.readouterr().out


def test_another_format_is_compared_by_bytes(
    committed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A version this does not read is a change, not an error: its files are named."""
    for file in (committed / "golden").rglob("*.json"):
        if '"version": 1' in file.read_text():
            file.write_text(file.read_text().replace('"version": 1', '"version": 2', 1))
    assert run(command, "golden", "diff", "HEAD") == 1
    said = capsys.readouterr().out
    assert "golden: format: all of it values cannot be compared, bytes are: " in said
    assert "tokens/attn-float32.json: bytes: the file differs" in said
