"""A model's result does not depend on how its tokens are cut into calls."""

import random
from collections.abc import Sequence
from itertools import pairwise

import mlx.core as mx
import pytest

from mtp_conformance.exactness import require_equal
from mtp_decoder.state import named_state
from reference_models.hybrid import HybridModel
from reference_models.prompts import prompt_tokens
from reference_models.zoo import ZOO
from tests.models.conftest import Zoo

State = dict[str, mx.array]
TOKENS = prompt_tokens(40)
# One by one until every window has wrapped and every selection is sparse, then in chunks.
CUTS = (*range(1, 18), *sorted(random.Random(3).sample(range(18, 40), 6)))


def _run(target: HybridModel, cuts: Sequence[int]) -> State:
    """Logits and state of the tokens, in calls that end at the cuts."""
    cache = target.make_cache()
    bounds = [0, *cuts, len(TOKENS)]
    parts = [target(mx.array([TOKENS[a:b]]), cache) for a, b in pairwise(bounds)]
    state = named_state(target.layers, cache, "layers")
    return {"logits": mx.concatenate(parts, axis=1), **state}


@pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16])
@pytest.mark.parametrize("name", ZOO)
def test_logits_and_state(zoo: Zoo, name: str, dtype: mx.Dtype) -> None:
    """Tokens one by one, and chunks of any size, give the bits of one call."""
    target, _ = zoo(name, dtype)
    require_equal(_run(target, CUTS), _run(target, []), what="a single call")


@pytest.mark.parametrize("name", ZOO)
def test_the_head(zoo: Zoo, name: str) -> None:
    """The head too gives the same bits for pairs together and one by one."""
    target, head = zoo(name)
    hidden = mx.random.normal((1, 16, target.config.wide_size), key=mx.random.key(5))
    tokens, results = mx.array([TOKENS[:16]]), list[State]()
    for size in (16, 1, 5):
        cache, rows = head.make_cache(), list[mx.array]()
        for start in range(0, 16, size):
            part = slice(start, start + size)
            rows.append(mx.concatenate([*head(hidden[:, part], tokens[:, part], cache)], axis=-1))
        state = named_state(head.layers, cache, "head")
        results.append({"rows": mx.concatenate(rows, axis=1), **state})
    require_equal(results[1], results[0], what="all pairs in one call")
    require_equal(results[2], results[0], what="all pairs in one call")


@pytest.mark.parametrize("name", ZOO)
def test_every_token_matters(zoo: Zoo, name: str) -> None:
    """The last logits depend on every token, the first one of a prompt included."""
    target, _ = zoo(name)
    other = target(mx.array([[(TOKENS[0] + 1) % 256, *TOKENS[1:8]]]))[0, -1]
    assert (other != target(mx.array([TOKENS[:8]]))[0, -1]).any().item()
