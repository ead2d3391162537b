"""The state machine finds what is wrong, and tells the shortest story of it."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from conformance.story.test_any_order import test_any_order as story_case
from mtp_conformance import Cell, Oracles, Unsupported, Witness
from mtp_conformance.adapters.builtin import BuiltinRuntime, BuiltinSession, zoo_materials
from mtp_conformance.exactness import StateDiffers
from mtp_conformance.protocol import Options, Outcome
from mtp_conformance.story import EXAMPLES, Story, search
from tests.faults.registry import seeded

ONE_REWIND = r"\(story: prefill; (save; )?(round K=1 a=0|cancel K=1)\)$"
CELL = Cell("gdn", "tape", None, None, "float32", 5)


def _judge(runtime: BuiltinRuntime, folder: Path) -> Witness:
    witness = Witness()
    story_case(Oracles(runtime, zoo_materials(folder)), CELL, witness, "default")
    return witness


def test_right_decoder(tmp_path: Path) -> None:
    """It passes, and something was rejected on the way."""
    assert _judge(BuiltinRuntime(), tmp_path).as_dict()["rejected"] > 0


def test_a_story_without_a_reject_ends_with_one(tmp_path: Path) -> None:
    """So that every one proves something."""
    oracles, witness = Oracles(BuiltinRuntime(), zoo_materials(tmp_path)), Witness()
    options, view = oracles.prefill_like(CELL)
    told = Story(oracles, oracles.group(CELL), options, view, witness, tmp_path / "saved")
    told.prefill()
    told.accept(0, 2)
    told.teardown()
    assert witness.as_dict()["rejected"] == 1


def test_next_turns_are_told(tmp_path: Path) -> None:
    """A runtime that forgets the anchor when it goes on is found, and the head with the target."""
    with pytest.raises(AssertionError, match=r"\(story: prefill; (.*; )?extend by \d"):
        _judge(ForgetsAnchor(), tmp_path)


def test_failing_stories_are_kept_apart_by_cell() -> None:
    """A story that another cell passes is not dropped there."""
    assert search("nightly", 0, "a").database != search("nightly", 0, "b").database
    assert search("nightly", 0, "a").database == search("nightly", 0, "a").database


class _ForgetsAnchor(BuiltinSession):
    def extend(self, tokens: Sequence[int]) -> Outcome:
        self.session.history[-1] = tokens[0]
        return super().extend(tokens)


class ForgetsAnchor(BuiltinRuntime):
    """Runs a next turn behind a wrong last token."""

    def open(self, model: str, checkpoint: Path, options: Options) -> _ForgetsAnchor:
        """As the builtin runtime."""
        return _ForgetsAnchor(*super().open(model, checkpoint, options).parts)


def test_fault_is_told_in_one_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stale slot needs one rewind, and the story is that: a reject, or a round given up.

    Beside it stands at most a save, which hypothesis may not drop.
    """
    seeded()["skip-recurrent-restore"].apply(monkeypatch)
    with pytest.raises(StateDiffers, match=ONE_REWIND) as caught:
        _judge(BuiltinRuntime(), tmp_path)
    assert caught.value.component == "recurrent"


class _MovesOnCancel(BuiltinSession):
    def cancel(self, drafts: Sequence[int] = ()) -> None:
        self.session.round(0)


class MovesOnCancel(BuiltinRuntime):
    """Decodes a token when it is cancelled."""

    def open(self, model: str, checkpoint: Path, options: Options) -> _MovesOnCancel:
        """As the builtin runtime."""
        return _MovesOnCancel(*super().open(model, checkpoint, options).parts)


def test_cancel_that_moves_is_told(tmp_path: Path) -> None:
    """A cancel is enough; beside it stands at most a save, which hypothesis may not drop."""
    with pytest.raises(StateDiffers, match=r"\(story: prefill; (save; )?cancel( K=\d)?\)$"):
        _judge(MovesOnCancel(), tmp_path)


class _MovesOnSave(BuiltinSession):
    def save(self, file: Path) -> None:
        super().save(file)
        self.session.round(0)


class MovesOnSave(BuiltinRuntime):
    """Decodes a token when it has been saved."""

    def open(self, model: str, checkpoint: Path, options: Options) -> _MovesOnSave:
        """As the builtin runtime."""
        return _MovesOnSave(*super().open(model, checkpoint, options).parts)


def test_save_that_moves_is_told(tmp_path: Path) -> None:
    """The rule for saving is really played."""
    with pytest.raises(StateDiffers, match=r"\(story: prefill; (.*; )?save"):
        _judge(MovesOnSave(), tmp_path)


class _RefusesLate(BuiltinSession):
    def round(self, drafts: Sequence[int]) -> Outcome:
        outcome = super().round(drafts)
        if len(drafts) > 1:
            raise ValueError("unsupported: more than one draft")
        return outcome


class RefusesLate(BuiltinRuntime):
    """Has moved when it refuses deep rounds."""

    def open(self, model: str, checkpoint: Path, options: Options) -> _RefusesLate:
        """As the builtin runtime."""
        return _RefusesLate(*super().open(model, checkpoint, options).parts)


def test_refused_round_ends_the_story(tmp_path: Path) -> None:
    """A session that refused a round is not judged as if it had not been asked."""
    with pytest.raises(Unsupported, match="more than one draft"):
        _judge(RefusesLate(), tmp_path)


def test_profiles_search_differently() -> None:
    """The usual profiles are always the same; nightly is random, larger, and remembers."""
    usual, far = search("gate"), search("nightly")
    assert usual.derandomize
    assert usual.database is None
    assert not far.derandomize
    assert far.max_examples > 10 * usual.max_examples
    assert str(EXAMPLES) in repr(far.database)
