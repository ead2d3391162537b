"""Refused input: a list of known failures with something wrong in it."""

from pathlib import Path

import pytest

from mtp_conformance.known import read_known
from mtp_conformance.toml_table import TomlError
from tests.harness.known_failures import entry

WRONG = {
    "wrong id": (entry(case="rewind"), "known 1 (rewind): field `case`: 'rewind' is not"),
    "empty message": (entry(message=""), "field `message` is no text"),
    "day in quotes": (entry(expires='"2026-12-31"'), "field `expires` is no day"),
    "day with a time": (entry(expires="2026-12-31T12:00:00"), "field `expires` is no day"),
    "no address": (entry(url="issue 12"), "field `url` has 'issue 12'"),
    "params no table": (entry(params="k=1"), "field `params` is no table"),
    "params hold a list": (entry(params={"k": [1, 2]}), "field `params`: k is neither"),
    "said twice": (entry() + entry(), "known 2 (rewind.state.broken): says the same as"),
    "unknown field": (entry(strict=True), "unknown field `strict`"),
    "stray top level": ("version = 1\n" + entry(), "top level: unknown field `version`"),
}


@pytest.mark.parametrize(("text", "message"), WRONG.values(), ids=WRONG)
def test_refused(tmp_path: Path, text: str, message: str) -> None:
    """A wrong list is refused by a message that names file, entry and field."""
    file = tmp_path / "known.toml"
    file.write_text(text)
    with pytest.raises(TomlError) as refusal:
        read_known([file])
    assert str(refusal.value).startswith(str(file))
    assert message in str(refusal.value)


def test_said_twice_in_two_files(tmp_path: Path) -> None:
    """Two lists that say the same name each other."""
    for name in ("builtin.toml", "suite-bugs.toml"):
        (tmp_path / name).write_text(entry())
    with pytest.raises(
        TomlError, match=r"suite-bugs\.toml: known 1 .*says the same .*builtin\.toml"
    ):
        read_known(sorted(tmp_path.iterdir()))
