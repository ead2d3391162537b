"""Several stop strings, one inside another or overlapping it."""

from collections.abc import Sequence
from dataclasses import replace

from mtp_conformance import Capability, Cell, Oracles, Witness, case, require_tokens
from mtp_conformance.grid import spread

LETTERS = tuple(range(ord("a"), ord("z") + 1))
WHEEL = (LETTERS, LETTERS, LETTERS, (0xC3,), (0xA9,), LETTERS, (ord(" "),))
"""Text, whatever the model's logits are: letters, an e with an acute accent, a space."""
PLACES = (2, 4)
"""Characters that a stop string ends with, inside a block."""


@case(
    "emit.stop.several-texts",
    clause="stop-text",
    needs=("stream", "guess", "mask", "text"),
    oracle="K=0 of the same runtime without a stop, cut by hand",
    witness="accepts, and stop strings completed inside a block",
    since="0.1.0",
    cells=spread(models=("attn", "gdn+mlx-lm"), depths=(4,), not_by_default=("gdn+mlx-lm",)),
)
def test_several_texts(oracles: Oracles, cell: Cell, witness: Witness) -> None:
    """Of several stop strings the one that is complete first ends ids and text, however listed.

    Where one token completes two of them the text ends where the first of them begins.
    """
    oracles.need(Capability.STREAM, Capability.GUESS, Capability.MASK, Capability.TEXT)
    group, k = oracles.group(cell), cell.k or 0
    options = replace(oracles.options(cell), allowed_tokens=WHEEL)
    length = 2 * k + 4
    with oracles.bits_against_steps(group, k):
        plain = group.open(options).generate(
            group.prompt, num_draft_tokens=0, max_tokens=length, stop_strings=["never"]
        )
        whole = bytes(plain.tokens)
        for stops in _overlapping(whole.decode(errors="ignore")):
            count, text = _cut(whole, stops)
            made = group.open(options).generate(
                group.prompt,
                num_draft_tokens=k,
                max_tokens=length,
                guess=plain.tokens,
                stop_strings=stops,
            )
            compared = require_tokens(made.tokens, whole[:count], what=f"K=0 up to one of {stops}")
            assert made.text == text, f"the text is {made.text!r}, and {text!r} is due by {stops}"
            ended = len(made.logprobs)
            assert ended == count, f"{ended} log-probabilities for {count} tokens, by {stops}"
            witness.add(compared=compared + 1, inside=int(0 < count - 1 <= k), **made.engagement)
    witness.require(accepted=k, inside=2)


def _overlapping(said: str) -> list[list[str]]:
    """Pairs of stop strings: one begins first and ends last; both end together."""
    found: list[list[str]] = []
    for place in PLACES:
        inner, outer = said[place - 1 : place + 1], said[place - 2 : place + 3]
        longer = said[place - 2 : place + 1]
        found += [[outer, inner], [inner, longer]]
    return found


def _cut(whole: bytes, stops: Sequence[str]) -> tuple[int, str]:
    """How many tokens there are once a stop string is complete, and the text before it."""
    for count in range(1, len(whole) + 1):
        text = whole[:count].decode(errors="ignore")
        begins = [text.find(stop) for stop in stops if stop in text]
        if begins:
            return count, text[: min(begins)]
    raise AssertionError(f"{stops} are no part of what K=0 emits")
