"""The harness of the MTP conformance suite: what a case file imports, and nothing more."""

from mtp_conformance.case import Cell, Witness, case
from mtp_conformance.exactness import require_equal
from mtp_conformance.oracles import Group, Oracles, target_arrays
from mtp_conformance.protocol import Capability, Options
from mtp_conformance.rounds import require_emitted, run_rounds
from mtp_conformance.tokens import require_tokens
from mtp_conformance.verdict import Inconclusive, Unsupported, Verdict

__all__ = [
    "Capability",
    "Cell",
    "Group",
    "Inconclusive",
    "Options",
    "Oracles",
    "Unsupported",
    "Verdict",
    "Witness",
    "case",
    "require_emitted",
    "require_equal",
    "require_tokens",
    "run_rounds",
    "target_arrays",
]
