"""The state and stream claims, on runtimes that are row-exact and on those that are not.

Row-exact: bits, against K=0, never-rejected runs and direct forward passes. Where a verify
pass rounds otherwise than one-row steps do, the state claim keeps its bits but changes what it
compares with: the same call shapes with other rejected drafts, and rows of a pass in which
nothing was rejected (as wide as the verify pass, or as the accepted rows that a replay runs).
State that cannot be sliced is held to be nearest to its own frontier.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import cast

import mlx.core as mx

from mtp_conformance.case import Cell, Witness
from mtp_conformance.exactness import StateDiffers, require_equal, same_state
from mtp_conformance.failure import RuntimeFailure
from mtp_conformance.group import Group, State, target_arrays
from mtp_conformance.oracles import Oracles
from mtp_conformance.protocol import Options, Outcome
from mtp_conformance.tokens import require_tokens

_QUANTISED = {f"{n}_{part}": 2 for n in ("keys", "values") for part in ("scales", "biases")}
_ROWS = {"keys": 2, "values": 2, **_QUANTISED, "index_keys": 2, "pooled": 1}
"""Components that grow with the tokens, and along which axis."""
_MOST_ROUNDINGS = 8
"""So many times the rounding of passes without a reject may a rewound state be from steps."""
_FLOOR = 2.0**-20
_WHOLE = ("conv", "recurrent", "ngram", "ple_conv")


def require_emitted(outcome: Outcome, expected: Sequence[int], *, round: int) -> None:
    """Demand that a round emitted what K=0 emits.

    Raises:
        AssertionError: names round, index and both tokens.
    """
    require_tokens(outcome.tokens, expected, what="K=0", where=f"round {round}: ")


def require_round(
    outcome: Outcome, expected: Sequence[int], state: Callable[[], int], *, round: int
) -> int:
    """Demand a round's tokens and, by a claim that counts what it compared, its state.

    Where both are wrong the state says more; with other accepts the states are of other tokens.

    Raises:
        AssertionError: another token was emitted than K=0 emits.
        StateDiffers: as the claim.
    """
    try:
        require_emitted(outcome, expected, round=round)
    except AssertionError:
        if outcome.accepted == len(expected) - 1:
            with suppress(RuntimeFailure):
                state()
        raise
    return state()


def require_rewound(oracles: Oracles, cell: Cell, witness: Witness) -> None:
    """The state claim for one round of a cell.

    Raises:
        AssertionError: another token was emitted than K=0 emits.
        StateDiffers: names layer and component.
    """
    group = oracles.group(cell)
    options = oracles.options(cell)
    k, accepted = cell.k or 0, cell.accepted or 0
    session, outcome = group.rewound(options.strategy, k, accepted)
    try:
        due = group.stream(accepted + 2)[1:]
        compared = require_round(
            outcome, due, lambda: _require_exact_state(group, session.state(), accepted), round=1
        )
    except AssertionError as error:
        if oracles.condemns(group.key, [k], error, options.strategy):
            raise
        compared = require_shape_matched(group, options, k, accepted)
    rejected = k - outcome.accepted
    witness.add(drafted=k, accepted=outcome.accepted, rejected=rejected, compared=compared)


def _require_exact_state(group: Group, state: State, accepted: int) -> int:
    twin = group.never_rejected_state([group.drafts(1, accepted, accepted)])
    compared = require_equal(state, twin, what="the never-rejected run", round=1)
    rewound = target_arrays(state)
    steps = target_arrays(group.plain_state(accepted + 1))
    compared += require_equal(rewound, steps, what="the K=0 run", round=1)
    direct = target_arrays(group.direct_state(accepted + 1))
    if same_state(steps, direct):  # else a prefill rounds otherwise than steps
        what = "one direct forward pass"
        compared += require_equal(rewound, direct, what=what, round=1)
    return compared


def require_shape_matched(group: Group, options: Options, k: int, accepted: int) -> int:
    """The state claim without comparing with one-row steps; returns the arrays compared.

    Raises:
        StateDiffers: names layer and component.
    """
    sessions = [group.prefilled(options) for _ in range(2)]
    outcomes = [
        session.round(group.drafts(1, k, accepted, tail=tail))
        for tail, session in enumerate(sessions)
    ]
    require_tokens(outcomes[0].tokens, outcomes[1].tokens, what="a run with other rejected drafts")
    state, other = (session.state() for session in sessions)
    what = "the run of the same shape with other rejected drafts"
    compared = require_equal(state, other, what=what, round=1)
    kept = outcomes[0].accepted
    whole = group.prefilled(options)
    whole.round(group.drafts(1, k, k))
    try:
        compared += _require_rows(state, whole.state())
    except StateDiffers:
        # A rewind that runs the accepted rows again makes them in a pass of their own width.
        narrow = group.never_rejected_state([group.drafts(1, kept, kept)])
        if not same_state(_rows_of(state), _rows_of(narrow)):
            raise
        compared += len(_rows_of(state))
    _require_nearest(state, group, kept + 1, _rounding(group, whole.state(), k, kept))
    return compared


def _rows_of(state: State) -> State:
    """The target's arrays that grow with the tokens."""
    rows = target_arrays(state).items()
    return {name: array for name, array in rows if name.rpartition(".")[2] in _ROWS}


def _require_rows(state: State, whole: State) -> int:
    """Rows that stand are the rows of the same pass before anything was cut."""
    rows, expected = State(), State()
    for name, array in _rows_of(state).items():
        layer, _, component = name.rpartition(".")
        if name not in whole:
            continue
        length = array.shape[_ROWS[component]]
        if component in ("keys", "values") and length < _count(state[f"{layer}.offset"]):
            continue  # a ring: its rows move
        rows[name] = array
        expected[name] = mx.take(whole[name], mx.arange(length), axis=_ROWS[component])
    if not rows:
        return 0
    return require_equal(rows, expected, what="the same pass before anything was cut", round=1)


def _rounding(group: Group, whole: State, k: int, kept: int) -> dict[str, float]:
    """How far passes without any rejected draft lie from one-row steps, array by array.

    Measured on a pass of the verify pass's width and on one of the accepted rows alone.
    """
    narrow = group.never_rejected_state([group.drafts(1, kept, kept)])
    steps = {k + 1: group.plain_state(k + 1), kept + 1: group.plain_state(kept + 1)}
    found: dict[str, float] = {}
    for name in _names_of_whole(whole):
        apart = (_distance(whole[name], steps[k + 1][name]),)
        if name in narrow:
            apart += (_distance(narrow[name], steps[kept + 1][name]),)
        largest = _distance(steps[kept + 1][name], mx.zeros_like(whole[name]))
        found[name] = _MOST_ROUNDINGS * max(apart) + _FLOOR * largest
    return found


def _names_of_whole(state: State) -> list[str]:
    return [n for n in target_arrays(state) if n.rpartition(".")[2] in _WHOLE]


def _require_nearest(state: State, group: Group, rounds: int, rounding: dict[str, float]) -> None:
    """State without rows lies at its own frontier, as near as rounding explains.

    And nearer to it than to the state of one token before or after.

    Raises:
        StateDiffers: names the token count it is nearest to, or both distances.
    """
    for name in _names_of_whole(state):
        array = state[name]
        counts = list(range(rounds - 1, rounds + 2))
        distance = {n: _distance(array, group.plain_state(n)[name]) for n in counts}
        nearest = min(counts, key=lambda n: distance[n])
        difference = ""
        if distance[nearest] < distance[rounds]:
            difference = f"is nearest to the state {nearest - rounds:+d} tokens from its frontier"
        elif distance[rounds] > rounding[name]:
            difference = (
                f"is {distance[rounds]:.3g} from the state of one-row steps at its frontier; "
                f"passes without a reject differ by rounding of at most {rounding[name]:.3g}"
            )
        if difference:
            layer, _, component = name.rpartition(".")
            raise StateDiffers(
                f"after round 1: {layer} {component} {difference}",
                layer=layer,
                component=component,
                round=1,
                difference=None,
                differing=(name,),
            )


def _distance(a: mx.array, b: mx.array) -> float:
    wide = mx.abs(a.astype(mx.float32) - b.astype(mx.float32))
    return cast("float", wide.max().item())


def _count(offset: mx.array) -> int:
    return cast("int", offset.item())
