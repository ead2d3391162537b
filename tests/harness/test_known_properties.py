"""Known failures: properties of the parser and of what it reads."""

import datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mtp_conformance.known import judge, read_known
from mtp_conformance.toml_table import TomlError
from mtp_conformance.verdict import Verdict
from tests.harness.known_failures import FIELDS, entry

TODAY = datetime.date(2026, 1, 1)
printable = st.characters(exclude_categories=("Cs", "Cc"))
texts = st.text(printable, min_size=1).filter(lambda text: bool(text.strip()))
parts = st.from_regex(r"[a-z0-9]{1,5}", fullmatch=True)
names = st.from_regex(r"[a-z_]{1,8}", fullmatch=True)
values = st.booleans() | st.integers(-(2**40), 2**40) | st.text(printable)
entries = st.fixed_dictionaries(
    {
        "case": st.tuples(parts, parts, parts).map(".".join),
        "message": texts,
        "reason": texts,
        "owner": texts,
        "url": texts.map(lambda text: f"https://{text}"),
        "expires": st.dates(),
        "params": st.dictionaries(names, values, max_size=4),
    }
)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return where a list is written."""
    return tmp_path_factory.mktemp("known") / "known.toml"


@settings(deadline=None)
@given(fields=entries)
def test_round_trip(file: Path, fields: dict[str, object]) -> None:
    """An entry is read as it was written."""
    file.write_text(entry(**fields), encoding="utf-8", newline="")
    (read,) = read_known([file])
    assert {name: getattr(read, name) for name in fields} == fields


@settings(deadline=None)
@given(fields=entries, missing=st.sampled_from(sorted(FIELDS)))
def test_every_field_is_needed(file: Path, fields: dict[str, object], missing: str) -> None:
    """An entry that lacks a field is refused by that field's name."""
    file.write_text(entry(**fields | {missing: None}), encoding="utf-8", newline="")
    with pytest.raises(TomlError, match=f"field `{missing}` is missing"):
        read_known([file])


@settings(deadline=None)
@given(content=st.binary() | st.text().map(str.encode).map(b"[[known]]\n".__add__))
def test_garbage(file: Path, content: bytes) -> None:
    """Whatever a file holds, it is read or refused, by its name."""
    file.write_bytes(content)
    try:
        read_known([file])
    except TomlError as error:
        assert str(error).startswith(str(file))


@settings(deadline=None)
@given(fields=entries, message=texts, known=st.booleans())
def test_only_a_known_message_is_excused(
    file: Path, fields: dict[str, object], message: str, known: bool
) -> None:
    """A failure is excused exactly if its message begins as listed and the day has not passed."""
    file.write_text(entry(**fields), encoding="utf-8", newline="")
    (read,) = read_known([file])
    message = read.message + message if known else message
    excused = message.startswith(read.message) and read.expires >= TODAY
    judged = judge([read], Verdict.FAIL, message, TODAY)
    assert judged.verdict is (Verdict.XFAIL if excused else Verdict.FAIL)
    assert judged.note is not None


@settings(deadline=None)
@given(fields=entries, other=st.dictionaries(names, values))
def test_covers_supersets(file: Path, fields: dict[str, object], other: dict[str, int]) -> None:
    """An entry covers a cell with more axes than it names, and none that lacks one of its own."""
    file.write_text(entry(**fields), encoding="utf-8", newline="")
    (read,) = read_known([file])
    assert read.covers(read.case, {**other, **read.params})
    for name in read.params:
        rest = {key: value for key, value in read.params.items() if key != name}
        assert not read.covers(read.case, rest)
    assert not read.covers(f"{read.case}x", read.params)
