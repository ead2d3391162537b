"""The texts are those on record, and what is held out is never seen."""

import lzma
from pathlib import Path

import numpy as np
import pytest

from reference_models.training import texts
from reference_models.training.texts import (
    HELD_OUT,
    NAMES,
    TextError,
    crops,
    held_out,
    text,
    training_part,
)


@pytest.mark.parametrize("name", NAMES)
def test_parts(name: str) -> None:
    """A text is its training part followed by its held-out part."""
    whole = text(name)
    assert len(held_out(whole)) == HELD_OUT
    assert np.array_equal(np.concatenate([training_part(whole), held_out(whole)]), whole)


def test_crops_stay_inside() -> None:
    """Rows come from the texts in turn, whole, and reach a text's both ends."""
    parts = {"a": np.arange(0, 12, dtype=np.int32), "b": np.arange(100, 112, dtype=np.int32)}
    seen: set[int] = set()
    for step in range(40):
        rows = crops(parts, 7, step, 4, 9)
        assert (np.diff(rows, axis=1) == 1).all()
        assert (rows[::2] < 12).all()
        assert (rows[1::2] >= 100).all()
        seen |= {int(token) for token in rows.flat}
    assert seen == {*range(12), *range(100, 112)}


def test_crops_follow_seed_and_step() -> None:
    """Same seed and step, same crops; another of either, others."""
    parts = {"code": text("code")}
    first = crops(parts, 1, 5, 4, 32)
    assert np.array_equal(first, crops(parts, 1, 5, 4, 32))
    assert not np.array_equal(first, crops(parts, 1, 6, 4, 32))
    assert not np.array_equal(first, crops(parts, 2, 5, 4, 32))


@pytest.fixture
def copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with copies of the texts, in place of the real one."""
    for file in texts.FOLDER.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    monkeypatch.setattr(texts, "FOLDER", tmp_path)
    text.cache_clear()
    return tmp_path


def test_refuses_another_text(copies: Path) -> None:
    """A text that is not the recorded one is refused."""
    (copies / "code.txt.xz").write_bytes(lzma.compress(b"print()"))
    with pytest.raises(TextError, match=r"code.txt.xz is not the text that texts.json records"):
        text("code")
    text.cache_clear()


def test_refuses_a_missing_text(copies: Path) -> None:
    """A text that is not there is named."""
    (copies / "prose.txt.xz").unlink()
    with pytest.raises(TextError, match=r"prose.txt.xz cannot be read"):
        text("prose")
    text.cache_clear()
