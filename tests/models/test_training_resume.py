"""A run can be stopped anywhere, and goes on as if it had not been."""

from pathlib import Path
from typing import cast

import mlx.core as mx
import pytest

from mtp_conformance.exactness import require_equal
from reference_models.training import loop
from reference_models.training.loop import ResumeError, Training, run
from tests.models.training import TEXT, ignore, raising_at, tiny, tiny_training

Whole = tuple[dict[str, mx.array], dict[str, str]]


def _whole(file: Path) -> Whole:
    return cast("Whole", mx.load(str(file), return_metadata=True))


@pytest.mark.parametrize(("model", "stop"), [("gdn", KeyboardInterrupt), ("flash-next", OSError)])
def test_to_the_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str, stop: type[BaseException]
) -> None:
    """Stopped after three steps of four and resumed, a run ends as one that never stopped.

    Weights, moments, numbers of steps and losses are equal to the bit.
    """
    monkeypatch.setattr(loop, "MEAN_OF", 2)  # stopped with a row of the curve, and half of one
    straight, stopped = tmp_path / "straight.safetensors", tmp_path / "stopped.safetensors"
    run(tiny_training(model), straight, ignore)
    with pytest.raises(stop):
        run(tiny_training(model), stopped, raising_at(3, stop))
    resumed = tiny_training(model)
    resumed.resume(stopped)
    assert resumed.at == 3
    run(resumed, stopped, ignore)
    (arrays, facts), (expected, expected_facts) = _whole(stopped), _whole(straight)
    require_equal(arrays, expected, what="the run in one go")
    assert facts == expected_facts
    assert len(resumed.curve) == 2


def test_a_failing_save_leaves_the_last_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkpoint that cannot be written leaves the one before it, whole."""
    file, training = tmp_path / "run.safetensors", tiny_training()
    training.save(file)
    before = file.read_bytes()

    def fail(path: str, *arguments: object) -> None:
        Path(path).write_bytes(b"half")
        raise OSError("no space left")

    monkeypatch.setattr(mx, "save_safetensors", fail)
    training.step()
    with pytest.raises(OSError, match="no space"):
        training.save(file)
    assert file.read_bytes() == before


def test_refuses_another_recipe(tmp_path: Path) -> None:
    """A checkpoint of another recipe is not gone on from."""
    tiny_training().save(tmp_path / "run.safetensors")
    other = Training("gdn", tiny(steps=7), TEXT)
    with pytest.raises(ResumeError, match="is of another recipe; remove it"):
        other.resume(tmp_path / "run.safetensors")


def test_refuses_half_a_file(tmp_path: Path) -> None:
    """A file that was cut short is named."""
    file = tmp_path / "run.safetensors"
    tiny_training().save(file)
    file.write_bytes(file.read_bytes()[:1000])
    with pytest.raises(ResumeError, match="is no whole checkpoint"):
        tiny_training().resume(file)
