"""The budget ends decoding at every index of a block."""

from collections.abc import Iterator

from mtp_conformance import (
    Capability,
    Cell,
    Generated,
    Oracles,
    Witness,
    case,
    require_equal,
    require_tokens,
)
from mtp_conformance.checked import CheckedSession
from mtp_conformance.grid import MODELS, spread
from mtp_conformance.group import Group
from mtp_conformance.protocol import Options

SELDOM = ("gdn-moe", "gdn-mtp2", "ple", "gdn-moe+mlx-lm", "gdn-next+mlx-lm")
"""Models whose caches are, kind by kind, those of the others."""


@case(
    "emit.budget.every-index",
    clause="emitted-frontier",
    needs=("stream", "state", "guess"),
    oracle="one prefill over the emitted tokens",
    witness="accepts",
    since="0.1.0",
    cells=spread(depths=(4,), not_by_default=SELDOM),
)
def test_budget(oracles: Oracles, cell: Cell, witness: Witness) -> None:
    """Wherever max_tokens falls in a block, the caches end at the emitted frontier."""
    oracles.need(Capability.STREAM, Capability.STATE, Capability.GUESS)
    oracles.held_after_stop(1)
    group = oracles.group(cell)
    options, view = oracles.prefill_like(cell, stopped=True)
    k = cell.k or 0
    with oracles.bits_against_prefill(group, k, cell.strategy or ""):
        for budget, session, made in _budgets(group, options, k, witness):
            compared = require_equal(
                view(session.state()),
                view(group.direct_state(oracles.held_after_stop(budget))),
                what=f"one prefill over what {budget} emitted tokens leave in the caches",
            )
            witness.add(compared=compared, **made.engagement)
    witness.require(accepted=k)


@case(
    "emit.budget.tokens",
    clause="emitted-tokens",
    needs=("stream", "guess"),
    oracle="K=0 of the same runtime",
    witness="accepts",
    since="0.1.0",
    cells=spread(models=("attn", *MODELS[1:3], "flash-next"), depths=(3,)),
)
def test_tokens(oracles: Oracles, cell: Cell, witness: Witness) -> None:
    """Wherever max_tokens falls in a block, exactly as many tokens of K=0's are emitted."""
    oracles.need(Capability.STREAM, Capability.GUESS)
    group = oracles.group(cell)
    k = cell.k or 0
    with oracles.bits_against_prefill(group, k, cell.strategy or ""):
        for _, _, made in _budgets(group, oracles.options(cell), k, witness):
            witness.add(**made.engagement)
    witness.require(accepted=k)


def _budgets(
    group: Group, options: Options, k: int, witness: Witness
) -> Iterator[tuple[int, CheckedSession, Generated]]:
    """Decode to every budget of two blocks, holding the tokens to K=0's."""
    stream = group.stream(2 * k + 4)
    for budget in range(1, 2 * k + 3):
        session = group.open(options)
        made = session.generate(group.prompt, num_draft_tokens=k, max_tokens=budget, guess=stream)
        witness.add(compared=require_tokens(made.tokens, stream[:budget], what="K=0"))
        yield budget, session, made
