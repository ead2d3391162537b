"""Plain decoding by one call and by single rounds is the same decoder."""

from mtp_conformance import Capability, Cell, Oracles, Witness, case, require_tokens
from mtp_conformance.grid import AGREEING_MODELS, CLASS_MODELS, MODELS, spread, with_trained

LENGTH = 12


@case(
    "stream.plain.generate-equals-rounds",
    clause="greedy-stream",
    needs=("stream", "drafts"),
    oracle="rounds without drafts, of the same runtime",
    witness="tokens compared",
    since="0.1.0",
    cells=with_trained(
        spread(models=(*MODELS, *CLASS_MODELS, *AGREEING_MODELS), depths=(0,)), depths=(0,)
    ),
)
def test_generate_equals_rounds(oracles: Oracles, cell: Cell, witness: Witness) -> None:
    """`generate` with K=0 emits what a prefill and rounds without drafts emit."""
    oracles.need(Capability.STREAM, Capability.DRAFTS)
    group = oracles.group(cell)
    session = group.open(oracles.options(cell))
    made = session.generate(group.prompt, num_draft_tokens=0, max_tokens=LENGTH)
    what = "a prefill and rounds without drafts"
    compared = require_tokens(made.tokens[:LENGTH], group.stream(LENGTH), what=what)
    witness.add(compared=compared)
