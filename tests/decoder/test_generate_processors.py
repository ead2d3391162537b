"""Generation: logits processors."""

from collections.abc import Callable

import mlx.core as mx
import pytest

from mtp_decoder import generate_step
from tests.decoder.conftest import Zoo
from tests.decoder.helpers import PROMPT, Source
from tests.models.helpers import listed

COUNT = 11
Processor = Callable[[mx.array, mx.array], mx.array]


def punish_repetition(tokens: mx.array, logits: mx.array) -> mx.array:
    """Take 4 off the logit of every token seen so far."""
    seen = mx.zeros(logits.shape, logits.dtype)
    seen[:, tokens] = 4.0
    return logits - seen


class Recorder:
    """A processor that changes nothing and remembers what it was shown."""

    def __init__(self) -> None:
        self.histories: list[list[int]] = []
        self.shapes: set[tuple[int, ...]] = set()

    def __call__(self, tokens: mx.array, logits: mx.array) -> mx.array:
        """Remember and pass on."""
        self.histories.append(listed(tokens))
        self.shapes.add(logits.shape)
        return logits


class Pusher:
    """A processor with a state: with every call it raises another token's logit."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, tokens: mx.array, logits: mx.array) -> mx.array:
        """Raise one logit a little more than the last time."""
        self.calls += 1
        raised = mx.zeros(logits.shape, logits.dtype)
        raised[:, (37 * self.calls) % 256] = self.calls % 5 * 4.0
        return logits + raised


def _run(zoo: Zoo, k: int, processors: list[Processor], source: Source | None = None) -> list[int]:
    emitted = generate_step(
        PROMPT,
        *zoo("ple"),
        num_draft_tokens=k,
        max_tokens=COUNT,
        logits_processors=processors,
        draft_source=source,
    )
    return [token for token, *_ in emitted]


@pytest.mark.parametrize("k", [1, 3, 8])
def test_tokens(zoo: Zoo, k: int) -> None:
    """Tokens under a repetition penalty are the same with drafts as without."""
    expected = _run(zoo, 0, [punish_repetition])
    source = Source(expected, wrong=(3, 7))
    assert _run(zoo, k, [punish_repetition], source) == expected


def test_the_penalty_bites(zoo: Zoo) -> None:
    """The penalty of these tests changes what is emitted."""
    assert _run(zoo, 0, [Pusher()]) != _run(zoo, 0, [])
    assert len(set(_run(zoo, 0, [punish_repetition]))) == COUNT


@pytest.mark.parametrize("k", [1, 3, 8])
def test_histories(zoo: Zoo, k: int) -> None:
    """A processor sees prompt and emitted tokens, one more a call, never a rejected draft."""
    recorder = Recorder()
    expected = _run(zoo, 0, [])
    tokens = _run(zoo, k, [recorder], Source(expected, wrong=(3, 4, 9)))
    assert recorder.histories == [[*PROMPT, *tokens[:n]] for n in range(COUNT)]


def test_rows(zoo: Zoo) -> None:
    """A processor is given one row of logits at a time."""
    recorder = Recorder()
    _run(zoo, 3, [recorder])
    assert recorder.shapes == {(1, 260)}


@pytest.mark.parametrize("k", [1, 3, 8])
def test_a_state(zoo: Zoo, k: int) -> None:
    """A processor with a state of its own gives the same tokens with drafts as without."""
    expected = _run(zoo, 0, [Pusher()])
    assert _run(zoo, k, [Pusher()], Source(expected, wrong=(2, 6))) == expected


def test_order(zoo: Zoo) -> None:
    """Processors run in the order given."""

    def ban_all_but_five(tokens: mx.array, logits: mx.array) -> mx.array:
        return mx.where(mx.arange(260) == 5, 0.0, -mx.inf)[None]

    def shift(tokens: mx.array, logits: mx.array) -> mx.array:
        return mx.concatenate([logits[:, -1:], logits[:, :-1]], axis=-1)

    assert set(_run(zoo, 0, [ban_all_but_five, shift])) == {6}
