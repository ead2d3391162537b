"""Every page of a report, beside it."""

import os
import tempfile
from pathlib import Path

from mtp_conformance.report import Report
from mtp_conformance.reporting import badge, html, junit, markdown

PAGES = ("report.html", "junit.xml", "summary.md", "badge.json")


def write_all(report: Report, folder: Path) -> list[Path]:
    """Write every page into the folder, each whole or not at all; return their paths.

    All are rendered before the first is written. Raises OSError where the folder cannot be
    written to.
    """
    texts = [page.render(report) for page in (html, junit, markdown, badge)]
    folder.mkdir(parents=True, exist_ok=True)
    return [write_whole(folder / name, text) for name, text in zip(PAGES, texts, strict=True)]


def remove_all(folder: Path) -> None:
    """Remove the pages of an earlier run: they say nothing about the one that starts."""
    for name in PAGES:
        (folder / name).unlink(missing_ok=True)


def write_whole(path: Path, text: str) -> Path:
    """Write beside the final name, then rename."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
        temporary.chmod(0o644)  # mkstemp's files are for their owner alone
        return temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
