"""Session: no phase leaves work to the next one."""

import io
from collections.abc import Callable

import mlx.core as mx
import pytest

from mtp_decoder import Session, make_prompt_cache
from mtp_decoder.state import arrays_of
from tests.decoder.conftest import Decoding, Zoo
from tests.decoder.helpers import POLICIES, PROMPT, STRATEGIES, Plain, play, scripted

MODELS = ("window", "gdn-mtp2", "flash-next")


def pending(arrays: list[mx.array]) -> int:
    """How many operations have yet to run for these arrays: mlx draws each as a rectangle."""
    drawing = io.StringIO()
    mx.export_to_dot(drawing, *arrays)
    return drawing.getvalue().count("shape=rectangle")


def test_pending_operations_are_seen() -> None:
    """An operation is seen until it ran, below an evaluated array too."""
    one = mx.array([1.0])
    two = one + one
    before = pending([one, two * two])
    mx.eval(two)
    assert (before, pending([two * two]), pending([two])) == (2, 1, 0)


@pytest.mark.parametrize("name", MODELS)
def test_after_the_prompt(zoo: Zoo, name: str) -> None:
    """After a prefill every cache, the frontier and what it returns are evaluated."""
    target, head = zoo(name)
    cache = make_prompt_cache(target, head)
    done = Session(target, head, prompt_cache=cache).prefill(PROMPT)
    assert pending([*arrays_of(cache), done.logits, done.logprobs]) == 0


@pytest.mark.parametrize("name", MODELS)
def test_after_the_prompt_whatever_is_sampled(zoo: Zoo, name: str) -> None:
    """The same holds with a sampler that looks at nothing, and so evaluates nothing."""
    target, head = zoo(name)
    cache = make_prompt_cache(target, head)
    session = Session(target, head, prompt_cache=cache, sampler=lambda _: mx.array([5]))
    done = session.prefill(PROMPT)
    assert pending([*arrays_of(cache), done.logits, done.logprobs]) == 0


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("name", MODELS)
def test_after_every_phase(
    decoding: Callable[..., Decoding],
    plain: Callable[..., Plain],
    name: str,
    strategy: str,
    policy: str,
) -> None:
    """The same holds after drafting, verifying, accepting, rewinding and cutting."""
    session, cache, *_ = decoding(name, rewind=strategy, head_rows=policy)
    stream, found = plain(name).tokens(6), list[int]()
    session.inject(scripted(stream, 1, 4, 2))
    found.append(pending(arrays_of(cache)))
    verified = session.verify(scripted(stream, 1, 4, 2))
    found.append(pending([*arrays_of(cache), verified.hidden, verified.logits]))
    outcome = session.accept()
    found.append(pending([*arrays_of(cache), outcome.logprobs]))
    session.rewind(outcome)
    found.append(pending(arrays_of(cache)))
    session.cut(2)
    found.append(pending(arrays_of(cache)))
    assert found == [0] * 5


@pytest.mark.parametrize("name", MODELS)
def test_after_a_full_accept(
    decoding: Callable[..., Decoding], plain: Callable[..., Plain], name: str
) -> None:
    """The row the head makes after a full accept is evaluated too."""
    session, cache, *_ = decoding(name)
    play(session, plain(name).tokens(6), 1, 3, 3)
    assert pending(arrays_of(cache)) == 0


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("name", MODELS)
def test_after_a_cancel(decoding: Callable[..., Decoding], name: str, strategy: str) -> None:
    """After a cancelled round nothing waits either."""
    session, cache, *_ = decoding(name, rewind=strategy)
    session.verify(session.draft(3))
    session.cancel()
    assert pending(arrays_of(cache)) == 0
