"""Decoding with the trained checkpoints: the same tokens with drafts, and drafts worth making."""

import json
import shutil
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.utils import load_model

from mtp_conformance.exactness import require_equal
from mtp_decoder import Counters, Head, Sampling, Session, Target
from mtp_decoder.qwen.load import load
from reference_models.checkpoint import read
from reference_models.prompts import PROMPTS
from reference_models.tokenizer import encode
from reference_models.training.ship import TRAINED
from reference_models.training.texts import NAMES, held_out, text
from tests.decoder.command_line import CommandLine
from tests.models.helpers import load_file, number, save_file

pytestmark = pytest.mark.xdist_group("trained")  # streams are shared
QWEN = TRAINED / "qwen3_5-bytes"
READER = ("--loader", "reference_models.checkpoint:read")
FLOORS = (0.5, 0.3, 0.15)
"""What share of rounds must accept one, two, three drafts at temperature 0.7."""
ARMS = ("qwen3_5-bytes", "flash-next-bytes", "qwen3_5-bytes by mlx-lm")


class Stream(NamedTuple):
    """Tokens decoded, their log-probabilities, and what the drafts were worth."""

    tokens: list[int]
    rows: mx.array
    counters: Counters


@cache
def _model(arm: str) -> tuple[Target, Head]:
    if arm in ("qwen3_5-bytes", "flash-next-bytes"):
        return read(TRAINED / arm)
    loaded = load(QWEN)
    assert loaded.head is not None
    return loaded.target, loaded.head


@cache
def _stream(arm: str, prompt: str, k: int, count: int) -> Stream:
    """At least `count` tokens at temperature 0.7 after the first 48 of a prompt."""
    target, head = _model(arm)
    session = Session(target, head if k else None, sampling=Sampling(temp=0.7, seed=5))
    outcome = session.prefill(encode(PROMPTS[prompt])[:48])
    tokens, rows = list(outcome.tokens), [outcome.logprobs]
    while len(tokens) < count:
        outcome = session.round(k)
        tokens += outcome.tokens
        rows.append(outcome.logprobs)
    return Stream(tokens, mx.concatenate(rows), session.counters)


@pytest.mark.parametrize("prompt", PROMPTS)
@pytest.mark.parametrize("arm", ARMS)
def test_same_stream_with_drafts(arm: str, prompt: str) -> None:
    """Tokens and log-probabilities with K=3 are those with K=0, to the bit."""
    drafted, plain = _stream(arm, prompt, 3, 64), _stream(arm, prompt, 0, 32)
    count = len(plain.tokens)
    assert drafted.counters.rejected > 0
    assert drafted.tokens[:count] == plain.tokens
    found, expected = {"rows": drafted.rows[:count]}, {"rows": plain.rows}
    require_equal(found, expected, what="the stream without drafts")


@pytest.mark.parametrize("prompt", PROMPTS)
@pytest.mark.parametrize("arm", ARMS)
def test_acceptance(arm: str, prompt: str) -> None:
    """Drafts stand about as often as a real head's: most first ones, fewer of the later."""
    counters = _stream(arm, prompt, 3, 64).counters
    shares = [count / counters.rounds for count in counters.accepted_by_depth]
    assert len(shares) == len(FLOORS)
    assert all(share >= floor for share, floor in zip(shares, FLOORS, strict=True)), shares
    assert shares[2] < 0.95  # and not all of them, or nothing would be rewound


@pytest.mark.parametrize("name", ["qwen3_5-bytes", "flash-next-bytes"])
def test_near_ties(name: str) -> None:
    """On held-out text the two likeliest logits are now and then the same bfloat16 number."""
    target, _ = read(TRAINED / name)
    tokens = mx.array(np.stack([held_out(text(part))[:256] for part in NAMES]))
    best = mx.sort(target(tokens), axis=-1)[..., -2:]
    assert number((best[..., 0] == best[..., 1]).sum()) > 0


def test_mlx_lm_reads_the_same_model(tmp_path: Path) -> None:
    """mlx-lm's class gives the reference model's logits within 1e-3, both in float32."""
    folder = Path(shutil.copytree(QWEN, tmp_path / "wide"))
    tensors, metadata = load_file(folder)
    save_file(folder, {n: a.astype(mx.float32) for n, a in tensors.items()}, metadata)
    tokens = mx.array([encode(PROMPTS["code"])[:64]])
    theirs, ours = load_model(folder)[0](tokens), read(folder)[0](tokens)
    assert number(mx.abs(theirs - ours).max()) < 1e-3


def _written(generate: CommandLine, name: str, *options: str) -> dict[str, Any]:
    prompt = "def read(self, name):\n    "
    done = generate(TRAINED / name, "--json", "--max-tokens", "48", *options, prompt=prompt)
    assert (done.code, done.err) == (0, "")
    return json.loads(done.out)


@pytest.mark.parametrize(("name", "options"), [("qwen3_5-bytes", ()), ("flash-next-bytes", READER)])
def test_command_line(generate: CommandLine, name: str, options: tuple[str, ...]) -> None:
    """`python -m mtp_decoder generate --model DIR` writes on, and most first drafts stand."""
    record = _written(generate, name, *options)
    assert record["accepted_by_depth"][0] / record["rounds"] > 0.5


def test_command_line_by_rates(generate: CommandLine) -> None:
    """How often `--depth-policy rate` drafts is for the clock to say; what it writes is not."""
    name = "flash-next-bytes"
    fixed = _written(generate, name, *READER)
    rate = _written(generate, name, *READER, "--expert-budget", "200K", "--depth-policy", "rate")
    assert len(fixed["tokens"]) == 48
    assert rate["tokens"] == fixed["tokens"]
    assert rate["drafted_by_depth"][0] > 0
    assert rate["experts"]["target"]["reads"] > 0
