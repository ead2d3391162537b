"""From a failing cell to the smallest round that fails the same way.

Fewest drafts first, then fewest accepted, then the shortest prompt. The search runs rounds of
the same model, data type and strategy with the state claim, and stops at the first that fails.
"""

from __future__ import annotations

import time
from dataclasses import replace

from mtp_conformance.case import Cell, Witness
from mtp_conformance.claims import require_rewound
from mtp_conformance.failure import RuntimeFailure
from mtp_conformance.oracles import Oracles
from mtp_conformance.protocol import Capability
from mtp_conformance.report import Minimal
from mtp_conformance.verdict import Inconclusive, Unsupported

_DEEPEST = 4
_PROMPT_LENGTHS = (1, 2, 3, 4, 5, 8, 12)
SECONDS = 6.0
"""Longest search for one failure."""


def minimise(oracles: Oracles, cell: Cell) -> Minimal | None:
    """Search for the smallest failing round of a cell's model, data type and strategy.

    Returns:
        None if no single round fails, or none was found in time: the failure needs several
        rounds, or is not of the state.
    """
    if cell.model is None or cell.dtype is None:
        return None
    if not oracles.runtime.offers(Capability.STATE, Capability.DRAFTS):
        return None
    end = time.monotonic() + SECONDS
    for k in range(1, _DEEPEST + 1):
        for accepted in range(k + 1):
            for length in _PROMPT_LENGTHS:
                if time.monotonic() > end:
                    return None
                small = replace(cell, k=k, accepted=accepted, prompt_length=length, extra=())
                if _fails(oracles, small):
                    return Minimal(length, k, ((k, accepted),))
    return None


def _fails(oracles: Oracles, cell: Cell) -> bool:
    """Whether the state claim fails on a cell; a runtime that fails itself proves nothing."""
    try:
        require_rewound(oracles, cell, Witness())
    except AssertionError:
        return True
    except (RuntimeFailure, Unsupported, Inconclusive):
        return False
    return False
