"""Session: saved to a file and restored, it goes on to the bit."""

from collections.abc import Callable
from pathlib import Path

import pytest

from mtp_conformance.exactness import bits_equal, require_equal
from mtp_decoder import DecoderError, Session, make_prompt_cache
from tests.decoder.conftest import Decoding, Zoo
from tests.decoder.helpers import PROMPT, STRATEGIES, Plain, play, untouched

MODELS = ("attn", "gdn", "gdn-mtp2", "window", "ple", "qsa", "flash-next")
NEVER_STOPPED = "the session that never stopped"


def _same_rounds(restored: Session, original: Session, ks: tuple[int, ...] = (3, 0, 2)) -> None:
    """Both make the same rounds with drafts of their own heads, in tokens, logits and state."""
    require_equal(restored.state(), original.state(), what=NEVER_STOPPED)
    for k in ks:
        done, due = (session.round(k) for session in (restored, original))
        assert (done.drafts, done.tokens) == (due.drafts, due.tokens)
        assert bits_equal(done.logits, due.logits) is None
        require_equal(restored.state(), original.state(), what=NEVER_STOPPED)
    assert restored.history == original.history
    assert restored.target_length == original.target_length


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("name", MODELS)
def test_going_on(
    decoding: Callable[..., Decoding],
    plain: Callable[..., Plain],
    tmp_path: Path,
    name: str,
    strategy: str,
) -> None:
    """A session restored in a fresh one drafts, verifies and rewinds as if it had never stopped."""
    original, _, target, head = decoding(name, rewind=strategy)
    play(original, plain(name).tokens(8), 1, 3, 1)
    original.save(tmp_path / "s")
    restored = Session(target, head)
    restored.restore(tmp_path / "s")
    _same_rounds(restored, original)


@pytest.mark.parametrize("accepted", [0, 2, 3])
def test_after_any_outcome(
    decoding: Callable[..., Decoding],
    plain: Callable[..., Plain],
    tmp_path: Path,
    accepted: int,
) -> None:
    """Whatever the last round left behind in memory is not missed in the file."""
    original, _, target, head = decoding("flash-next")
    play(original, plain("flash-next").tokens(8), 1, 3, accepted)
    original.save(tmp_path / "s")
    restored = Session(target, head)
    restored.restore(tmp_path / "s")
    _same_rounds(restored, original)


@pytest.mark.parametrize("policy", ["draft", "target"])
def test_policies(
    decoding: Callable[..., Decoding], plain: Callable[..., Plain], tmp_path: Path, policy: str
) -> None:
    """Strategy and policy of the head's rows are the saved session's, not the restoring one's."""
    original, _, target, head = decoding("gdn", rewind="rerun", head_rows=policy)
    original.save(tmp_path / "s")
    other = "draft" if policy == "target" else "target"
    restored = Session(target, head, rewind="snapshot", head_rows=other)
    restored.restore(tmp_path / "s")
    assert restored.policies == original.policies
    stream = plain("gdn").tokens(6)
    for session in (restored, original):
        play(session, stream, 1, 3, 3)
    require_equal(restored.state(), original.state(), what=NEVER_STOPPED)


def test_a_used_session_and_its_prompt_cache(
    decoding: Callable[..., Decoding], tmp_path: Path
) -> None:
    """A session that decoded something else is replaced whole, in its prompt cache too."""
    original, _, target, head = decoding("flash-next")
    original.round(3)
    original.save(tmp_path / "s")
    cache = make_prompt_cache(target, head)
    other = Session(target, head, prompt_cache=cache)
    other.prefill(PROMPT[:4])
    other.round(2)
    other.restore(tmp_path / "s")
    shown = Session(target, head, prompt_cache=cache)
    require_equal(shown.state(), original.state(), what="the saved session")
    _same_rounds(other, original)
    assert Session(target, head, prompt_cache=cache).target_length == original.target_length


def test_an_empty_session(zoo: Zoo, tmp_path: Path) -> None:
    """A session that has seen nothing can be saved, and prefilled once restored."""
    target, head = zoo("flash-next")
    Session(target, head).save(tmp_path / "s")
    restored, fresh = Session(target, head), Session(target, head)
    restored.prefill(PROMPT)
    restored.restore(tmp_path / "s")
    assert restored.target_length == 0
    for session in (restored, fresh):
        session.prefill(PROMPT)
    _same_rounds(restored, fresh)


def test_without_a_head(zoo: Zoo, tmp_path: Path) -> None:
    """A session without a head is saved and restored without one."""
    target, _ = zoo("window")
    original = Session(target)
    original.prefill(PROMPT)
    original.save(tmp_path / "s")
    restored = Session(target)
    restored.restore(tmp_path / "s")
    _same_rounds(restored, original, ks=(0, 0))


def test_a_long_session(zoo: Zoo, tmp_path: Path) -> None:
    """Rows past the cache's first buffer are saved, spare ones are not."""
    target, head = zoo("attn")
    original = Session(target, head)
    original.prefill(PROMPT * 20)
    original.save(tmp_path / "s")
    rows = 6 * 260 * 2 * 16 * 4  # K and V of three layers, KV heads x head_dim x float32
    head_rows = 2 * 259 * 2 * 16 * 4
    spare = (tmp_path / "s").stat().st_size - rows - head_rows
    assert 0 < spare < 8000
    restored = Session(target, head)
    restored.restore(tmp_path / "s")
    _same_rounds(restored, original)


def test_the_file_is_not_moved_by_going_on(
    decoding: Callable[..., Decoding], tmp_path: Path
) -> None:
    """What was saved stays what it was while the saver and those restored from it go on."""
    original, _, target, head = decoding("flash-next")
    original.round(3)
    original.save(tmp_path / "s")
    content, saved = (tmp_path / "s").read_bytes(), original.fork()
    original.round(3)
    for _ in range(2):
        restored = Session(target, head)
        restored.restore(tmp_path / "s")
        require_equal(restored.state(), saved.state(), what="the state when it was saved")
        restored.round(3)
    assert (tmp_path / "s").read_bytes() == content


def test_the_file_can_go(decoding: Callable[..., Decoding], tmp_path: Path) -> None:
    """A restored session reads nothing from the file any more: it may be overwritten."""
    original, _, target, head = decoding("gdn")
    original.save(tmp_path / "s")
    restored = Session(target, head)
    restored.restore(tmp_path / "s")
    (tmp_path / "s").write_bytes(b"\0" * (tmp_path / "s").stat().st_size)
    _same_rounds(restored, original)


@pytest.mark.parametrize("place", ["drafted", "verified"])
def test_amid_a_round(decoding: Callable[..., Decoding], tmp_path: Path, place: str) -> None:
    """Between draft and commit nothing is saved: a file never holds what may yet be rejected."""
    session, cache, *_ = decoding("flash-next")
    before = session.fork()
    drafts = session.draft(2)
    if place == "verified":
        session.verify(drafts)
    with untouched(cache), pytest.raises(DecoderError, match="a round is open: settle it"):
        session.save(tmp_path / "s")
    assert list(tmp_path.iterdir()) == []
    session.cancel()
    session.save(tmp_path / "s")
    restored = before.fork()
    restored.restore(tmp_path / "s")
    _same_rounds(restored, before)


def test_restoring_amid_a_round(decoding: Callable[..., Decoding], tmp_path: Path) -> None:
    """A session with a round open takes no file over."""
    session, cache, *_ = decoding("gdn")
    session.save(tmp_path / "s")
    session.verify(session.draft(2))
    with untouched(cache), pytest.raises(DecoderError, match="a round is open"):
        session.restore(tmp_path / "s")


def test_an_emptied_head_row(decoding: Callable[..., Decoding], tmp_path: Path) -> None:
    """A prompt of one token leaves the head without rows, and its hidden waiting."""
    made = decoding("flash-next")
    original = Session(made.target, made.head)
    original.prefill(PROMPT[:1])
    original.save(tmp_path / "s")
    restored = Session(made.target, made.head)
    restored.restore(tmp_path / "s")
    _same_rounds(restored, original)
