"""The head of mlx-lm's models against the reference model's of the same checkpoint."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import mlx.core as mx
import pytest

from mtp_conformance.exactness import require_equal
from mtp_decoder import Session, generate_step
from mtp_decoder.qwen.load import Loaded, load
from tests.decoder.conftest import Zoo
from tests.decoder.helpers import POLICIES, PROMPT, STRATEGIES, Plain, Source, target_arrays
from tests.models.helpers import load_file, number, save_file

MODELS = ("gdn", "gdn-moe", "gdn-next", "gdn-mtp2")


@pytest.fixture(scope="module")
def runs(qwen: Callable[[str], Loaded]) -> Callable[[str], Plain]:
    """Return a function from a zoo model's name to mlx-lm's model's run without drafts."""
    return cache(lambda name: Plain(qwen(name).target))


@pytest.mark.parametrize("name", MODELS)
def test_draft_logits(qwen: Callable[[str], Loaded], zoo: Zoo, name: str) -> None:
    """On the same pairs both heads give the same drafts, and logits within 1e-3.

    mlx-lm's layers use fused kernels, another arithmetic than the reference models' plain
    operations: bits are not claimed.
    """
    hidden = mx.random.normal((1, 13, 32), key=mx.random.key(3))
    logits: list[mx.array] = []
    for head in (qwen(name).head, zoo(name)[1]):
        assert head is not None
        logits.append(head(hidden, mx.array([PROMPT]), head.make_cache())[0])
    assert number(mx.abs(logits[0] - logits[1]).max()) < 1e-3
    assert logits[0].argmax(-1).tolist() == logits[1].argmax(-1).tolist()


@pytest.mark.parametrize("name", MODELS)
def test_the_chain(qwen: Callable[[str], Loaded], zoo: Zoo, name: str) -> None:
    """A chain of drafts after the same prompt is the same with both heads."""
    drafts: list[list[int]] = []
    for target, head in (qwen(name), zoo(name)):
        session = Session(target, head)
        session.prefill(PROMPT)
        drafts.append(session.draft(5))
    assert drafts[0] == drafts[1]


def test_norms_about_one(checkpoint: Callable[..., Path], tmp_path: Path) -> None:
    """A head stored in mlx's layout, norms about one, is the head of Hugging Face's layout."""
    folder = checkpoint("gdn")
    stored, _ = load_file(folder)
    plain = load(folder)
    shifted = {name: _in_mlx_layout(name, array) for name, array in stored.items()}
    save_file(tmp_path, shifted, {"format": "mlx"})
    (tmp_path / "config.json").write_text((folder / "config.json").read_text())
    for file in folder.glob("tokenizer*"):
        (tmp_path / file.name).write_text(file.read_text())
    other = load(tmp_path)
    sessions = [Session(*loaded) for loaded in (other, plain)]
    for session in sessions:
        session.prefill(PROMPT)
        session.round(3)
    require_equal(sessions[0].state(), sessions[1].state(), what="Hugging Face's layout")


def _in_mlx_layout(name: str, array: mx.array) -> mx.array:
    if name.endswith("conv1d.weight"):
        return mx.contiguous(array.moveaxis(2, 1))
    about_zero = name.endswith("norm.weight") and "linear_attn" not in name
    return array + 1.0 if about_zero or "pre_fc_norm" in name else array


@pytest.mark.parametrize("k", [1, 4])
@pytest.mark.parametrize("name", MODELS)
def test_tokens(
    qwen: Callable[[str], Loaded], runs: Callable[[str], Plain], name: str, k: int
) -> None:
    """With drafts, some right and some wrong, the tokens are those without."""
    target, head = qwen(name)
    expected = runs(name).tokens(10)
    source = Source(expected, wrong=(2, 6))
    emitted = generate_step(
        PROMPT, target, head, num_draft_tokens=k, max_tokens=10, draft_source=source
    )
    assert [token for token, *_ in emitted] == expected


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("name", ["gdn", "gdn-next"])
def test_state(
    qwen: Callable[[str], Loaded],
    runs: Callable[[str], Plain],
    name: str,
    strategy: str,
    policy: str,
) -> None:
    """After rounds with rejects the target's caches are those of a run without drafts."""
    target, head = qwen(name)
    run = runs(name)
    session = Session(target, head, rewind=strategy, head_rows=policy)
    session.prefill(PROMPT)
    source = Source(run.tokens(12), wrong=(2, 6))
    while len(session.history) < len(PROMPT) + 7:
        session.round(drafts=source(session.history, 3))
    emitted = len(session.history) - len(PROMPT)
    require_equal(target_arrays(session.state()), run.state(emitted), what="no drafts")
