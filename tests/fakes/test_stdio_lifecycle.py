"""Lifecycle cases pass over stdio as they do in process."""

import sys
from collections.abc import Callable, Generator
from dataclasses import replace
from inspect import signature
from pathlib import Path
from typing import Any

import pytest

from conformance.emit.test_stop_text import test_stop_text as text_case
from conformance.experts.test_counts import test_counts_are_exact as experts_case
from conformance.lifecycle.test_cancel import test_leaves_nothing as cancel_case
from conformance.lifecycle.test_continue import test_after_rounds as after_rounds_case
from conformance.lifecycle.test_continue import test_after_stop as after_stop_case
from conformance.lifecycle.test_exceptions import test_in_a_prompt as prompt_case
from conformance.lifecycle.test_exceptions import test_in_a_round as round_case
from conformance.lifecycle.test_exceptions import test_in_a_turn as turn_case
from conformance.lifecycle.test_failing_file import test_in_a_restore as restore_case
from conformance.lifecycle.test_failing_file import test_in_a_save as failing_save_case
from conformance.lifecycle.test_fork import test_as_if_alone as fork_case
from conformance.lifecycle.test_save import test_goes_on as save_case
from conformance.lifecycle.test_save import test_saved_file as file_case
from conformance.memory.test_dead_rows import test_no_effect as dead_rows_case
from conformance.policy.test_recovers import test_recovers as policy_case
from conformance.policy.test_stream import test_stream as policy_stream_case
from conformance.rewind.test_quantised import test_every_accept as quantised_case
from conformance.rewind.test_quantised_later import test_in_mid_stream as quantised_later_case
from conformance.timing.test_slow_rewind import test_slow_is_charged as slow_case
from mtp_conformance import Cell, Oracles, Unsupported, Witness
from mtp_conformance.adapters.builtin import make_runtime
from mtp_conformance.process import ProcessRuntime
from mtp_conformance.protocol import Options, Runtime
from tests.fakes.test_lifecycle import CELL, DEEP, WIDE

CASES: dict[str, tuple[Any, Cell]] = {
    "fork": (fork_case, CELL),
    "save": (save_case, CELL),
    "file": (file_case, CELL),
    "cancel": (cancel_case, DEEP),
    "after-stop": (after_stop_case, DEEP),
    "after-rounds": (after_rounds_case, CELL),
    "error in a round": (round_case, DEEP),
    "error in a prompt": (prompt_case, CELL),
    "error in a turn": (turn_case, replace(CELL, model="window")),
    "error in a save": (failing_save_case, replace(CELL, model="gdn")),
    "error in a restore": (restore_case, replace(CELL, model="gdn")),
    "quantised": (quantised_case, WIDE),
    "quantised later": (
        quantised_later_case,
        replace(WIDE, extra=(*WIDE.extra, ("quantized_kv_start", 11))),
    ),
    "experts": (experts_case, replace(CELL, model="gdn-moe")),
    "stop string": (text_case, DEEP),
    "policy": (policy_case, replace(CELL, extra=(("policy", "streak"),))),
    "policy's stream": (policy_stream_case, replace(DEEP, extra=(("policy", "streak"),))),
}
Make = Callable[[Runtime], Oracles]


@pytest.fixture(scope="module")
def process() -> Generator[ProcessRuntime]:
    """The builtin runtime in a process of its own."""
    runtime = ProcessRuntime(f"{sys.executable} -m tests.fakes.stdio_runtime good")
    yield runtime
    runtime.close()


@pytest.mark.parametrize("name", CASES)
def test_over_stdio(process: ProcessRuntime, oracles_of: Make, tmp_path: Path, name: str) -> None:
    """The case passes, with the counts it has in process."""
    run, cell = CASES[name]
    counts: list[dict[str, int]] = []
    for runtime in (process, make_runtime()):
        witness = Witness()
        folder = [tmp_path] if "tmp_path" in signature(run).parameters else []
        run(oracles_of(runtime), cell, witness, *folder)
        counts.append(witness.as_dict())
    assert counts[0] == counts[1]


def test_a_process_that_injects_nothing(oracles_of: Make, tmp_path: Path) -> None:
    """A process that does not know the request is not judged by it."""
    runtime = ProcessRuntime(f"{sys.executable} -m tests.fakes.stdio_runtime injects-nothing")
    runtime.open("m", tmp_path, Options())
    oracles = oracles_of(runtime)
    with (
        pytest.raises(Unsupported, match="its process injects no failures"),
        oracles.runtime.failing(1),
    ):
        pass
    runtime.close()


def test_slow_rewind_over_stdio(process: ProcessRuntime, oracles_of: Make) -> None:
    """A rewind is made slow in the runtime's own process, and is charged there."""
    witness = Witness()
    slow_case(oracles_of(process), replace(DEEP, model="attn"), witness)
    assert witness.as_dict()["slow"] == 4  # keys and values of target and head


def test_poison_over_stdio(process: ProcessRuntime, oracles_of: Make) -> None:
    """Dead rows are filled in the runtime's own process."""
    witness = Witness()
    dead_rows_case(oracles_of(process), replace(DEEP, model="window"), witness)
    assert witness.as_dict()["poisoned"] == 3
