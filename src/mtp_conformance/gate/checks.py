"""What the gate claims, each claim over its cells of one checkpoint.

The claims are those of the cases, by the same functions: `require_rewound` and `run_rounds` hold a
rewound state to one that never saw the rejected tokens, `require_stream` holds tokens to K=0 and
knows what proves a near-tie. Drafts are made from K=0's own tokens with a wrong one where it is
wanted, so that every accept count from 0 to K occurs, whatever the model's head would draft.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import cycle

from mtp_conformance.case import Case, Cell, Level, Witness
from mtp_conformance.claims import require_rewound
from mtp_conformance.gate.oracles import GateOracles
from mtp_conformance.gate.prompts import Prompt
from mtp_conformance.group import ForkMovedOriginal
from mtp_conformance.near_tie import require_stream
from mtp_conformance.protocol import Capability, Generated
from mtp_conformance.rounds import run_rounds
from mtp_conformance.verdict import Inconclusive

STATE_PROMPTS = 2
"""So many prompts, the first ones, are held to the state claims."""
_CONTROL_ROUNDS = 4
_VOCABULARY = 256


@dataclass
class Plan:
    """One gate: what is asked, and the streams decoded so far.

    Attributes:
        oracles: of the runtime and the folder.
        model: what the folder is called in the report.
        dtype: of the logits.
        strategy: of the runtime's; the empty string for its own.
        ks: draft tokens to be tried.
        prompts: what is decoded after.
        max_tokens: of a stream.
        row_exact: whether sessions verify row by row.
        decoded: streams by kind of drafts, prompt and K.
    """

    oracles: GateOracles
    model: str
    dtype: str
    strategy: str
    ks: tuple[int, ...]
    prompts: tuple[Prompt, ...]
    max_tokens: int
    row_exact: bool = False
    decoded: dict[tuple[str, str, int], Generated] = field(
        default_factory=dict[tuple[str, str, int], Generated]
    )

    def cell(self, prompt: Prompt, k: int | None = None, accepted: int | None = None) -> Cell:
        """A point of the axes."""
        return Cell(
            self.model,
            self.strategy or None,
            k,
            accepted,
            self.dtype,
            len(prompt.tokens),
            (("prompt", prompt.name),),
        )


Run = Callable[[Plan, Cell, Witness], None]


@dataclass(frozen=True)
class Check:
    """A claim: its case, its cells, and the function that holds a cell to it."""

    case: Case
    cells: Callable[[Plan], Iterator[Cell]]
    run: Run


def _determinism(plan: Plan, cell: Cell, witness: Witness) -> None:
    """K=0 run twice gives the same tokens, and for the first rounds the same logits and state."""
    try:
        compared = plan.oracles.control(cell, _CONTROL_ROUNDS, plan.max_tokens)
        witness.add(compared=compared)
    except ForkMovedOriginal:
        raise
    except AssertionError as error:
        raise Inconclusive(f"K=0 run twice gives two results: {error}") from error
    witness.require(compared=1)


def _row_exact(plan: Plan, cell: Cell, witness: Witness) -> None:
    """A verify pass has the bits of one-row steps, for the loaded model in three draws."""
    oracles, k = plan.oracles, cell.k or 0
    oracles.need(Capability.LOGITS, Capability.DRAFTS)
    oracles.need_depth(k)
    exact = oracles.found_exact(oracles.key(cell), k, plan.strategy)
    witness.add(compared=3 * (k + 1))
    if exact:
        return
    found = f"a pass of {k + 1} rows rounds otherwise than {k + 1} steps do here"
    if plan.row_exact:
        raise AssertionError(f"{found}, in spite of --row-exact")
    raise Inconclusive(f"{found}: a stream may leave K=0's where two logits tie")


def _one_round(plan: Plan, cell: Cell, witness: Witness) -> None:
    """After a round every array of every cache is what it is had no rejected draft existed."""
    plan.oracles.need(Capability.STATE, Capability.DRAFTS)
    require_rewound(plan.oracles, cell, witness)
    witness.require(drafted=cell.k or 0, compared=1)
    witness.require(rejected=int((cell.accepted or 0) < (cell.k or 0)))


def _rounds(plan: Plan, cell: Cell, witness: Witness) -> None:
    """The same after rounds of every accept count, one after the other, and a plain step."""
    plan.oracles.need(Capability.STATE, Capability.DRAFTS)
    k = cell.k or 0
    script = [(k, accepted) for accepted in accepts(k)]
    run_rounds(plan.oracles, cell, [*script, (0, 0)], witness)
    witness.require(accepted=1, rejected=1, compared=1)


def _injected(plan: Plan, cell: Cell, witness: Witness) -> None:
    """Tokens with drafts of which 0 to K in turn are right are those of K=0."""
    plan.oracles.need(Capability.STREAM, Capability.GUESS)
    _stream(plan, cell, witness, guess=True)
    witness.require(accepted=1, rejected=1)


def _own(plan: Plan, cell: Cell, witness: Witness) -> None:
    """Tokens with the model's own drafts are those of K=0."""
    plan.oracles.need(Capability.STREAM)
    _stream(plan, cell, witness, guess=False)
    witness.require(drafted=1)


def accepts(k: int) -> list[int]:
    """Every accept count of K drafts once, from both ends inwards."""
    return [a for low in range(k // 2 + 1) for a in dict.fromkeys((low, k - low))]


def guess_for(stream: Sequence[int], k: int) -> list[int]:
    """The stream with wrong tokens where rounds of K drafts are to stop, all accept counts in turn.

    A round that accepts a drafts emits a+1 tokens; the one after them has to be wrong for it.
    """
    guess, last = list(stream), 0
    for accepted in cycle(accepts(k)):
        if last >= len(stream):
            return guess
        wrong = last + 1 + accepted
        if accepted < k and wrong < len(stream):
            guess[wrong] = (stream[wrong] + 1) % _VOCABULARY
        last = wrong
    return guess


def _stream(plan: Plan, cell: Cell, witness: Witness, *, guess: bool) -> None:
    oracles = plan.oracles
    oracles.need_depth(cell.k or 0)
    group = oracles.group(cell)
    kind, prompt = ("injected" if guess else "own"), str(cell.params["prompt"])

    def decoded(k: int) -> Generated:
        if (kind, prompt, k) not in plan.decoded:
            given = guess_for(group.stream(plan.max_tokens), k) if guess else None
            plan.decoded[kind, prompt, k] = group.open(oracles.options(cell)).generate(
                group.prompt, num_draft_tokens=k, max_tokens=plan.max_tokens, guess=given
            )
        return plan.decoded[kind, prompt, k]

    def tokens(k: int) -> Sequence[int]:
        return decoded(k).tokens[: plan.max_tokens]

    witness.add(**decoded(cell.k or 0).engagement)
    witness.add(compared=require_stream(oracles, cell, group, tokens(cell.k or 0), tokens))


def _per_prompt(plan: Plan) -> Iterator[Cell]:
    yield from (plan.cell(prompt) for prompt in plan.prompts)


def _per_k(plan: Plan) -> Iterator[Cell]:
    yield from (plan.cell(plan.prompts[0], k) for k in plan.ks)


def _per_accept(plan: Plan) -> Iterator[Cell]:
    for prompt in plan.prompts[:STATE_PROMPTS]:
        for k in plan.ks:
            yield from (plan.cell(prompt, k, accepted) for accepted in range(k + 1))


def _per_state(plan: Plan) -> Iterator[Cell]:
    for prompt in plan.prompts[:STATE_PROMPTS]:
        yield from (plan.cell(prompt, k) for k in plan.ks)


def _per_stream(plan: Plan) -> Iterator[Cell]:
    for prompt in plan.prompts:
        yield from (plan.cell(prompt, k) for k in plan.ks)


def _check(
    id: str,
    cells: Callable[[Plan], Iterator[Cell]],
    run: Run,
    *,
    clause: str,
    needs: tuple[Capability, ...],
    oracle: str,
    witness: str,
    level: Level = Level.MUST,
) -> Check:
    case = Case(
        id=id,
        clause=clause,
        level=level,
        needs=tuple(c.value for c in needs),
        oracle=oracle,
        witness=witness,
        faults=(),
        since="0.1.0",
        summary=(run.__doc__ or "").strip(),
    )
    return Check(case, cells, run)


CONTROL = _check(
    "control.determinism.checkpoint",
    _per_prompt,
    _determinism,
    clause="determinism",
    needs=(),
    oracle="a second K=0 run",
    witness="tokens and arrays compared",
)
PROBE = _check(
    "control.rows.checkpoint",
    _per_k,
    _row_exact,
    clause="row-exactness",
    needs=(Capability.LOGITS, Capability.DRAFTS),
    oracle="K=0 of the same runtime",
    witness="rows compared",
    level=Level.SHOULD,
)
ONE_ROUND = _check(
    "rewind.state.checkpoint",
    _per_accept,
    _one_round,
    clause="rewound-state",
    needs=(Capability.STATE, Capability.DRAFTS),
    oracle="the accepted drafts alone; K=0; one forward pass over all tokens",
    witness="arrays compared, and a reject unless all drafts are right",
)
ROUNDS = _check(
    "rewind.rounds.checkpoint",
    _per_state,
    _rounds,
    clause="rewound-state",
    needs=(Capability.STATE, Capability.DRAFTS),
    oracle="the same rounds, given only the drafts that stand",
    witness="arrays compared, accepts and rejects",
)
INJECTED = _check(
    "stream.injected-drafts.checkpoint",
    _per_stream,
    _injected,
    clause="greedy-stream",
    needs=(Capability.STREAM, Capability.GUESS),
    oracle="K=0 of the same runtime",
    witness="accepts and rejects",
)
OWN = _check(
    "stream.own-drafts.checkpoint",
    _per_stream,
    _own,
    clause="greedy-stream",
    needs=(Capability.STREAM,),
    oracle="K=0 of the same runtime",
    witness="drafts",
)
CHECKS = (CONTROL, PROBE, ONE_ROUND, ROUNDS, INJECTED, OWN)
"""In the order they run: without the control nothing after it means anything."""


def checks_for(*, row_exact: bool) -> tuple[Check, ...]:
    """The checks of a run: with `--row-exact` the probe is a promise, and has to hold."""
    if not row_exact:
        return CHECKS
    case = replace(PROBE.case, level=Level.MUST, clause="row-exact-mode")
    return tuple(replace(c, case=case) if c is PROBE else c for c in CHECKS)
