"""mlx-lm's models: layer by layer the same as in one call."""

from collections.abc import Callable

import mlx.core as mx
import pytest
from mlx_lm.generate import generate_step as mlx_lm_generate_step

from mtp_conformance.exactness import bits_equal, require_equal
from mtp_decoder import DecoderError, generate_step
from mtp_decoder.qwen.load import Loaded
from mtp_decoder.qwen.target import QwenTarget
from mtp_decoder.state import named_state
from mtp_decoder.window import forward
from tests.decoder.conftest import Zoo
from tests.decoder.helpers import PROMPT, frozen

MODELS = ("gdn", "gdn-moe", "gdn-next")


@pytest.mark.parametrize("name", MODELS)
def test_logits(qwen: Callable[[str], Loaded], name: str) -> None:
    """Logits of prompt, block and single token are those of mlx-lm's own call, in bits."""
    target = qwen(name).target
    ours, theirs = target.make_cache(), target.make_cache()
    for tokens in (mx.array([PROMPT]), mx.array([[7, 8, 256, 9]]), mx.array([[5]])):
        logits = target.logits(forward(target, tokens, ours))
        assert bits_equal(logits, target.model(tokens, theirs)) is None


@pytest.mark.parametrize("name", MODELS)
def test_caches(qwen: Callable[[str], Loaded], name: str) -> None:
    """The caches hold what mlx-lm's own call leaves in them, to the last spare row."""
    target = qwen(name).target
    ours, theirs = target.make_cache(), target.make_cache()
    for tokens in (mx.array([PROMPT]), mx.array([[7, 8, 256, 9]]), mx.array([[5]])):
        forward(target, tokens, ours)
        mx.eval(target.model(tokens, theirs))
    require_equal(frozen(ours), frozen(theirs), what="mlx-lm's caches")


@pytest.mark.parametrize("name", MODELS)
def test_tokens(qwen: Callable[[str], Loaded], name: str) -> None:
    """Without drafts the tokens are those of mlx-lm's own generation."""
    target = qwen(name).target
    theirs = mlx_lm_generate_step(
        mx.array(PROMPT), target.model, mx.default_stream(mx.cpu), max_tokens=12
    )
    ours = generate_step(PROMPT, target, num_draft_tokens=0, max_tokens=12)
    assert [token for token, *_ in ours] == [token for token, _ in theirs]


@pytest.mark.parametrize("name", MODELS)
def test_log_probabilities(qwen: Callable[[str], Loaded], name: str) -> None:
    """So are their log-probabilities, in bits."""
    target = qwen(name).target
    theirs = mlx_lm_generate_step(
        mx.array(PROMPT), target.model, mx.default_stream(mx.cpu), max_tokens=6
    )
    ours = generate_step(PROMPT, target, num_draft_tokens=0, max_tokens=6)
    pairs = zip(ours, theirs, strict=True)
    assert [bits_equal(one[1], other[1]) for one, other in pairs] == [None] * 6


@pytest.mark.parametrize("name", MODELS)
def test_state_names(qwen: Callable[[str], Loaded], zoo: Zoo, name: str) -> None:
    """The state has the names and shapes of the reference model's of the same checkpoint."""
    shapes: list[dict[str, tuple[int, ...]]] = []
    for target in (qwen(name).target, zoo(name)[0]):
        caches = target.make_cache()
        forward(target, mx.array([PROMPT]), caches)
        state = named_state(target.layers, caches, "layers")
        shapes.append({n: array.shape for n, array in state.items()})
    assert shapes[0] == shapes[1]


def test_another_model(zoo: Zoo) -> None:
    """A model of another class is refused by its class, with the families there are."""
    with pytest.raises(DecoderError, match=r"HybridModel with drafts; .* qwen3_5, qwen3_5_moe, q"):
        QwenTarget(zoo("gdn")[0])
