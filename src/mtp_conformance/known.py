"""Known failures: TOML entries that say which cells fail, how, until when, and where it is fixed.

Three files are kept apart under `conformance/known/`: the suite's own bugs, the failures of one
runtime, and waivers for one device. The lists are strict both ways: a listed cell that passes or
fails in another way makes the run fail, and so does an entry that has expired or has no cell.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from mtp_conformance.case import Scalar, params_id
from mtp_conformance.toml_table import Table, read_tables
from mtp_conformance.verdict import Verdict

SUITE_BUGS = "suite-bugs.toml"
HARDWARE_WAIVERS = "hardware-waivers.toml"
_FOLDER = Path("conformance", "known")
_CASE_ID = re.compile(r"[a-z0-9-]+\.[a-z0-9-]+\.[a-z0-9-]+")


@dataclass(frozen=True)
class KnownFailure:
    """One entry.

    Attributes:
        case: the exact id.
        params: values that a cell must have; other axes are free.
        message: how the failure message begins.
        url: where it is being dealt with.
        owner: who removes the entry.
        expires: the last day on which it counts.
        reason: why it fails, in one sentence.
        file: where the entry stands.
        place: which entry of the file it is.
        device: how the device must begin, empty for every device.
    """

    case: str
    params: Mapping[str, Scalar]
    message: str
    url: str
    owner: str
    expires: datetime.date
    reason: str
    file: Path
    place: str
    device: str = ""

    def covers(self, case: str, params: Mapping[str, Scalar]) -> bool:
        """Whether a cell is one this entry is about."""
        return case == self.case and all(
            name in params and _same(params[name], value) for name, value in self.params.items()
        )

    @property
    def name(self) -> str:
        """The case and its parameters, and where the entry stands."""
        cells = f" [{params_id(self.params)}]" if self.params else ""
        return f"{self.case}{cells} ({self.file}: {self.place})"


@dataclass(frozen=True)
class Judged:
    """What a list of known failures makes of a verdict.

    Attributes:
        verdict: the one that counts.
        note: what a reader has to know; None where no entry has a say.
    """

    verdict: Verdict
    note: str | None = None


# --- files --------------------------------------------------------------------------------------


def runtime_file(runtime: str) -> str:
    """The name of a runtime's list: that of the last part of its adapter's module.

    Args:
        runtime: `builtin`, `a.mlx_vlm:make` or a command such as `python -m a.mlx_vlm --fast`;
            the latter two have `mlx-vlm.toml`.
    """
    words = runtime.split() or [runtime]
    if "-m" in words[:-1]:
        module = words[words.index("-m") + 1]
    else:
        scripts = (word for word in words if word.endswith(".py"))
        module = Path(next(scripts, words[0])).name.removesuffix(".py")
    name = module.partition(":")[0].rpartition(".")[2]
    return f"{name.replace('_', '-')}.toml"


def known_files(root: Path, runtime: str) -> tuple[Path, ...]:
    """The lists under a suite root that apply to a runtime, those that exist."""
    names = (SUITE_BUGS, runtime_file(runtime), HARDWARE_WAIVERS)
    files = (root / _FOLDER / name for name in names)
    return tuple(file for file in files if file.is_file())


def read_known(files: Iterable[Path]) -> tuple[KnownFailure, ...]:
    """Read lists of known failures.

    Raises:
        TomlError: names file, entry and field; also for two entries about the same cells and
            message.
    """
    found: dict[tuple[object, ...], KnownFailure] = {}
    for file in files:
        tables, top = read_tables(file, "known", "case")
        top.finish()
        for table in tables:
            entry = _entry(table)
            key = (entry.case, frozenset(entry.params.items()), entry.message, entry.device)
            if key in found:
                raise table.error(f"says the same as {found[key].name}")
            found[key] = entry
    return tuple(found.values())


def _entry(table: Table) -> KnownFailure:
    entry = KnownFailure(
        case=table.text("case"),
        params=_params(table),
        message=table.text("message"),
        url=table.url("url"),
        owner=table.text("owner"),
        expires=table.date("expires"),
        reason=table.text("reason"),
        file=table.file,
        place=table.place,
        device=table.text("device") if table.file.name == HARDWARE_WAIVERS else "",
    )
    table.finish()
    if not _CASE_ID.fullmatch(entry.case):
        raise table.error(f"field `case`: {entry.case!r} is not area.property.slug")
    return entry


def _params(table: Table) -> Mapping[str, Scalar]:
    if "params" not in table:
        return {}
    value = table.value("params")
    if not isinstance(value, dict):
        raise table.error("field `params` is no table such as { model = 'gdn', k = 3 }")
    params = cast("dict[str, object]", value)
    for name, wanted in params.items():
        if not isinstance(wanted, str | int | float):
            raise table.error(f"field `params`: {name} is neither text nor number")
    return cast("dict[str, Scalar]", params)


# --- verdicts -----------------------------------------------------------------------------------


def on_device(entries: Iterable[KnownFailure], device: str) -> tuple[KnownFailure, ...]:
    """The entries that exist on a device, such as `cpu: x86_64`."""
    return tuple(entry for entry in entries if device.startswith(entry.device))


def judge(
    entries: Iterable[KnownFailure], verdict: Verdict, message: str, today: datetime.date
) -> Judged:
    """What the entries about one cell make of its verdict.

    A pass becomes an xpass. A fail or an error becomes an xfail if an entry that has not expired
    knows the message; if not, it stays and the note says why. Other verdicts stay.
    """
    listed = tuple(entries)
    if not listed:
        return Judged(verdict)
    if verdict is Verdict.PASS:
        names = "; ".join(entry.name for entry in listed)
        return Judged(Verdict.XPASS, f"passes, but is listed as a known failure; remove {names}")
    if verdict not in (Verdict.FAIL, Verdict.ERROR):
        return Judged(verdict)
    known = [entry for entry in listed if message.startswith(entry.message)]
    current = [entry for entry in known if today <= entry.expires]
    if current:
        entry = current[0]
        return Judged(Verdict.XFAIL, f"known failure: {entry.reason} ({entry.url})")
    if known:
        entry = known[0]
        note = f"known failure that expired on {entry.expires}, owner {entry.owner}: {entry.name}"
        return Judged(verdict, note)
    expected = "; ".join(f"{entry.message!r} of {entry.name}" for entry in listed)
    return Judged(verdict, f"listed as a known failure, with another message: {expected}")


def _same(one: Scalar, other: Scalar) -> bool:
    """Equal, and a truth value no number."""
    return one == other and isinstance(one, bool) == isinstance(other, bool)
