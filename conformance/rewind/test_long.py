"""Two hundred rounds of random accepts: errors that add up."""

import random
from collections.abc import Callable

from mtp_conformance import (
    Capability,
    Cell,
    Oracles,
    Witness,
    case,
    require_emitted,
    require_equal,
    require_other_tails,
    same_state,
    target_arrays,
)
from mtp_conformance.checked import CheckedSession
from mtp_conformance.claims import require_round
from mtp_conformance.grid import CLASS_MODELS, spread, with_trained
from mtp_conformance.group import Group, State
from mtp_conformance.protocol import Options
from mtp_conformance.rounds import Script

ROUNDS = 200
DEEPEST = 3
CHECKED_EVERY = 25


@case(
    "rewind.long.random-accepts",
    clause="rewound-state",
    needs=("state", "drafts"),
    oracle="one forward pass over all tokens; K=0",
    witness="accepts and rejects",
    faults=("R14",),
    since="0.1.0",
    cells=with_trained(
        spread(only_in_full=CLASS_MODELS, not_by_default=("attn", "gdn-moe", "ple", "qsa"))
    ),
)
def test_random_accepts(oracles: Oracles, cell: Cell, witness: Witness) -> None:
    """Through 200 rounds of random depth and accepts no cache keeps a trace of any reject.

    The head's rows are made from the target's residuals, so that its cache too is that of a
    prefill over all tokens.
    """
    oracles.need(Capability.STATE, Capability.DRAFTS)
    group = oracles.group(cell)
    options, view = oracles.prefill_like(cell)
    oracles.need_depth(DEEPEST)
    chance = random.Random(cell.id)
    script = [(k, chance.randint(0, k)) for k in chance.choices(range(DEEPEST + 1), k=ROUNDS)]
    try:
        try:
            session = _against_steps(group, options, script, witness, every=CHECKED_EVERY)
        except AssertionError:  # say in which round it began
            _against_steps(group, options, script, Witness(), every=1)
            raise
    except AssertionError as error:
        if oracles.condemns(group.key, range(1, DEEPEST + 1), error, options.strategy):
            raise
        require_other_tails(group, options, script, witness, every=CHECKED_EVERY)
    else:
        emitted = 1 + sum(accepted + 1 for _, accepted in script)
        with oracles.bits_against_prefill(group, DEEPEST, options.strategy):
            witness.add(compared=_against_prefill(group, view, session, emitted))
    witness.require(accepted=ROUNDS // 10, rejected=ROUNDS // 10)


def _against_steps(
    group: Group, options: Options, script: Script, witness: Witness, *, every: int
) -> CheckedSession:
    session = group.prefilled(options)
    emitted = 1
    for number, (k, accepted) in enumerate(script, start=1):
        outcome = session.round(group.drafts(emitted, k, accepted))
        due = group.stream(emitted + accepted + 1)[emitted:]
        emitted += accepted + 1
        witness.add(drafted=k, accepted=accepted, rejected=k - accepted)

        def state(number: int = number, rounds: int = emitted - 1) -> int:
            pair = (session.state(), group.plain_state(rounds))
            arrays = (target_arrays(s) for s in pair)
            return require_equal(*arrays, what="the K=0 run", round=number)

        if number % every == 0:
            witness.add(compared=require_round(outcome, due, state, round=number))
        else:
            require_emitted(outcome, due, round=number)
    return session


def _against_prefill(
    group: Group, view: Callable[[State], State], session: CheckedSession, emitted: int
) -> int:
    direct, plain = group.direct_state(emitted - 1), group.plain_state(emitted - 1)
    if not same_state(target_arrays(direct), target_arrays(plain)):
        return 0  # prefills round otherwise
    what = "one prefill over all tokens"
    return require_equal(view(session.state()), view(direct), what=what, round=ROUNDS)
