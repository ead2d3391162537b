"""A complete adapter: mlx-lm's plain decoding behind the protocol, with drafts verified by steps.

It offers streams and injected drafts of an attention-only or hybrid model that mlx-lm can
load. Its "speculation" verifies a draft by decoding one token and comparing, so nothing ever
has to be rewound: a correct, slow decoder to start an adapter of your own from.

    mtp-conformance smoke --runtime-cmd "python docs/examples/adapter.py" --model gdn
    mtp-conformance run --runtime-cmd "python docs/examples/adapter.py" --profile smoke
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx_lm.utils import load_model

from mtp_conformance.protocol import Capability, Description, Generated, Options, Outcome
from mtp_conformance.stdio import serve


class StepwiseRuntime:
    """Opens any folder mlx-lm can open."""

    def describe(self) -> Description:
        """The card; cases that need more than these capabilities are unsupported."""
        return Description(
            name="stepwise-example",
            versions={"mlx": version("mlx")},
            capabilities=frozenset(
                {Capability.STREAM, Capability.GUESS, Capability.DRAFTS, Capability.LOGITS}
            ),
            max_draft_tokens=8,
        )

    def open(self, model: str, checkpoint: Path, options: Options) -> StepwiseSession:
        """A new session on an empty cache."""
        del options
        try:
            loaded: Any = load_model(checkpoint)[0]
            mx.eval(loaded(mx.array([[0]]), cache=loaded.make_cache()))
        except (ValueError, TypeError, RuntimeError) as error:
            raise ValueError(f"unsupported: mlx-lm cannot run {model}: {error}") from error
        return StepwiseSession(loaded)


class StepwiseSession:
    """One sequence; the cache holds every emitted token but the last."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._cache = model.make_cache()
        self._anchor = 0

    def _step(self, tokens: Sequence[int]) -> mx.array:
        """Run tokens and return the last one's logits [1, V]; the greedy token is the anchor."""
        logits = self._model(mx.array([list(tokens)]), cache=self._cache)[:, -1]
        self._anchor = int(logits.argmax(-1).item())
        return logits

    def prefill(self, tokens: Sequence[int]) -> Outcome:
        """Run the prompt and emit the first token."""
        logits = self._step(tokens)
        return Outcome(0, (self._anchor,), logits)

    def round(self, drafts: Sequence[int]) -> Outcome:
        """Verify drafts one by one until one is wrong."""
        rows, emitted = [self._step([self._anchor])], [self._anchor]
        for draft in drafts:
            if self._anchor != draft:
                break
            rows.append(self._step([self._anchor]))
            emitted.append(self._anchor)
        rows += [rows[-1]] * (len(drafts) + 1 - len(rows))  # rows of rejected drafts: unread
        return Outcome(len(emitted) - 1, tuple(emitted), mx.concatenate(rows))

    def generate(
        self,
        tokens: Sequence[int],
        *,
        num_draft_tokens: int,
        max_tokens: int,
        eos_token_ids: Sequence[int] = (),
        stop_sequences: Sequence[Sequence[int]] = (),
        guess: Sequence[int] | None = None,
    ) -> Generated:
        """Decode to an end; without a guess the last token is drafted again."""
        emitted = list(self.prefill(tokens).tokens)
        stops = [tuple(s) for s in stop_sequences] + [(t,) for t in eos_token_ids]
        drafted = accepted = 0
        while len(emitted) < max_tokens and not _stopped(emitted, stops):
            k = min(num_draft_tokens, max_tokens - len(emitted) - 1)
            source = [emitted[-1]] * k if guess is None else guess[len(emitted) :][:k]
            for draft in (*source, None):
                drafted += draft is not None
                self._step([self._anchor])
                emitted.append(self._anchor)
                accepted += self._anchor == draft
                if self._anchor != draft or _stopped(emitted, stops):
                    break
        return Generated(tuple(emitted), drafted, accepted)

    def close(self) -> None:
        """Nothing is held."""


def _stopped(emitted: list[int], stops: list[tuple[int, ...]]) -> bool:
    return any(tuple(emitted[-len(stop) :]) == stop for stop in stops)


if __name__ == "__main__":
    serve(StepwiseRuntime())
