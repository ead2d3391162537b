"""Plugin: cells of the profile become parameters."""

from collections.abc import Callable

import pytest

from mtp_conformance.report import Report

SOURCE = """
COUNT = {"smoke": 1, "default": 2, "full": 3}

@a_case("a.b.c", cells=lambda profile: [Cell(k=k) for k in range(COUNT[profile])])
@pytest.mark.parametrize("mode", ["fast", "exact"])
def test_it(cell, mode, witness):
    '''It holds.'''
    witness.add(compared=1)
"""
REFUSED = {
    "empty": ("cells=lambda profile: []", "cell", "*has no cell in profile default*"),
    "same-id": ("cells=lambda profile: [Cell()] * 2", "cell", "*has two cells of one id*"),
    "no-argument": ("cells=lambda profile: [Cell()]", "", "*takes no argument `cell`*"),
}


@pytest.mark.parametrize(("profile", "cells"), [("smoke", 1), ("default", 2), ("full", 3)])
def test_a_profile_chooses_the_cells(
    report_of: Callable[..., Report], profile: str, cells: int
) -> None:
    """Each profile has its own cells; other parameters multiply them and are recorded."""
    report = report_of(SOURCE, "--profile", profile)
    wanted = [(k, mode) for k in range(cells) for mode in ("fast", "exact")]
    found = [(result.params["k"], result.params["mode"]) for result in report.results]
    assert sorted(found) == sorted(wanted, key=str)
    assert report.header.profile == profile


@pytest.mark.parametrize(("option", "argument", "words"), REFUSED.values(), ids=REFUSED.keys())
def test_cells_that_cannot_be_run_are_a_collection_error(
    run_cases: Callable[..., pytest.RunResult], option: str, argument: str, words: str
) -> None:
    """A case without cells, with two of one id or without the argument is not collected."""
    run = run_cases(f'@a_case("a.b.c", {option})\ndef test_it({argument}):\n    """It."""\n')
    assert run.ret == pytest.ExitCode.INTERRUPTED
    run.stdout.fnmatch_lines([words])


def test_cells_that_share_a_prefill_share_a_group(
    pytester: pytest.Pytester, run_cases: Callable[..., pytest.RunResult]
) -> None:
    """Cells of one model, dtype and prompt length carry one xdist group."""
    pytester.makeconftest(
        "def pytest_collection_modifyitems(items):\n"
        "    print('groups', [m.args[0] for i in items for m in i.iter_markers('xdist_group')])\n"
    )
    cell = "Cell(model='gdn', k=1, dtype='float32', prompt_length=7)"
    source = f'@a_case("a.b.c", cells=lambda p: [{cell}])\ndef test_it(cell):\n    """It."""\n'
    run_cases(source, "-s").stdout.fnmatch_lines(["groups ['gdn-float32-7']"])
