"""`golden check`: what differs, why it may, and that nothing is written."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import mlx.core as mx
import pytest

from mtp_conformance import fixtures
from mtp_conformance.adapters import builtin
from mtp_conformance.adapters.builtin import BuiltinRuntime, BuiltinSession
from mtp_conformance.checked import CheckedRuntime
from mtp_conformance.commands import golden as command
from mtp_conformance.golden import machine as machines
from mtp_conformance.golden.checking import Checked, check
from mtp_conformance.golden.contents import GoldenError, Machine
from mtp_conformance.golden.machine import this_machine
from mtp_conformance.golden.reading import Golden
from mtp_conformance.protocol import Capability, Description, Options, Outcome
from tests.fakes.always_wrong import AlwaysWrong
from tests.harness.command_line import run

ONLY = ("attn-float32",)
Checking = Callable[..., CheckedRuntime]


class _OffByABit(BuiltinSession):
    """Right tokens from logits whose lowest bit is not."""

    def prefill(self, tokens: Sequence[int]) -> Outcome:
        """Logits one ULP off."""
        return _nudged(super().prefill(tokens))


class _OffByABitRuntime(BuiltinRuntime):
    def open(self, model: str, checkpoint: Path, options: Options) -> _OffByABit:
        """As the builtin runtime."""
        return _OffByABit(*super().open(model, checkpoint, options).parts)


def _nudged(outcome: Outcome) -> Outcome:
    assert outcome.logits is not None
    bits = outcome.logits.view(mx.uint32) ^ 1
    return replace(outcome, logits=bits.view(mx.float32))


class _Offers(BuiltinRuntime):
    """Some capabilities, no more."""

    def __init__(self, *capabilities: Capability, models: tuple[str, ...] = ()) -> None:
        self._card = (frozenset(capabilities), models)

    def describe(self) -> Description:
        """As the builtin runtime, with less."""
        capabilities, models = self._card
        return replace(super().describe(), capabilities=capabilities, models=models)


def _check(root: Path, runtime: CheckedRuntime, here: Machine | None = None) -> Checked:
    golden = Golden(root / "golden")
    return check(golden, runtime, here or golden.machines[0], names=ONLY)


def _contents(folder: Path) -> dict[str, tuple[bytes, int]]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path): (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


def test_right_decoder(root: Path, checked: Checking) -> None:
    """Tokens are those pinned, and so are the arrays where backend and mlx are."""
    found = _check(root, checked(), this_machine())
    assert (found.tokens, found.stale, found.lists) == ((), (), 5)
    assert found.arrays == 13 * 5 + 5
    assert not (found.judged and found.floats)


def test_wrong_decoder_fails(root: Path, checked: Checking) -> None:
    """A wrong token is named by script, round and index."""
    found = _check(root, checked(AlwaysWrong()))
    assert found.differs
    first = found.tokens[0]
    assert (first.where, first.elements, first.of) == ("prose/mixed/1/emitted", 2, 2)


def test_one_bit_of_logits_is_one_ulp(root: Path, checked: Checking) -> None:
    """A difference of the last bit is found, counted and measured."""
    found = _check(root, checked(_OffByABitRuntime()))
    logits = next(change for change in found.floats if change.where == "prose/logits")
    assert (logits.elements, logits.of, logits.ulp) == (260, 12 * 260, 1)
    assert found.differs


def test_floats_of_another_mlx_are_not_judged(root: Path, checked: Checking) -> None:
    """Without a golden of this backend and version, floats are for information."""
    here = Machine("metal-macos-arm64", "9.9")
    found = _check(root, checked(_OffByABitRuntime()), here)
    assert (found.judged, found.differs) == (False, False)
    assert found.floats


@pytest.mark.parametrize(("name", "judged"), [("attn-float32", True), ("gdn-bfloat16", False)])
def test_tokens_of_another_backend(root: Path, checked: Checking, name: str, judged: bool) -> None:
    """Wrong float32 tokens fail anywhere; bfloat16 tokens only where the golden was made."""
    golden, wrong = Golden(root / "golden"), checked(AlwaysWrong())
    elsewhere = check(golden, wrong, Machine("metal-macos-arm64", "0.32.4"), names=[name])
    assert (elsewhere.differs, bool(elsewhere.tokens)) == (judged, judged)
    assert bool(elsewhere.tokens_elsewhere) is not judged
    here = check(golden, wrong, golden.machines[0], names=[name])
    assert (here.differs, bool(here.tokens), here.tokens_elsewhere) == (True, True, ())


def test_tokens_that_are_not_judged_are_shown(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are printed, with the reason why they are no failure."""
    assert root
    elsewhere = Machine("metal-macos-arm64", "0.32.4")
    monkeypatch.setattr(machines, "this_machine", lambda _="": elsewhere)
    monkeypatch.setattr(builtin, "make_runtime", AlwaysWrong)
    assert run(command, "golden", "check", "--only", "gdn-bfloat16", "--quiet") == 0
    said = capsys.readouterr().out
    assert said.startswith("bfloat16 tokens:\n  gdn-bfloat16: tokens: ")
    assert "why: not judged: a bfloat16 token hangs on where values are rounded" in said


class _Silent(_OffByABitRuntime):
    """Off by a bit, on who knows what."""

    def describe(self) -> Description:
        """As the builtin runtime, but for the versions."""
        return replace(super().describe(), name="silent", versions={"their-runtime": "1"})


def test_floats_of_a_runtime_without_mlx_are_not_judged(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A runtime that names no mlx is not taken to run on this process's."""
    assert root
    monkeypatch.setattr(fixtures, "load_runtime", lambda _: _Silent())
    code = run(
        command, "golden", "check", "--only", *ONLY, "--quiet", "--json", "--runtime", "silent"
    )
    record = json.loads(capsys.readouterr().out)
    assert (code, record["judged"], record["here"]["mlx"]) == (0, False, "unknown")
    assert record["floats"]


def test_what_a_runtime_does_not_show_is_named(root: Path, checked: Checking) -> None:
    """Rounds, logits or states that cannot be compared are listed, not passed over."""
    found = _check(root, checked(_Offers(Capability.STREAM)))
    assert found.left_out == ("rounds, logits and states: it takes no drafts",)
    assert (found.lists, found.arrays, found.differs) == (1, 0, False)
    capabilities = (Capability.STREAM, Capability.DRAFTS, Capability.STATE)
    found = _check(root, checked(_Offers(*capabilities)))
    assert found.left_out == (
        "logits: it does not show them",
        "states of the head: it does not show them",
    )


def test_comparing_nothing_is_an_error(root: Path, checked: Checking) -> None:
    """A runtime that has none of the models proves nothing."""
    runtime = checked(_Offers(Capability.STREAM, models=("another",)))
    with pytest.raises(GoldenError, match="nothing was compared: attn: builtin has no such model"):
        _check(root, runtime)


def test_unknown_checkpoint(root: Path, checked: Checking) -> None:
    """A name that does not exist is refused with those that do."""
    golden = Golden(root / "golden")
    with pytest.raises(GoldenError, match="no checkpoint x; there are attn-float32, gdn-bfloat16"):
        check(golden, checked(), golden.machines[0], names=["x"])


def test_nothing_is_written(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Not even a difference rewrites a golden, and one it is: the exit code is 1."""
    stray = root / "golden" / "floats" / "stray.json"
    stray.write_text("{}")
    before = _contents(root / "golden")
    assert run(command, "golden", "check", "--only", *ONLY, "--quiet") == 1
    assert _contents(root / "golden") == before
    assert "stale, in no manifest:\n  floats/stray.json\n" in capsys.readouterr().out


def test_json(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A machine reads the same from one object."""
    assert run(command, "golden", "check", "--only", *ONLY, "--json") == 0
    record = json.loads(capsys.readouterr().out)
    assert (record["differs"], record["tokens"], record["lists"]) == (False, [], 5)


def test_a_checkpoint_drawn_otherwise_differs(
    root: Path, checked: Checking, tmp_path: Path
) -> None:
    """Weights that reference_models would draw otherwise now are named by tensor."""
    from reference_models.checkpoint import write_zoo

    golden = Golden(root / "golden")
    other = write_zoo("attn-ties", tmp_path / "other")
    found = check(golden, checked(), golden.machines[0], names=ONLY, drawn=lambda *_: other)
    assert found.differs
    assert {change.where for change in found.checkpoints} >= {"lm_head.weight"}


def test_checkpoints_are_those_of_the_zoo(root: Path, checked: Checking) -> None:
    """A golden of fewer models than there are, or of others, differs."""
    golden = Golden(root / "golden")
    zoo = ["attn-float32", "gdn-float32"]
    found = check(golden, checked(), golden.machines[0], names=ONLY, zoo=zoo)
    said = [(change.name, change.what) for change in found.checkpoints]
    assert said == [("gdn-float32", "is gone"), ("gdn-bfloat16", "is of no model of the zoo")]
    assert found.differs


def test_the_builtin_check_asks_for_the_whole_zoo(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without `--only`, every model of the zoo is due in both data types."""
    assert root
    monkeypatch.setattr(builtin, "ZOO", ("attn",))
    assert run(command, "golden", "check", "--quiet") == 1
    said = capsys.readouterr().out
    assert "attn-bfloat16: checkpoint: all of it is gone" in said


def test_no_gpu(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A device that is not there is refused."""
    from mtp_conformance.failure import UsageError

    assert root
    monkeypatch.setattr(mx, "is_available", lambda _: False)
    with pytest.raises(UsageError, match="no GPU backend"):
        run(command, "golden", "check", "--device", "gpu")


def test_backend_names_device_system_and_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Apple's system is called macos, and another process's mlx counts in its place."""
    monkeypatch.setattr(machines.platform, "system", lambda: "Darwin")
    monkeypatch.setattr(machines.platform, "machine", lambda: "arm64")
    assert this_machine("9.9").key == "cpu-macos-arm64-mlx-9.9"
