"""The harness of the MTP conformance suite: what a case file imports, and nothing more."""

from mtp_conformance.case import Cell, Witness, case
from mtp_conformance.checked import as_counts
from mtp_conformance.claims import require_emitted, require_rewound
from mtp_conformance.exactness import require_equal, same_state
from mtp_conformance.group import Group, target_arrays
from mtp_conformance.near_tie import require_stream
from mtp_conformance.oracles import Oracles, logits_of
from mtp_conformance.protocol import Capability, Generated, Options
from mtp_conformance.rounds import require_other_tails, run_rounds
from mtp_conformance.tokens import require_tokens
from mtp_conformance.verdict import Inconclusive, NearTie, Unsupported, Verdict

__all__ = [
    "Capability",
    "Cell",
    "Generated",
    "Group",
    "Inconclusive",
    "NearTie",
    "Options",
    "Oracles",
    "Unsupported",
    "Verdict",
    "Witness",
    "as_counts",
    "case",
    "logits_of",
    "require_emitted",
    "require_equal",
    "require_other_tails",
    "require_rewound",
    "require_stream",
    "require_tokens",
    "run_rounds",
    "same_state",
    "target_arrays",
]
