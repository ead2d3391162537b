"""Plugin: a run that ends early leaves a partial report and none of an earlier run."""

import json
from collections.abc import Callable

import pytest

TWO = """
@a_case("a.b.c")
def test_first(witness):
    '''The first holds.'''
    {body}

@a_case("a.b.d")
def test_second(witness):
    '''The second holds.'''
    witness.add(compared=1)
"""
ENDS = {
    "interrupt": ("raise KeyboardInterrupt", ()),
    "exit": ("pytest.exit('enough')", ()),
    "first-failure": ("assert False", ("-x",)),
}


@pytest.mark.parametrize(("body", "options"), ENDS.values(), ids=ENDS.keys())
def test_an_early_end_leaves_a_partial_report(
    pytester: pytest.Pytester,
    run_cases: Callable[..., pytest.RunResult],
    body: str,
    options: tuple[str, ...],
) -> None:
    """The report of an earlier run is gone, and the partial one says it is incomplete."""
    out = pytester.mkdir("out")
    (out / "report.jsonl").write_text("an earlier run's")
    run_cases(TWO.format(body=body), *options, subprocess=True)
    assert [path.name for path in out.iterdir()] == ["report.partial.jsonl"]
    footer = json.loads((out / "report.partial.jsonl").read_text().splitlines()[-1])
    assert footer["complete"] is False


def test_listing_writes_no_report(
    pytester: pytest.Pytester, run_cases: Callable[..., pytest.RunResult]
) -> None:
    """Collecting alone leaves the report folder alone."""
    run_cases(TWO.format(body="pass"), "--collect-only")
    assert not (pytester.path / "out").exists()
