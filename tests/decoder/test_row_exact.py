"""Row-exact mode: a session with drafts has the bits of one without, whatever kernels do.

Over models whose calls of several rows have other low bits (`tests.fakes.uneven`), as on a GPU.
"""

from __future__ import annotations

from typing import Any, cast

import mlx.core as mx
import pytest

from mtp_conformance.exactness import bits_equal, compare_states, require_equal
from mtp_decoder import Session
from mtp_decoder.row_exact import RowByRowTarget
from tests.decoder.conftest import Zoo
from tests.decoder.helpers import PROMPT, STRATEGIES, scripted
from tests.fakes.uneven import uneven

MODELS = ("attn", "gdn", "gdn-moe", "window", "ple", "qsa")
K = 4


def _session(pair: Any, **settings: Any) -> Session:
    target, head = uneven(pair)
    made = Session(target, head, head_rows="target", **settings)
    made.prefill(PROMPT)
    return made


def _follow(pair: Any, k: int, **settings: Any) -> int:
    """Rounds with every accepted count beside one-token steps; the arrays compared."""
    steps, drafted = _session(pair, **settings), _session(pair, **settings)
    plain = _session(pair, **settings)
    for _ in range((k + 1) * (k + 2)):
        plain.round(drafts=())
    stream, compared = plain.history[len(PROMPT) :], 0
    for accepted in range(k + 1):
        emitted = len(drafted.history) - len(PROMPT)
        done = drafted.round(drafts=scripted(stream, emitted, k, accepted))
        ones = [steps.round(drafts=()) for _ in range(accepted + 1)]
        assert done.tokens == tuple(token for one in ones for token in one.tokens)
        rows = mx.concatenate([one.logits for one in ones])
        assert bits_equal(done.logits[: accepted + 1], rows) is None
        compared += require_equal(drafted.state(), steps.state(), what="one-token steps")
    return compared


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_bits_of_steps_though_kernels_differ(zoo: Zoo, model: str, strategy: str) -> None:
    """Tokens, logits and every array, the head's too, after every accepted count."""
    assert _follow(zoo(model), K, rewind=strategy, row_exact=True)


@pytest.mark.parametrize("model", MODELS)
def test_without_it_the_bits_differ(zoo: Zoo, model: str) -> None:
    """The models of these tests do show what the mode is for."""
    steps, drafted = _session(zoo(model)), _session(zoo(model))
    emitted = [token for _ in range(K + 1) for token in steps.round(drafts=()).tokens]
    drafted.round(drafts=emitted[:K])
    assert compare_states(drafted.state(), steps.state()).differing


def test_a_window_narrower_than_a_pass(zoo: Zoo) -> None:
    """A ring holds fewer rows than a pass has; rows that stand come back all the same."""
    target, _ = zoo("window")
    size = target.config.sliding_window
    assert _follow(zoo("window"), size + 3, row_exact=True)


@pytest.mark.parametrize("kv_bits", [None, 8])
def test_quantised_keys_and_values(zoo: Zoo, kv_bits: int | None) -> None:
    """Also over a quantised cache."""
    assert _follow(zoo("gdn-wide"), K, row_exact=True, kv_bits=kv_bits, kv_group_size=32)


def test_a_fork_stays_row_exact(zoo: Zoo) -> None:
    """What a session forks verifies as it does."""
    session = _session(zoo("gdn"), row_exact=True)
    steps = [session.fork(), session.fork()]
    emitted = [token for _ in range(K + 1) for token in steps[0].round(drafts=()).tokens]
    steps[1].round(drafts=emitted[:K])
    assert not compare_states(steps[1].state(), steps[0].state()).differing


def test_a_target_offers_its_own_form(zoo: Zoo) -> None:
    """A model with a cheaper way is asked for it."""
    target, head = zoo("gdn")
    asked: list[bool] = []

    class Own:
        def __getattr__(self, name: str) -> Any:
            return getattr(target, name)

        def row_exact(self) -> Any:
            asked.append(True)
            return RowByRowTarget(target)

    Session(cast("Any", Own()), head, row_exact=True)
    assert asked == [True]


def test_stream_of_generate_step(zoo: Zoo) -> None:
    """`generate_step` passes it on: the tokens of K=0 from a model that rounds by rows."""
    from mtp_decoder import generate_step

    target, head = uneven(zoo("gdn-agree"))
    streams = [
        [
            token
            for token, _, _ in generate_step(
                PROMPT, target, head, num_draft_tokens=k, max_tokens=40, row_exact=True
            )
        ]
        for k in (0, 3)
    ]
    assert streams[0] == streams[1]
