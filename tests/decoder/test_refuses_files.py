"""Refused input: a file that is no whole saved session of this model. Nothing is changed by it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from mtp_conformance.exactness import require_equal
from mtp_decoder import Session, SessionFileError
from tests.decoder.conftest import Decoding, Zoo
from tests.decoder.helpers import PROMPT, PlantedError, untouched


@pytest.fixture
def saved(decoding: Callable[..., Decoding], tmp_path: Path) -> tuple[Decoding, Path]:
    """A session and the file it was saved to."""
    made = decoding("flash-next")
    made.session.save(tmp_path / "s")
    return made, tmp_path / "s"


def _refused(made: Decoding, file: Path, message: str) -> None:
    length, history = made.session.target_length, list(made.session.history)
    with untouched(made.cache), pytest.raises(SessionFileError, match=message):
        made.session.restore(file)
    assert (made.session.target_length, made.session.history) == (length, history)


def _metadata(file: Path) -> dict[str, str]:
    loaded: Any = mx.load(str(file), format="safetensors", return_metadata=True)
    return loaded[1]


def _rewrite(file: Path, **changes: str) -> None:
    """Write the same arrays with other metadata."""
    loaded: Any = mx.load(str(file), format="safetensors", return_metadata=True)
    mx.eval(list(loaded[0].values()))
    mx.save_safetensors(f"{file}.safetensors", loaded[0], {**loaded[1], **changes})
    Path(f"{file}.safetensors").replace(file)


@pytest.mark.parametrize("share", [0.0, 0.0001, 0.01, 0.5, 0.999])
def test_cut_off(saved: tuple[Decoding, Path], share: float) -> None:
    """A file that ends early, wherever, is refused."""
    made, file = saved
    content = file.read_bytes()
    file.write_bytes(content[: int(share * len(content))])
    _refused(made, file, "no whole safetensors file|it was cut off; save it anew")


def test_one_byte_short(saved: tuple[Decoding, Path]) -> None:
    """One missing byte is enough, and the message has both sizes."""
    made, file = saved
    content = file.read_bytes()
    file.write_bytes(content[:-1])
    _refused(made, file, f"has {len(content) - 1} bytes of {len(content)}: it was cut off")


def test_one_bit_of_an_array(saved: tuple[Decoding, Path]) -> None:
    """A flipped bit in an array is found."""
    made, file = saved
    content = bytearray(file.read_bytes())
    content[-100] ^= 1
    file.write_bytes(content)
    _refused(made, file, "is damaged: its arrays are not those that were saved")


def test_one_digit_of_the_description(saved: tuple[Decoding, Path]) -> None:
    """A description that was changed is found, though it is still one."""
    made, file = saved
    _rewrite(file, session=_metadata(file)["session"].replace('"length": 13', '"length": 12'))
    _refused(made, file, "is damaged: its description is not what was saved")


def test_another_version(saved: tuple[Decoding, Path]) -> None:
    """Another format version is refused with both."""
    made, file = saved
    _rewrite(file, version="2")
    _refused(made, file, "has format version 2, this decoder reads 1")


def test_another_kind_of_file(saved: tuple[Decoding, Path]) -> None:
    """A safetensors file that no session was saved to is refused."""
    made, file = saved
    mx.save_safetensors(str(file.with_name("w.safetensors")), {"w": mx.zeros((2, 2))})
    _refused(made, file.with_name("w.safetensors"), "is no saved session")


def test_no_file(saved: tuple[Decoding, Path]) -> None:
    """A missing file is named."""
    made, file = saved
    _refused(made, file.with_name("absent"), "absent cannot be read")


@pytest.mark.parametrize("name", ["gdn", "ple", "qsa"])
def test_another_architecture(
    decoding: Callable[..., Decoding], saved: tuple[Decoding, Path], name: str
) -> None:
    """The session of a model with other layers is refused."""
    _refused(decoding(name), saved[1], "it is of another model|which this model has none of")


def test_other_weights(decoding: Callable[..., Decoding], tmp_path: Path) -> None:
    """The same architecture with other weights is another model."""
    decoding("gdn").session.save(tmp_path / "s")
    _refused(decoding("gdn-agree"), tmp_path / "s", "it is of another model")


def test_another_dtype(zoo: Zoo, decoding: Callable[..., Decoding], tmp_path: Path) -> None:
    """So is the same model in another data type."""
    other = Session(*zoo("gdn", mx.bfloat16))
    other.prefill(PROMPT)
    other.save(tmp_path / "s")
    _refused(decoding("gdn"), tmp_path / "s", "it is of another model")


def test_without_its_head(zoo: Zoo, decoding: Callable[..., Decoding], tmp_path: Path) -> None:
    """What was saved without a head cannot be drafted from, and is refused by a session with one.

    The same the other way round.
    """
    made = decoding("gdn")
    bare = Session(made.target)
    bare.prefill(PROMPT)
    bare.save(tmp_path / "bare")
    _refused(made, tmp_path / "bare", "it is of another model")
    made.session.save(tmp_path / "whole")
    with pytest.raises(SessionFileError, match="it is of another model"):
        bare.restore(tmp_path / "whole")


def test_layers_that_disagree(saved: tuple[Decoding, Path]) -> None:
    """A file whose layers hold different numbers of tokens is refused, checksums or not."""
    made, file = saved
    made.cache[3][0].offset -= 1
    made.session.save(file)
    made.cache[3][0].offset += 1
    _refused(made, file, "disagrees on its length")


def test_a_head_out_of_step(decoding: Callable[..., Decoding], tmp_path: Path) -> None:
    """A file whose head has another number of pairs than the target's tokens is refused."""
    made = decoding("gdn")
    made.cache[6].offset -= 1
    made.session.save(tmp_path / "s")
    made.cache[6].offset += 1
    _refused(made, tmp_path / "s", "it holds 13 tokens and 11 pairs of the head")


@pytest.mark.parametrize("fails", ["while writing", "before it is moved"])
def test_a_save_that_fails(
    saved: tuple[Decoding, Path], monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    """A save that fails leaves the earlier file whole, and nothing beside it."""
    made, file = saved
    content = file.read_bytes()
    made.session.round(3)
    write = mx.save_safetensors

    def broken(path: str, *arguments: Any) -> None:
        write(path, *arguments)
        Path(path).write_bytes(Path(path).read_bytes()[:100])
        raise PlantedError

    def unmovable(self: Path, target: Path) -> None:
        raise PlantedError

    with monkeypatch.context() as patch, pytest.raises(PlantedError):
        if fails == "while writing":
            patch.setattr(mx, "save_safetensors", broken)
        else:
            patch.setattr(Path, "replace", unmovable)
        made.session.save(file)
    assert file.read_bytes() == content
    assert list(file.parent.iterdir()) == [file]


def test_no_folder(saved: tuple[Decoding, Path]) -> None:
    """A folder that does not exist is named."""
    with pytest.raises(SessionFileError, match="nowhere/s cannot be written"):
        saved[0].session.save(saved[1].parent / "nowhere" / "s")


def test_an_unusable_session_becomes_usable(
    saved: tuple[Decoding, Path], decoding: Callable[..., Decoding]
) -> None:
    """Restoring replaces what a session could not go on from."""
    made, file = saved
    made.session._broken = "a pass failed"  # pyright: ignore[reportPrivateUsage]
    made.session.restore(file)
    other = decoding("flash-next").session
    assert made.session.round(3).tokens == other.round(3).tokens
    require_equal(made.session.state(), other.state(), what="the saved session")


def test_what_a_file_says_of_itself(saved: tuple[Decoding, Path]) -> None:
    """The metadata names format and version, and the description is JSON."""
    metadata = _metadata(saved[1])
    assert (metadata["format"], metadata["version"]) == ("mtp-decoder-session", "1")
    assert set(json.loads(metadata["session"])) == {"model", "settings", "caches", "checksums"}
