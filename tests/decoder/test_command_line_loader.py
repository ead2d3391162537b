"""`python -m mtp_decoder generate --loader`: models that mlx-lm's classes do not cover."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.decoder.command_line import CommandLine
from tests.decoder.conftest import Zoo


@pytest.fixture
def loader(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[..., Any]], str]:
    """Return a function that makes another function importable, and says as what."""

    def install(function: Callable[..., Any]) -> str:
        module = ModuleType("my_models")
        vars(module)["read"] = function
        monkeypatch.setitem(sys.modules, "my_models", module)
        return "my_models:read"

    return install


def test_another_family(generate: CommandLine, checkpoint: Callable[..., Path]) -> None:
    """With a loader a family decodes that is refused without."""
    path = checkpoint("flash-next")
    assert "--loader package.module:function" in generate.refused(path)
    options = ("--loader", "reference_models.checkpoint:read", "--max-tokens", "4", "--json")
    assert len(json.loads(generate(path, *options).out)["tokens"]) == 4


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("json", "package.module:function"),
        ("json:nothing", "has no attribute 'nothing'"),
        ("no_such_module:read", "No module named 'no_such_module'"),
        (":read", "package.module:function"),
    ],
)
def test_no_such_function(
    generate: CommandLine, checkpoint: Callable[..., Path], name: str, message: str
) -> None:
    """A loader that cannot be imported is named, with the form of a name."""
    found = generate.refused(checkpoint("gdn"), "--loader", name)
    assert f"--loader {name}: " in found
    assert message in found


def test_a_function_that_fails(generate: CommandLine, checkpoint: Callable[..., Path]) -> None:
    """What a loader raises is passed on by kind and message."""
    path = checkpoint("gdn")
    message = generate.refused(path, "--loader", "json:loads")
    assert f"--loader json:loads cannot read {path}: TypeError: the JSON object" in message


@pytest.mark.parametrize("value", [None, 3, "ab", (1, 2, 3), [1, 2]])
def test_no_pair(
    generate: CommandLine,
    checkpoint: Callable[..., Path],
    loader: Callable[[Callable[..., Any]], str],
    value: Any,
) -> None:
    """A loader that returns no pair is told what to return."""
    name = loader(lambda folder: value)
    message = f"returned a {type(value).__name__}, not (target, head or None)"
    assert message in generate.refused(checkpoint("gdn"), "--loader", name)


@pytest.mark.parametrize("part", ["target", "head"])
def test_no_model(
    generate: CommandLine,
    checkpoint: Callable[..., Path],
    loader: Callable[[Callable[..., Any]], str],
    zoo: Zoo,
    part: str,
) -> None:
    """A pair of other things is refused by what they lack."""
    target, head = zoo("gdn")
    name = loader(lambda folder: (3, head) if part == "target" else (target, 3))
    assert f"a builtins.int is no {part}: it has no " in generate.refused(
        checkpoint("gdn"), "--loader", name
    )


def test_beside_the_user(
    generate: CommandLine,
    checkpoint: Callable[..., Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A loader in the current folder is found by the installed script, as with python -m."""
    folder = checkpoint("gdn")
    (tmp_path / "loader_beside.py").write_text("from reference_models.checkpoint import read\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    done = generate(folder, "--loader", "loader_beside:read", "--max-tokens", "2")
    assert (done.code, done.err) == (0, "")
