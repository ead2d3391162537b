"""The adapter of the protocol page is fit to be judged, and passes what it offers."""

import sys
from pathlib import Path

from conformance.stream.test_greedy import test_guessed_drafts as stream_case
from mtp_conformance import Cell, Oracles, Witness
from mtp_conformance.adapters import builtin
from mtp_conformance.process import ProcessRuntime
from mtp_conformance.smoke import Status, smoke

ADAPTER = Path(__file__).parents[2] / "docs" / "examples" / "adapter.py"


def test_example_adapter(tmp_path: Path) -> None:
    """No smoke check is wrong, and the stream case passes with accepts and rejects."""
    runtime = ProcessRuntime(f"{sys.executable} {ADAPTER}")
    oracles, witness = Oracles(runtime, builtin.zoo_materials(tmp_path)), Witness()
    checks = list(smoke(oracles, "gdn"))
    stream_case(oracles, Cell("gdn", "default", 3, None, "float32", 5), witness)
    runtime.close()
    assert not [check for check in checks if check.status is Status.WRONG]
    assert witness.as_dict()["accepted"] > 0
