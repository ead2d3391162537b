"""Stop strings: ids, text and log-probabilities."""

from dataclasses import replace

from mtp_conformance import Capability, Cell, Oracles, Witness, case, require_equal, require_tokens
from mtp_conformance.grid import spread
from mtp_conformance.group import target_arrays

LETTERS = tuple(range(ord("a"), ord("z") + 1))
WHEEL = (LETTERS, LETTERS, (0xC3,), (0xA9,), LETTERS, (ord(" "),))
"""Two letters, an e with an acute accent in two tokens, a letter and a space: text, whatever the
model's logits are."""
WIDE = 2


@case(
    "emit.stop.text",
    clause="stop-text",
    needs=("stream", "guess", "state", "mask", "text"),
    oracle="K=0 of the same runtime without a stop, cut by hand",
    witness="accepts, and stop strings completed inside a block",
    faults=("T8",),
    since="0.1.0",
    cells=spread(models=("gdn", "gdn+mlx-lm"), depths=(4,)),
)
def test_stop_text(oracles: Oracles, cell: Cell, witness: Witness) -> None:
    """Wherever a stop string is completed in a block, ids, log-probabilities and caches end there.

    The text ends where the stop string begins.
    """
    oracles.need(Capability.STREAM, Capability.GUESS, Capability.STATE)
    oracles.need(Capability.MASK, Capability.TEXT)
    oracles.held_after_stop(1)
    group, k = oracles.group(cell), cell.k or 0
    options = replace(oracles.options(cell), allowed_tokens=WHEEL)
    length = 2 * k + 6
    with oracles.bits_against_steps(group, k):
        plain = group.open(options).generate(
            group.prompt, num_draft_tokens=0, max_tokens=length, stop_strings=["never"]
        )
        whole = bytes(plain.tokens)
        witness.add(compared=_same_text(plain.text, whole.decode(errors="ignore")))
        assert len(plain.logprobs) == len(plain.tokens), "not one log-probability a token"
        for end in range(WIDE, 2 * k + 4):
            stop = whole[end - WIDE : end].decode(errors="ignore")
            if not stop or not whole[:end].decode(errors="ignore").endswith(stop):
                continue
            due = whole.find(stop.encode()) + len(stop.encode())
            session = group.open(options)
            made = session.generate(
                group.prompt,
                num_draft_tokens=k,
                max_tokens=length,
                guess=plain.tokens,
                stop_strings=[stop],
            )
            compared = require_tokens(made.tokens, whole[:due], what=f"K=0 up to {stop!r}")
            text = whole[: due - len(stop.encode())].decode()
            compared += _same_text(made.text, text)
            assert made.logprobs == plain.logprobs[:due], (
                f"log-probabilities do not end with the token that completes {stop!r}"
            )
            held = group.open(options)
            held.generate(group.prompt, num_draft_tokens=0, max_tokens=due)
            compared += require_equal(
                target_arrays(session.state()),
                target_arrays(held.state()),
                what=f"K=0 with a budget that ends with {stop!r}",
            )
            witness.add(compared=compared, inside=int(0 < due - 1 <= k), **made.engagement)
    witness.require(accepted=k, inside=1)


def _same_text(text: str, due: str) -> int:
    assert text == due, f"the text is {text!r}, and {due!r} is due"
    return 1
