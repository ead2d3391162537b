"""Shards of two runs are not joined."""

from collections.abc import Callable
from pathlib import Path

import pytest

from mtp_conformance.reporting.merge import MergeError, merge

WHOLE = """
from mtp_conformance import Cell, case

def cells(profile):
    return [Cell("gdn", k=k, dtype=d, prompt_length=k) for k in (1, 2) for d in ("a", "b")]

@case("rewind.recurrent.a", clause="c", oracle="o", witness="w", since="0.1.0", cells=cells)
def test_it(cell, witness):
    "It holds."
    witness.add(compared=1)
"""


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (("-k", "k1 or b"), ("-k", "k2 or a")),
        (("--runtime", "one"), ("--runtime", "two")),
    ],
    ids=["other cells", "other runtime"],
)
def test_shards_of_two_runs_are_refused(
    run_cases: Callable[..., pytest.RunResult],
    tmp_path: Path,
    first: tuple[str, ...],
    second: tuple[str, ...],
) -> None:
    """Shards whose selections or runtimes differ are refused, whatever their sizes."""
    run_cases(WHOLE, "--shard", "1/2", *first, out="one")
    run_cases(WHOLE, "--shard", "2/2", *second, out="two")
    shards = [Path("one") / "report.jsonl", Path("two") / "report.jsonl"]
    with pytest.raises(MergeError, match="runtime is"):
        merge(shards, tmp_path / "whole.jsonl")
