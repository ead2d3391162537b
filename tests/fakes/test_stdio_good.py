"""The builtin runtime behind stdio is judged as it is in process."""

import sys
from collections.abc import Callable

from conformance.rewind.test_state import test_one_round as state_case
from conformance.stream.test_greedy import test_guessed_drafts as stream_case
from mtp_conformance import Cell, Oracles, Witness
from mtp_conformance.adapters.builtin import make_runtime
from mtp_conformance.process import ProcessRuntime
from mtp_conformance.protocol import Runtime

CELL = Cell("flash-next", "rerun", 3, 1, "float32", 7)


def test_cases_pass_over_stdio(oracles_of: Callable[[Runtime], Oracles]) -> None:
    """State and stream cases pass, with the same number of arrays compared as in process."""
    runtime = ProcessRuntime(f"{sys.executable} -m tests.fakes.stdio_runtime good")
    oracles, witness = oracles_of(runtime), Witness()
    state_case(oracles, CELL, witness)
    stream_case(oracles, Cell("attn", "tape", 3, None, "float32", 4), Witness())
    runtime.close()
    in_process = Witness()
    state_case(oracles_of(make_runtime()), CELL, in_process)
    assert witness.as_dict() == in_process.as_dict()
