"""Decoding golden vectors: choosing prompts, and running scripts again.

Values come from the runtime under judgement, through the same protocol as everything else.
When goldens are made, what the rounds leave must also be, to the bit, what one fresh pass
over prompt and committed tokens leaves: nothing that a rewind did is pinned as right.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import mlx.core as mx
import numpy as np

from mtp_conformance.checked import CheckedRuntime, CheckedSession
from mtp_conformance.exactness import require_equal
from mtp_conformance.failure import RuntimeFailure
from mtp_conformance.golden.contents import (
    Array,
    GoldenError,
    Round,
    Script,
    Tokens,
    Vector,
    array_of,
)
from mtp_conformance.oracles import TIE_FREE_GAP, Materials
from mtp_conformance.protocol import Capability, Options

Rounds = tuple[tuple[int, int], ...]
"""Rounds as (K, accepted)."""


@dataclass(frozen=True)
class Plan:
    """What a vector is to be; the text it is taken from is the suite's.

    Attributes:
        id: of the vector.
        prompt_length: tokens of its prompt.
        start: where in the text the search for a clear stretch begins.
        stream_length: tokens K=0 emits.
        scripts: rounds by id.
    """

    id: str
    prompt_length: int
    start: int
    stream_length: int
    scripts: Mapping[str, Rounds]


PLANS = (
    Plan(
        "code",
        prompt_length=12,
        start=0,
        stream_length=24,
        scripts={
            "mixed": ((3, 1), (1, 0), (4, 4), (0, 0), (2, 2), (5, 2), (8, 3)),
            "reject-all": ((4, 0), (4, 0), (4, 0)),
            "accept-all": ((3, 3), (2, 2)),
        },
    ),
    Plan(
        "prose",
        prompt_length=5,
        start=40,
        stream_length=12,
        scripts={"mixed": ((2, 1), (3, 0), (1, 1), (0, 0))},
    ),
)

CLEAR_BY = {"float32": (0.01,), "bfloat16": (0.09, 0.06, 0.03)}
"""How far the chosen logit is to lie above the others, by data type: the first that any stretch of
the text reaches. One bfloat16 is 1/32 from the next where logits lie between 4 and 8."""

OPTIONS = Options(head_rows="target")
"""Head rows from verified residuals: what the head's cache holds is then a matter of the tokens
alone, as if they had all been prefilled."""

_WRONG_TAIL = (256, 101, 32, 256, 116, 10, 97)
"""What follows a wrong draft: ends of text and other tokens that disturb every state."""


def make_tokens(
    runtime: CheckedRuntime, checkpoint: Path, model: str, dtype: str, materials: Materials
) -> Tokens:
    """Choose a clear stretch of text for every plan, decode it, and script the rounds.

    Raises:
        GoldenError: the text has no stretch that is clear enough.
    """
    vectors: list[Vector] = []
    for plan in PLANS:
        found = _clear_stretch(runtime, checkpoint, (model, dtype), plan, materials)
        if found is None:
            raise GoldenError(
                f"{model} in {dtype}: no {plan.prompt_length} tokens of the text decode "
                f"{plan.stream_length} tokens each clear by {CLEAR_BY[dtype][-1]}; "
                "give the suite another text"
            )
        prompt, stream, clear_by = found
        scripts = tuple(
            Script(id, tuple(_rounds(stream, len(prompt), rounds)))
            for id, rounds in plan.scripts.items()
        )
        vectors.append(Vector(plan.id, prompt, stream, clear_by, scripts))
    return Tokens(model, dtype, tuple(vectors))


def _clear_stretch(
    runtime: CheckedRuntime,
    checkpoint: Path,
    kind: tuple[str, str],
    plan: Plan,
    materials: Materials,
) -> tuple[tuple[int, ...], tuple[int, ...], float] | None:
    """Prompt, stream and how clear it is: the first stretch of the text that is clear enough."""
    model, dtype = kind
    length, text = plan.prompt_length, materials.prompt
    starts = range(len(text) - length)
    for clear_by in CLEAR_BY[dtype]:
        for start in (*starts[plan.start :], *starts[: plan.start]):
            prompt = tuple(text[start : start + length])
            session = runtime.open(model, checkpoint, OPTIONS)
            stream = _clear_stream(session, prompt, plan.stream_length, clear_by)
            if stream is None:
                continue
            if materials.index_gap(checkpoint, prompt, plan.stream_length) > TIE_FREE_GAP:
                return prompt, stream, clear_by
    return None


def _clear_stream(
    session: CheckedSession, prompt: Sequence[int], length: int, clear_by: float
) -> tuple[int, ...] | None:
    """What K=0 emits; None from the first token on that is not clear."""
    outcome = session.prefill(prompt)
    stream = outcome.tokens
    while outcome.logits is not None and lead(outcome.logits) >= clear_by:
        if len(stream) == length:
            return stream
        outcome = session.round(())
        stream += outcome.tokens
    return None


def lead(logits: mx.array) -> float:
    """How far the largest logit [1, V] lies above the largest that is not equal to it."""
    row = np.array(logits.astype(mx.float32)).ravel()
    others = row[row < row.max()]
    return float(row.max() - others.max()) if others.size else 0.0


def _rounds(stream: Sequence[int], prompt_length: int, script: Rounds) -> Iterator[Round]:
    emitted = 1
    for k, accepted in script:
        right = tuple(stream[emitted : emitted + accepted])
        wrong = () if accepted == k else ((stream[emitted + accepted] + 1) % 256,)
        tail = (_WRONG_TAIL * 2)[: k - accepted - 1] if wrong else ()
        due = tuple(stream[emitted : emitted + accepted + 1])
        emitted += accepted + 1
        held = prompt_length + emitted - 1
        yield Round(right + wrong + tail, accepted, due, held, held - 1)


def replay(
    runtime: CheckedRuntime, checkpoint: Path, tokens: Tokens, *, prove: bool = False
) -> tuple[Tokens, dict[str, Array]]:
    """Decode a token golden's prompts and rounds again.

    Args:
        runtime: the decoder.
        checkpoint: the folder it opens.
        tokens: prompts and drafts are taken from here, nothing else.
        prove: demand that every state is that of a fresh pass over the same tokens, and every row
            of logits that of K=0.

    Returns:
        What was emitted, and every array that the runtime shows.

    Raises:
        RuntimeFailure: the runtime cannot run them.
        AssertionError: with `prove`, names the round and the array that is not.
    """
    if not runtime.offers(Capability.STREAM):
        raise RuntimeFailure(f"{runtime.description.name} does not offer stream")
    vectors: list[Vector] = []
    arrays: dict[str, Array] = {}
    for vector in tokens.vectors:
        played = _Playing(runtime, checkpoint, tokens, vector, prove=prove)
        vectors.append(played.vector())
        arrays |= {f"{vector.id}/{name}": array_of(a) for name, a in played.arrays.items()}
    return Tokens(tokens.model, tokens.dtype, tuple(vectors)), arrays


class _Playing:
    """One vector, decoded again; `arrays` has what was seen."""

    def __init__(
        self,
        runtime: CheckedRuntime,
        checkpoint: Path,
        tokens: Tokens,
        vector: Vector,
        *,
        prove: bool,
    ) -> None:
        self._runtime, self._due, self._prove = runtime, vector, prove
        self._open = lambda: runtime.open(tokens.model, checkpoint, self._options)
        heads = runtime.description.head_rows
        self._options = OPTIONS if OPTIONS.head_rows in heads else Options(head_rows=heads[0])
        self._rows: list[mx.array] = []
        self.arrays: dict[str, mx.array] = {}

    def vector(self) -> Vector:
        """Decode the stream and the scripts."""
        due = self._due
        if not self._runtime.offers(Capability.DRAFTS):
            made = self._open().generate(due.prompt, num_draft_tokens=0, max_tokens=len(due.stream))
            return Vector(due.id, due.prompt, made.tokens, due.clear_by, due.scripts)
        stream = self._stream()
        scripts = tuple(Script(s.id, tuple(self._script(s))) for s in due.scripts)
        return Vector(due.id, due.prompt, stream, due.clear_by, scripts)

    def _stream(self) -> tuple[int, ...]:
        session = self._open()
        outcome = session.prefill(self._due.prompt)
        stream, outcomes = outcome.tokens, [outcome]
        self._keep_state("prefill", session, ())
        for _ in self._due.stream[1:]:
            outcomes.append(session.round(()))
            stream += outcomes[-1].tokens
        self._rows = [o.logits for o in outcomes if o.logits is not None]
        if self._rows:
            self.arrays["logits"] = mx.concatenate(self._rows)
        return stream

    def _script(self, script: Script) -> Iterator[Round]:
        session = self._open()
        emitted = session.prefill(self._due.prompt).tokens
        for number, due in enumerate(script.rounds, start=1):
            outcome = session.round(due.drafts)
            emitted += outcome.tokens
            if outcome.logits is not None:
                kept = outcome.logits[: outcome.accepted + 1]
                self._keep_logits(f"{script.id}/{number}/logits", kept, len(emitted))
            self._keep_state(f"{script.id}/{number}", session, emitted[:-1])
            held = len(self._due.prompt) + len(emitted) - 1
            yield Round(due.drafts, outcome.accepted, outcome.tokens, held, held - 1)

    def _keep_logits(self, name: str, logits: mx.array, emitted: int) -> None:
        self.arrays[name] = logits
        if self._prove:
            plain = mx.concatenate(self._rows[emitted - logits.shape[0] : emitted])
            require_equal({"logits": logits}, {"logits": plain}, what=f"K=0 at {name}")

    def _keep_state(self, name: str, session: CheckedSession, committed: Sequence[int]) -> None:
        if not self._runtime.offers(Capability.STATE):
            return
        state = session.state()
        if self._prove and committed:
            fresh = self._open()
            fresh.prefill([*self._due.prompt, *committed])
            what = f"a fresh pass over the same tokens, at {name}"
            require_equal(state, fresh.state(), what=what)
        if self._options.head_rows != OPTIONS.head_rows:  # then they are not what is pinned
            state = {n: a for n, a in state.items() if not n.startswith("head.")}
        self.arrays |= {f"{name}/{array}": value for array, value in state.items()}
