"""Refused input: a catalogue with something wrong in it."""

from pathlib import Path

import pytest

from mtp_conformance.catalogue import read_catalogue
from mtp_conformance.toml_table import TomlError

KINDS = '[kinds]\nR = "recurrent state"\n'
FAULT = """
[[fault]]
id = "R1"
slug = "not-rewound"
kind = "R"
confidence = "ok"
shows = ["S", "T"]
sources = ["https://example.org/1"]
symptom = "Worse text."
cause = "Nothing was undone."
test = "K=1, a=0."
"""
SECOND = FAULT.replace("R1", "R2").replace("not-rewound", "rewound-twice")

WRONG = {
    "duplicate id": (FAULT + SECOND.replace("R2", "R1"), "fault 2 (R1): field `id`"),
    "duplicate slug": (FAULT + FAULT.replace("R1", "R2"), "fault 2 (R2): field `slug`"),
    "unknown kind": (FAULT.replace('kind = "R"', 'kind = "Z"'), "fault 1 (R1): field `kind`"),
    "id of another kind": (FAULT.replace("R1", "V1"), "fault 1 (V1): field `id`"),
    "unknown confidence": (FAULT.replace('"ok"', '"sure"'), "field `confidence` is 'sure'"),
    "unknown place": (FAULT.replace('"T"', '"Z"'), "field `shows` is 'Z'"),
    "shows nowhere": (FAULT.replace('["S", "T"]', "[]"), "field `shows` is empty"),
    "shows twice": (FAULT.replace('"T"', '"S"'), "field `shows` lists a value twice"),
    "no source": (FAULT.replace('["https://example.org/1"]', "[]"), "field `sources` is empty"),
    "source is no address": (FAULT.replace("https://", ""), "field `sources` has 'example.org/1'"),
    "slug with blanks": (FAULT.replace("not-rewound", "Not rewound"), "field `slug`"),
    "missing field": (FAULT.replace("cause = ", "# "), "fault 1 (R1): field `cause` is missing"),
    "empty field": (FAULT.replace("Worse text.", " "), "field `symptom` is no text"),
    "no list": (FAULT.replace('["S", "T"]', '"S"'), "field `shows` is no list of texts"),
    "unknown field": (FAULT + 'fix = "none"\n', "fault 1 (R1): unknown field `fix`"),
    "no id": (FAULT.replace("id = ", "name = "), "fault 1: field `id` is missing"),
    "no table": ("\nfault = 1\n", "is no array of tables: write [[fault]]"),
    "no TOML": ("\n[[fault]", "faults.toml: "),
}


@pytest.mark.parametrize(("text", "message"), WRONG.values(), ids=WRONG)
def test_refused(tmp_path: Path, text: str, message: str) -> None:
    """A wrong catalogue is refused by a message that names file, entry and field."""
    file = tmp_path / "faults.toml"
    # A bare key belongs to the top level only before the first table.
    file.write_text(text + KINDS if text.startswith("\nfault =") else KINDS + text)
    with pytest.raises(TomlError) as refusal:
        read_catalogue(file)
    assert str(refusal.value).startswith(str(file))
    assert message in str(refusal.value)


@pytest.mark.parametrize(
    ("kinds", "message"),
    [("", "field `kinds` is missing"), ('kinds = "R"\n', "field `kinds` is no table")],
)
def test_kinds_are_needed(tmp_path: Path, kinds: str, message: str) -> None:
    """A catalogue without a table of kinds is refused."""
    file = tmp_path / "faults.toml"
    file.write_text(kinds + FAULT)
    with pytest.raises(TomlError, match=message):
        read_catalogue(file)


def test_missing_file(tmp_path: Path) -> None:
    """A catalogue that is not there is refused by its name."""
    with pytest.raises(TomlError, match=r"faults\.toml"):
        read_catalogue(tmp_path / "faults.toml")
