"""Known-failure entries for tests, as text and in an inner run."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from mtp_conformance.report import Result, read_report
from mtp_conformance.verdict import Verdict

FIELDS: dict[str, object] = {
    "case": "rewind.state.broken",
    "message": "AssertionError: 1 of 2",
    "url": "https://example.org/1",
    "owner": "somebody",
    "expires": "2999-12-31",
    "reason": "It is being dealt with.",
}

FAILS = """
@a_case("rewind.state.broken", cells=lambda profile: [Cell("gdn", k=k) for k in (1, 2)])
def test_broken(cell, witness):
    "It holds."
    witness.add(compared=1)
    assert cell.k == FIXED, f"{cell.k} of 2 differ"
"""


def entry(**changes: object) -> str:
    """A TOML entry; a change to None leaves a field out. `expires` stands without quotes."""
    lines = ["[[known]]"]
    for name, value in (FIELDS | changes).items():
        if isinstance(value, Mapping):
            pairs = (
                f"{key} = {json.dumps(item, ensure_ascii=False)}" for key, item in value.items()
            )
            lines.append(f"{name} = {{ {', '.join(pairs)} }}")
        elif value is not None:
            text = str(value) if name == "expires" else json.dumps(value, ensure_ascii=False)
            lines.append(f"{name} = {text}")
    return "\n".join(lines) + "\n"


class Run:
    """An inner run of a case that fails in its cells k=1 and k=2, with a list beside it."""

    def __init__(
        self, pytester: pytest.Pytester, run_cases: Callable[..., pytest.RunResult]
    ) -> None:
        self._folder = pytester.path
        self._run_cases = run_cases

    def __call__(
        self, known: str, *options: str, fixed: int = 0, name: str = "known.toml", **how: bool
    ) -> pytest.RunResult:
        """Run with this list; `fixed` is the k of a cell that passes after all."""
        (self._folder / name).write_text(known)
        source = FAILS.replace("FIXED", str(fixed))
        return self._run_cases(source, "--known", name, *options, **how)

    def results(self) -> dict[int, Result]:
        """The results of the run by k."""
        report = read_report(Path(self._folder) / "out" / "report.jsonl")
        return {int(result.params["k"]): result for result in report.results}

    def verdicts(self) -> dict[int, Verdict]:
        """The verdicts of the run by k."""
        return {k: result.verdict for k, result in self.results().items()}
