"""`python -m reference_models`."""

import subprocess
import sys
from pathlib import Path

import mlx.core as mx
import pytest

from reference_models.__main__ import main
from reference_models.checkpoint import read
from reference_models.zoo import ZOO, parameters_of


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    """`list` prints every model with its size and the kinds of its layers, and exits with 0."""
    assert main(["list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(ZOO)
    assert [line.split()[1] for line in lines] == [str(parameters_of(c)) for c in ZOO.values()]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_write(capsys: pytest.CaptureFixture[str], tmp_path: Path, dtype: str) -> None:
    """`write` makes a folder that can be read, prints it and exits with 0."""
    folder = tmp_path / "model"
    assert main(["write", "window", str(folder), "--dtype", dtype]) == 0
    assert capsys.readouterr().out.strip() == str(folder)
    assert str(read(folder)[0].embed(mx.array([[1]])).dtype) == f"mlx.core.{dtype}"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["write", "gnd", "x"], "invalid choice: 'gnd'"),
        (["write", "gdn"], "required: folder"),
        (["write", "gdn", "x", "--dtype", "float16"], "invalid choice: 'float16'"),
        (["read"], "invalid choice: 'read'"),
        ([], "required: command"),
    ],
)
def test_usage(capsys: pytest.CaptureFixture[str], arguments: list[str], message: str) -> None:
    """Arguments that make no sense are named on the error output, with exit code 2."""
    with pytest.raises(SystemExit) as exit_:
        main(arguments)
    assert exit_.value.code == 2
    assert message in capsys.readouterr().err


def test_as_a_module() -> None:
    """The package can be run, and its exit code is that of the command."""
    command = [sys.executable, "-m", "reference_models", "write", "gnd", "x"]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert (done.returncode, "invalid choice" in done.stderr) == (2, True)
