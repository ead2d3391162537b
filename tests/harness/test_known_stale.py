"""Known failures: entries that are about no cell."""

import pytest

from mtp_conformance.known_run import STALE as EXIT
from tests.harness.known_failures import Run, entry

LISTED = entry() + entry(message="AssertionError: 2 of 2", params={"k": 2})
STALE = {
    "case": entry(case="rewind.state.renamed"),
    "params": entry(params={"k": 9}),
    "axis": entry(params={"width": 1}),
}
SAID = "*no cell of the suite is rewind.state.*known.toml: known 3*"


@pytest.mark.parametrize("stale", STALE.values(), ids=STALE)
def test_stale_entry(known_run: Run, stale: str) -> None:
    """A run of the suite fails by an entry without a cell, and names it."""
    result = known_run(LISTED + stale)
    result.assert_outcomes(xfailed=2)
    result.stdout.fnmatch_lines([SAID])
    assert result.ret == EXIT


def test_in_workers(known_run: Run) -> None:
    """Under xdist a stale entry is found too."""
    result = known_run(LISTED + STALE["case"], "-n", "2", subprocess=True)
    result.stdout.fnmatch_lines([SAID])
    assert result.ret == EXIT


def test_in_a_shard(known_run: Run) -> None:
    """A shard collects the whole suite, so it finds a stale entry, and only such."""
    options = ("--shard", "1/2")
    known_run(LISTED, *options).stdout.no_fnmatch_line("*no cell of the suite*")
    assert known_run(LISTED + STALE["case"], *options).ret == EXIT


@pytest.mark.parametrize(
    "options",
    [("--case", "rewind.state.broken"), ("-k", "k1"), ("test_cases.py",), ("-k", "k1", "-n", "2")],
)
def test_part_of_the_suite(known_run: Run, options: tuple[str, ...]) -> None:
    """A run of some cases says nothing about entries for others."""
    result = known_run(LISTED + STALE["case"], *options, subprocess="-n" in options)
    result.stdout.no_fnmatch_line("*no cell of the suite*")
    assert result.ret == 0


def test_cell_of_another_profile(known_run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry for a cell that only the full profile has is not stale in another."""
    monkeypatch.setattr(
        "tests.harness.known_failures.FAILS",
        """
@a_case(
    "rewind.state.broken",
    cells=lambda profile: [Cell("gdn", k=k) for k in ((1, 9) if profile == "full" else (1,))],
)
def test_broken(cell, witness):
    "It holds."
    assert False, "1 of 2 differ"
""",
    )
    result = known_run(entry(params={"k": 1}) + entry(params={"k": 9}))
    result.assert_outcomes(xfailed=1)
    assert result.ret == 0
