"""`python -m reference_models.training`."""

from pathlib import Path

import pytest

from reference_models.training import __main__ as command
from tests.models.training import TEXT, tiny


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """One small model, on a small text."""
    monkeypatch.setattr(command, "RECIPES", {"gdn": tiny(steps=3)})
    monkeypatch.setattr(command, "text", lambda name: TEXT["counting"])
    monkeypatch.setattr(command, "training_part", lambda tokens: tokens)


def test_trains_and_writes(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A run prints its losses and how long it will take, and leaves a folder."""
    assert command.main(["--out", str(tmp_path)]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0].startswith("gdn 3/3: target ")
    assert out[-1] == str(tmp_path / "gdn")
    assert (tmp_path / "gdn" / "config.json").is_file()


def test_ships(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With `--ship` the folder goes where the shipped ones are, and nowhere else."""
    monkeypatch.setattr(command, "TRAINED", tmp_path / "trained")
    assert command.main(["--out", str(tmp_path / "out"), "--ship"]) == 0
    assert (tmp_path / "trained" / "gdn" / "recipe.json").is_file()
    assert not (tmp_path / "out" / "gdn").exists()


def test_stopped_and_resumed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C exits with 130; the same command goes on after the last finished step."""
    step = command.Training.step

    def interrupted(training: command.Training) -> list[float]:
        if training.at == 2:
            raise KeyboardInterrupt
        return step(training)

    with monkeypatch.context() as patched:
        patched.setattr(command.Training, "step", interrupted)
        assert command.main(["--out", str(tmp_path)]) == 130
    assert "the same command goes on from here" in capsys.readouterr().err
    assert command.main(["--out", str(tmp_path)]) == 0
    assert "gdn: goes on after step 2 of 3" in capsys.readouterr().out


def test_a_bad_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A checkpoint that is none exits with 2 and says what to do."""
    (tmp_path / "gdn.safetensors").write_text("nothing")
    assert command.main(["--out", str(tmp_path)]) == 2
    assert "is no whole checkpoint" in capsys.readouterr().err


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    """`--help` shows examples."""
    with pytest.raises(SystemExit) as exit_:
        command.main(["--help"])
    assert exit_.value.code == 0
    assert "examples:\n  python -m reference_models.training" in capsys.readouterr().out
