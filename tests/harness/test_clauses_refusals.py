"""Refused input: a clause with something wrong in it."""

from pathlib import Path

import pytest

from mtp_conformance.clauses import read_clauses
from mtp_conformance.toml_table import TomlError

CLAUSE = """
[[clause]]
anchor = "determinism"
level = "must"
requirement = "K=0 repeats itself."
reason = "Otherwise nothing is proven."
faults = ["N9"]
"""

WRONG = {
    "duplicate anchor": (CLAUSE + CLAUSE, "clause 2 (determinism): field `anchor`"),
    "anchor with blanks": (CLAUSE.replace("determinism", "De termini"), "field `anchor`"),
    "unknown level": (CLAUSE.replace("must", "may"), "field `level` is 'may'"),
    "missing reason": (CLAUSE.replace("reason", "# "), "field `reason` is missing"),
    "empty no_case": (CLAUSE + 'no_case = ""\n', "field `no_case` is no text"),
    "cases listed here": (CLAUSE + 'cases = ["a.b.c"]\n', "unknown field `cases`"),
    "stray top level": ("version = 1\n" + CLAUSE, "top level: unknown field `version`"),
}


@pytest.mark.parametrize(("text", "message"), WRONG.values(), ids=WRONG)
def test_refused(tmp_path: Path, text: str, message: str) -> None:
    """A wrong clause is refused by a message that names file, entry and field."""
    file = tmp_path / "clauses.toml"
    file.write_text(text)
    with pytest.raises(TomlError) as refusal:
        read_clauses(file)
    assert str(refusal.value).startswith(str(file))
    assert message in str(refusal.value)
