"""Making goldens again: all or nothing, pruning apart."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from mtp_conformance.adapters.builtin import zoo_materials
from mtp_conformance.checked import CheckedRuntime
from mtp_conformance.exactness import StateDiffers
from mtp_conformance.golden import making, updating
from mtp_conformance.golden.contents import GoldenError, Machine
from mtp_conformance.golden.machine import this_machine
from mtp_conformance.golden.making import Plan
from mtp_conformance.golden.reading import Golden
from mtp_conformance.golden.updating import Updated, recover, update
from mtp_conformance.protocol import Runtime
from tests.fakes.rounds_differently import RoundsDifferently
from tests.fakes.shifts_offset import ShiftsOffset
from tests.golden.conftest import ROOT

TINY = Plan("code", 3, 0, 3, {"mixed": ((1, 0),)})
Update = Callable[..., Updated]


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a root without goldens, where one short vector is all that is made."""
    monkeypatch.setattr(making, "PLANS", (TINY,))
    shutil.copytree(ROOT / "golden" / "schema", tmp_path / "golden" / "schema")
    (tmp_path / "golden" / "README.md").write_text("by hand")
    return tmp_path


@pytest.fixture
def make(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Update:
    """Return a function that makes the goldens of `attn` in that root."""

    def run(
        runtime: Runtime | None = None, here: Machine | None = None, prune: bool = False
    ) -> Updated:
        from mtp_conformance.adapters import builtin

        checked = CheckedRuntime(runtime or builtin.make_runtime())
        materials = zoo_materials(tmp_path_factory.mktemp("zoo"))
        return update(tiny, ("attn",), checked, materials, here or this_machine(), prune=prune)

    return run


def _contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def test_twice_is_the_same(tiny: Path, make: Update) -> None:
    """What is made is whole, keeps what was written by hand, and comes out the same again."""
    assert make() == Updated((), (), False)
    first = _contents(tiny / "golden")
    assert Golden(tiny / "golden").verify() == 14
    assert first["README.md"] == b"by hand"
    make()
    assert _contents(tiny / "golden") == first
    assert [path.name for path in tiny.iterdir()] == ["golden"]


def test_stale_files_stay_until_pruned(tiny: Path, make: Update) -> None:
    """A file of no golden is reported and kept; pruning is asked for."""
    make()
    stray = tiny / "golden" / "tokens" / "gone-float32.json"
    stray.write_text("{}")
    assert make().stale == ("tokens/gone-float32.json",)
    assert stray.exists()
    assert Golden(tiny / "golden").stale == ("tokens/gone-float32.json",)
    assert make(prune=True) == Updated((), ("tokens/gone-float32.json",), True)
    assert not stray.exists()


def test_what_belongs_to_nothing_is_pruned(tiny: Path, make: Update) -> None:
    """So are files beside the goldens, links and empty folders; what they lead to stays."""
    make()
    before = _contents(tiny / "golden")
    (tiny / "golden" / "extra.json").write_text("{}")
    (tiny / "golden" / "tokens" / "away").symlink_to(tiny / "golden" / "schema")
    (tiny / "golden" / "floats" / "empty").mkdir()
    stale = ("extra.json", "floats/empty", "tokens/away")
    assert make() == Updated((), stale, False)
    assert (tiny / "golden" / "tokens" / "away").is_symlink()
    assert Golden(tiny / "golden").stale == stale
    assert make(prune=True) == Updated((), stale, True)
    assert _contents(tiny / "golden") == before


def test_floats_of_other_machines_stay_while_tokens_do(
    tiny: Path, make: Update, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Floats of another key are kept, and are stale once prompts change."""
    other = Machine("cpu-elsewhere-arm64", "0.32.4")
    make(here=other)
    assert make().kept == (other.key,)
    assert Golden(tiny / "golden").verify() == 18
    monkeypatch.setattr(making, "PLANS", (Plan("code", 4, 0, 3, {"mixed": ((1, 0),)}),))
    done = make()
    assert done.kept == ()
    assert len([file for file in done.stale if other.key in file]) == 4


def test_another_backend_adds_its_floats_to_pinned_tokens(
    tiny: Path, make: Update, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Off the CPU tokens are those that are pinned, whatever would be chosen now."""
    make()
    tokens = _contents(tiny / "golden" / "tokens")
    monkeypatch.setattr(making, "PLANS", ())
    gpu = Machine("metal-macos-arm64", "0.32.4")
    assert make(here=gpu).kept == (this_machine().key,)
    assert _contents(tiny / "golden" / "tokens") == tokens


def test_another_backend_with_other_tokens_is_refused(tiny: Path, make: Update) -> None:
    """A backend that emits something else than is pinned makes no golden."""
    from tests.fakes.always_wrong import AlwaysWrong

    make()
    before = _contents(tiny / "golden")
    with pytest.raises(GoldenError, match="other tokens than are pinned: attn-float32: tokens"):
        make(AlwaysWrong(), Machine("metal-macos-arm64", "0.32.4"))
    assert _contents(tiny / "golden") == before


@pytest.mark.parametrize(
    ("runtime", "said"),
    [
        (RoundsDifferently, "K=0 at mixed/1/logits"),
        (ShiftsOffset, "a fresh pass over the same tokens, at mixed/1"),
    ],
)
def test_what_plain_decoding_does_not_leave_is_not_pinned(
    tiny: Path, make: Update, runtime: type[Runtime], said: str
) -> None:
    """Goldens are proven as they are made: by K=0's logits, and by a fresh pass's state."""
    make()
    before = _contents(tiny / "golden")
    with pytest.raises(StateDiffers, match=said):
        make(runtime())
    assert _contents(tiny / "golden") == before
    assert [path.name for path in tiny.iterdir()] == ["golden"]


def test_text_without_a_clear_stretch(make: Update, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prompts whose tokens hang on rounding are not used, not even if there are no others."""
    monkeypatch.setattr(making, "CLEAR_BY", {"float32": (1e9,)})
    with pytest.raises(GoldenError, match="attn in float32: no 3 tokens of the text decode 3"):
        make()


def test_interrupted(tiny: Path, make: Update, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C leaves the old golden whole, and nothing beside it."""
    make()
    before = _contents(tiny / "golden")

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(updating, "write_floats", interrupted)
    with pytest.raises(KeyboardInterrupt):
        make()
    assert _contents(tiny / "golden") == before
    assert [path.name for path in tiny.iterdir()] == ["golden"]


def test_interrupted_between_renames(
    tiny: Path, make: Update, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C between the two renames waits for the second one."""
    rename = Path.rename

    def slow(path: Path, target: Path) -> Path:
        done = rename(path, target)
        if path.name == "golden":
            os.kill(os.getpid(), signal.SIGINT)
        return done

    monkeypatch.setattr(Path, "rename", slow)
    with pytest.raises(KeyboardInterrupt):
        make()
    assert Golden(tiny / "golden").verify() == 14


def test_killed_between_renames(tiny: Path, make: Update) -> None:
    """The next update puts the old golden back first."""
    make()
    before = _contents(tiny / "golden")
    (tiny / "golden").rename(tiny / ".golden-old")
    recover(tiny)
    assert _contents(tiny / "golden") == before
