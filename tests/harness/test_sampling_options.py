"""Options of sampling on their way to the builtin runtime."""

import sys
from dataclasses import replace
from pathlib import Path

import mlx.core as mx
import pytest

from mtp_conformance import Cell, Options, Oracles, Unsupported
from mtp_conformance.adapters import builtin
from mtp_conformance.process import ProcessRuntime

HOT = Options(temperature=1.0, top_k=9, seed=2, allowed_tokens=((1, 2, 3), (4, 5)))
CELL = Cell("gdn", dtype="float32", prompt_length=5)


@pytest.fixture
def in_process(tmp_path: Path) -> Oracles:
    """Oracles over the builtin runtime in this process."""
    return Oracles(builtin.make_runtime(), builtin.zoo_materials(tmp_path))


@pytest.mark.parametrize(
    "other", [{"temperature": 0.1}, {"repetition_penalty": 1.1}, {"allowed_tokens": ((1,),)}]
)
def test_greedy(other: dict[str, float]) -> None:
    """Tokens are held to their rows' maxima only where nothing else chooses them."""
    assert Options(seed=3, top_k=5).greedy
    assert not replace(Options(), **other).greedy


def test_tokens_that_are_not_the_likeliest(in_process: Oracles) -> None:
    """Outcomes of a session that samples are taken, and their logits are the model's own."""
    group = in_process.group(CELL)
    session = group.open(HOT)
    first = session.prefill(group.prompt)
    assert first.tokens[0] in (1, 2, 3)
    assert first.logits is not None
    assert mx.array_equal(first.logits, group.plain_logits(0))
    assert session.round((4, 1)).tokens[0] in (4, 5)


def test_over_stdio(in_process: Oracles, tmp_path: Path) -> None:
    """A runtime in another process is asked for the same options."""
    group = in_process.group(CELL)
    expected = group.open(HOT).generate(group.prompt, num_draft_tokens=0, max_tokens=6)
    runtime = ProcessRuntime(f"{sys.executable} -m tests.fakes.stdio_runtime good")
    session = runtime.open("gdn", group.checkpoint, HOT)
    assert session.generate(group.prompt, num_draft_tokens=2, max_tokens=6).tokens == (
        expected.tokens
    )
    runtime.close()


def test_a_fork_samples_otherwise(in_process: Oracles) -> None:
    """A fork may have another temperature and seed; penalty and mask stay."""
    group = in_process.group(CELL)
    base = group.open(HOT)
    base.prefill(group.prompt)
    twins = [base.fork(replace(HOT, temperature=20.0, seed=seed)) for seed in range(12)]
    assert len({twin.round(()).tokens for twin in twins}) > 1
    with pytest.raises(Unsupported, match="are set when a session is opened"):
        base.fork(Options())
