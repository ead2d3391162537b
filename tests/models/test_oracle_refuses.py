"""What is stored is refused when it is not what it says, and nothing is compared by omission."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.oracle import stored
from tests.oracle.compare import ComparisonError, distances
from tests.oracle.stored import FOLDER, StoredError, read, read_manifest
from tests.oracle.trajectory import Recorder, TrajectoryError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the manifest and of one model's file."""
    for name in ("manifest.json", "attn.safetensors"):
        shutil.copy(FOLDER / name, tmp_path / name)
    return tmp_path


def _cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-8])


def _flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize("spoil", [_cut, _flip], ids=["truncated", "one bit"])
def test_an_altered_file(folder: Path, spoil: Callable[[Path], None]) -> None:
    """A file that is not the one the manifest names is refused."""
    spoil(folder / "attn.safetensors")
    with pytest.raises(StoredError, match="not the file the manifest names"):
        read("attn", folder)


def test_a_missing_file(folder: Path) -> None:
    """So is one that is not there."""
    with pytest.raises(StoredError, match=r"gdn\.safetensors is missing"):
        read("gdn", folder)


def test_an_unknown_model(folder: Path) -> None:
    """A model nothing was stored of is named."""
    with pytest.raises(StoredError, match="nothing stored of 'gnd'"):
        read("gnd", folder)


def test_other_weights(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values computed from other weights than today's are refused."""
    monkeypatch.setattr(stored, "digest_of", lambda model: "another")
    with pytest.raises(StoredError, match="other weights"):
        read("attn", folder)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "no manifest"),
        ("[]", "no manifest"),
        ('{"models": {"attn": {}}}', "no manifest"),
        ('{"format": 1, "models": {}}', "empty"),
        ('{"format": 0, "models": {}}', "another format"),
    ],
)
def test_a_manifest_that_is_none(folder: Path, content: str, message: str) -> None:
    """A manifest that is broken, empty or of another format is refused."""
    (folder / "manifest.json").write_text(content)
    with pytest.raises(StoredError, match=message):
        read_manifest(folder)


def test_no_manifest(tmp_path: Path) -> None:
    """Without a manifest the message says how to make it."""
    with pytest.raises(StoredError, match="nox"):
        read_manifest(tmp_path)


def test_storing_is_whole(folder: Path) -> None:
    """A trajectory is in place only once the manifest is; then what is not named is gone."""
    entry, trajectory = read("attn", folder)
    (folder / "stale.safetensors").write_bytes(b"")
    other = {**trajectory, "logits": trajectory["logits"] + 1}
    name, digest = stored.write_trajectory("attn", other, folder)
    assert np.array_equal(read("attn", folder)[1]["logits"], trajectory["logits"])
    stored.write_manifest({"attn": replace(entry, file=name, sha256=digest)}, {}, folder)
    assert np.array_equal(read("attn", folder)[1]["logits"], other["logits"])
    assert sorted(p.name for p in folder.iterdir()) == ["attn.safetensors", "manifest.json"]


def test_the_manifest_is_plain_json() -> None:
    """It has no NaN, which other readers would refuse."""
    text = (FOLDER / "manifest.json").read_text()
    assert json.loads(text, parse_constant=pytest.fail)


ONE = {"logits": np.ones((2, 3))}


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ({}, "missing"),
        ({**ONE, "more": np.ones(1)}, "unknown"),
        ({"logits": np.ones((2, 2))}, "shape"),
    ],
)
def test_quantities_that_do_not_match(found: dict[str, np.ndarray], message: str) -> None:
    """A quantity that is missing, unknown or of another shape is an error."""
    with pytest.raises(ComparisonError, match=message):
        distances(found, ONE, {"logits": 0.0})


def test_nan_is_not_near() -> None:
    """A NaN is far from everything."""
    apart = distances({"logits": np.full((2, 3), np.nan)}, ONE, {"logits": 0.0})
    assert not apart[0].within


def test_a_selection_may_not_differ_at_all() -> None:
    """Integers and selections have no tolerance, whatever the sensitivity."""
    due = {"layers.0.selected": np.array([[True, False]])}
    found = {"layers.0.selected": np.array([[True, True]])}
    assert not distances(found, due, {"layers.0.selected": 1.0})[0].within


def test_a_state_of_the_wrong_size() -> None:
    """A state with a row too few, as after a wrong rewind, is no continuation."""
    recorder = Recorder()
    recorder.rows("keys", np.ones((1, 2)))
    with pytest.raises(TrajectoryError, match="1 rows after 2 tokens, due 2"):
        recorder.rows("keys", np.ones((1, 2)))


def test_a_state_whose_older_rows_changed() -> None:
    """Nor is one whose older rows are others than before."""
    recorder = Recorder()
    recorder.rows("window", np.array([[0.0], [1.0]]), 2)
    with pytest.raises(TrajectoryError, match="older rows changed at token 2"):
        recorder.rows("window", np.array([[5.0], [2.0]]), 2)


def test_a_window_starts_as_declared() -> None:
    """Before the first token a window holds what it is said to hold."""
    with pytest.raises(TrajectoryError, match="older rows changed at token 1"):
        Recorder().rows("ngram", np.array([0, 7]), 2, before=256)
