"""The drafts a head makes are those of the head run alone."""

from collections.abc import Sequence
from dataclasses import replace

from mtp_conformance import Capability, Cell, Oracles, Unsupported, Witness, case
from mtp_conformance.exactness import StateDiffers
from mtp_conformance.grid import spread, with_trained

LENGTH = 12
CLOSE = 2.0**-10
"""Drafts this close to their runner-up are not held to it: other kernels may round otherwise."""
_SPREAD = with_trained(
    spread(
        models=(
            "attn",
            "gdn-mtp2",
            "flash-next",
            "gdn-agree",
            "gdn-agree+mlx-lm",
            "gdn-moe+mlx-lm",
        ),
        strategies=("tape",),
        depths=(4,),
    ),
    strategies=("tape",),
    depths=(4,),
)


def _in_float32(profile: str) -> Sequence[Cell]:
    return list(dict.fromkeys(replace(cell, dtype="float32") for cell in _SPREAD(profile)))


@case(
    "head.drafts.as-specified",
    clause="draft-chain",
    needs=("stream",),
    oracle="the head of the executable specification, run alone over the committed tokens",
    witness="drafts compared",
    faults=("H7", "H8", "H9"),
    since="0.1.0",
    cells=_in_float32,
)
def test_drafts(oracles: Oracles, cell: Cell, witness: Witness) -> None:
    """Drafts are those of the head run alone, from the target's last hidden state on.

    Round after round where the head's rows can be made from target residuals, else in the first.
    """
    oracles.need(Capability.STREAM)
    group = oracles.group(cell)
    options, _ = oracles.prefill_like(cell)
    made = group.open(options).generate(
        group.prompt, num_draft_tokens=cell.k or 0, max_tokens=LENGTH
    )
    if not made.drafts:
        raise Unsupported("does not show the drafts it makes")
    stream, emitted = group.stream(LENGTH), 1
    for number, drafts in enumerate(made.drafts, start=1):
        tokens = [*group.prompt, *stream[:emitted]]
        due = oracles.expected_drafts(group, tokens, len(drafts))
        witness.add(drafted=len(drafts), compared=_require_drafts(drafts, due, number))
        emitted += _standing(drafts, stream[emitted:]) + 1
        if options.head_rows != "target":
            break
    witness.require(drafted=1)


def _require_drafts(drafts: Sequence[int], due: Sequence[tuple[int, float]], round_: int) -> int:
    """Compare up to the first draft that is too close to call; returns how many."""
    for at, (draft, (expected, margin)) in enumerate(zip(drafts, due, strict=True)):
        if margin < CLOSE:
            return at
        if draft != expected:
            raise StateDiffers(
                f"round {round_}: draft {at + 1} of {len(drafts)} is {draft}, the head run alone "
                f"drafts {expected}, {margin:.3g} above the next",
                layer="",
                component="drafts",
                round=round_,
                difference=None,
                differing=("drafts",),
            )
    return len(drafts)


def _standing(drafts: Sequence[int], stream: Sequence[int]) -> int:
    pairs = zip(drafts, stream, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), len(drafts))
