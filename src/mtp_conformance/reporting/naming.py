"""What results, their places and their environment are called on every page."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import cast

from mtp_conformance.case import Level, params_id
from mtp_conformance.report import Failure, Header, Report, Result
from mtp_conformance.verdict import Verdict

NO_MODEL = "–"
NO_K = "–"
_CLIPPED = " … (cut)"


def cell_name(result: Result) -> str:
    """``case[cell]``, the name of a result."""
    return f"{result.case}[{params_id(result.params)}]"


def area_of(result: Result) -> str:
    """The first part of the case's id."""
    return result.case.split(".", 1)[0]


def model_of(result: Result) -> str:
    """The model a result is about; a dash for a case without one."""
    return str(result.params.get("model", NO_MODEL))


def k_of(result: Result) -> str:
    """The number of draft tokens a result is about; a dash for a case without that axis."""
    return str(result.params.get("k", NO_K))


def place_of(failure: Failure) -> str:
    """Round, layer and component, as far as they are known."""
    named = {"round": failure.round, "layer": failure.layer, "component": failure.component}
    return ", ".join(f"{name} {value}" for name, value in named.items() if value not in (None, ""))


def missing_of(report: Report) -> str:
    """How many results do not pass, by whether they are required; nothing where all pass."""
    levels = {case.id: case.level for case in report.cases}
    missing = Counter(
        levels[result.case] for result in report.results if result.verdict is not Verdict.PASS
    )
    words = {Level.MUST: "required", Level.SHOULD: "recommended"}
    counted = [f"{missing[level]} {word}" for level, word in words.items() if missing[level]]
    if not counted:
        return ""
    return f"; {' and '.join(counted)} {'does' if missing.total() == 1 else 'do'} not"


def environment_of(report: Report) -> list[tuple[str, str]]:
    """What ran, with what and where, as labels and texts."""
    header = report.header
    memory = ", ".join(f"{name} {count:,} bytes" for name, count in report.memory.items())
    runtime = dict(header.runtime)
    return [
        ("runtime", str(runtime.pop("name", "unknown"))),
        *((name.replace("_", " "), value_text(value)) for name, value in runtime.items()),
        ("suite", header.suite_version),
        ("mlx", header.mlx),
        ("mlx-lm", header.mlx_lm or "not installed"),
        ("python", f"{header.python} on {header.platform}"),
        ("device", header.device),
        ("date", header.date or "unknown"),
        ("git", _git(header)),
        ("profile", header.profile),
        ("seed", "none" if header.seed is None else str(header.seed)),
        *_shard(header),
        *([("memory", memory)] if memory else []),
        ("manifest", header.manifest),
        ("arguments", " ".join(header.argv)),
    ]


def value_text(value: object) -> str:
    """A JSON value in words: lists by commas, mappings as names with values."""
    if isinstance(value, Mapping):
        pairs = cast("Mapping[str, object]", value).items()
        return ", ".join(f"{name} {value_text(inner)}" for name, inner in pairs)
    if isinstance(value, list | tuple):
        return ", ".join(value_text(inner) for inner in cast("Iterable[object]", value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None else str(value)


def clip(text: str, length: int) -> str:
    """The text, cut to a length and saying so."""
    return text if len(text) <= length else text[: length - len(_CLIPPED)] + _CLIPPED


def printable(text: str) -> str:
    """The text with everything that XML and UTF-8 cannot carry spelled as an escape."""
    return "".join(c if _carried(c) else ascii(c)[1:-1] for c in text)


def _carried(character: str) -> bool:
    """Whether XML 1.0 allows the character: no controls, no halves of surrogate pairs."""
    code = ord(character)
    return character in "\t\n" or (code >= 0x20 and not _excluded(code))


def _excluded(code: int) -> bool:
    return 0x7F <= code <= 0x9F or 0xD800 <= code <= 0xDFFF or code in (0xFFFE, 0xFFFF)


def _git(header: Header) -> str:
    if header.git is None:
        return "not from a checkout"
    return f"{header.git.commit}{' with other changes' if header.git.dirty else ''}"


def _shard(header: Header) -> list[tuple[str, str]]:
    if header.shard is None:
        return []
    return [("shard", f"{header.shard.index} of {header.shard.of}")]
