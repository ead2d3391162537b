"""Generation: what is yielded, as in mlx-lm."""

from collections.abc import Callable
from itertools import islice
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from mtp_conformance.exactness import bits_equal
from mtp_decoder import Session, generate_step
from tests.decoder.conftest import Zoo
from tests.decoder.helpers import PROMPT, VOCABULARY
from tests.models.helpers import number

FORMS: dict[str, Callable[[list[int]], Any]] = {
    "list": list,
    "tuple": tuple,
    "mx.array": mx.array,
    "np.int64": lambda tokens: np.array(tokens, np.int64),
    "list of np.int64": lambda tokens: list(np.array(tokens, np.int64)),
}


@pytest.mark.parametrize("k", [0, 3])
def test_types(zoo: Zoo, k: int) -> None:
    """Each emission is a token id, its row of log-probabilities, and whether it was drafted."""
    for token, logprobs, from_draft in generate_step(
        PROMPT, *zoo("gdn"), num_draft_tokens=k, max_tokens=5
    ):
        assert (type(token), type(from_draft)) == (int, bool)
        assert logprobs.shape == (VOCABULARY,)


@pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16])
def test_log_probabilities(zoo: Zoo, dtype: mx.Dtype) -> None:
    """Log-probabilities are the logits less their log-sum-exp, in the logits' dtype."""
    target, _ = zoo("gdn", dtype)
    logits = Session(target).prefill(PROMPT).logits
    expected = logits - mx.logsumexp(logits, axis=-1, keepdims=True)
    _, logprobs, _ = next(generate_step(PROMPT, target, num_draft_tokens=0))
    assert bits_equal(logprobs, expected[0]) is None


def test_the_token_is_the_likeliest(zoo: Zoo) -> None:
    """By default each token is the likeliest of its own row, with drafts too."""
    emitted = list(generate_step(PROMPT, *zoo("window"), num_draft_tokens=4, max_tokens=8))
    assert [token for token, *_ in emitted] == [number(row.argmax()) for _, row, _ in emitted]


@pytest.mark.parametrize("form", FORMS)
def test_forms_of_a_prompt(zoo: Zoo, form: str) -> None:
    """A prompt is any sequence or array of token ids, MLX's or NumPy's."""
    target, head = zoo("gdn")
    emitted = islice(generate_step(FORMS[form](PROMPT), target, head), 3)
    expected = islice(generate_step(list(PROMPT), target, head), 3)
    assert [token for token, *_ in emitted] == [token for token, *_ in expected]


@pytest.mark.parametrize("step", [1, 2, 5, 12, 13, 64])
def test_prefill_steps(zoo: Zoo, step: int) -> None:
    """The number of prompt tokens a pass changes no bit."""
    target, head = zoo("flash-next")
    whole = next(generate_step(PROMPT, target, head))
    pieces = next(generate_step(PROMPT, target, head, prefill_step_size=step))
    assert bits_equal(pieces[1], whole[1]) is None
