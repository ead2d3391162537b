"""`python -m reference_models.training.collect`: the two texts, from where they are published.

Run once; what it made is in `reference_models/trained/texts/` and is what training reads, so that
training needs neither Debian nor one certain Python.

- prose: two novels of Jane Austen (1775-1817), "Emma" (1815) and "Pride and Prejudice" (1813), in
  the public domain, out of Debian's package r-cran-janeaustenr. Hard line breaks inside a
  paragraph become spaces.
- code: modules of CPython's standard library, under the PSF licence, out of a Python 3.11.7.

Both are ASCII: the novels' few other characters are spelled in ASCII, modules with any are left
out. Texts are joined by `<|endoftext|>`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import lzma
import re
import struct
import subprocess
import sys
import sysconfig
import tempfile
import unicodedata
import zlib
from collections.abc import Iterator
from pathlib import Path

from reference_models.training.texts import FOLDER

_END = "<|endoftext|>"
_MODULES = (
    *("argparse", "ast", "asyncore", "bdb", "calendar", "cmd", "codecs", "collections/__init__"),
    *("configparser", "contextlib", "copy", "csv", "dataclasses", "datetime", "difflib", "dis"),
    *("doctest", "enum", "fileinput", "filecmp", "fnmatch", "fractions", "ftplib", "functools"),
    *("getopt", "glob", "gzip", "heapq", "imaplib", "inspect", "ipaddress", "json/decoder"),
    *("json/encoder", "logging/__init__", "logging/handlers", "mailbox", "optparse", "os"),
    *("pathlib", "pdb", "pickle", "platform", "posixpath", "pprint", "queue", "random"),
    *("sched", "selectors", "shelve", "shlex", "shutil", "smtplib", "socket", "socketserver"),
    *("ssl", "string", "subprocess", "tarfile", "telnetlib", "tempfile", "textwrap", "threading"),
    *("timeit", "tokenize", "traceback", "turtle", "types", "typing", "unittest/case"),
    *("unittest/mock", "uuid", "wave", "weakref", "zipfile"),
)
_NOVELS = ("emma", "mansfieldpark", "northangerabbey", "persuasion", "prideprejudice", "sense")
_KEPT = ("emma", "prideprejudice")


def novels(package: Path) -> dict[str, str]:
    """Every novel of the Debian package, by name, as R stores it: a line a string."""
    with tempfile.TemporaryDirectory() as unpacked:
        subprocess.run(["dpkg-deb", "-x", str(package), unpacked], check=True)
        data = (Path(unpacked) / "usr/lib/R/site-library/janeaustenr/data/Rdata.rdb").read_bytes()
    found: dict[str, str] = {}
    for name in _NOVELS:  # each: its length in four bytes, then a zlib stream
        stream = zlib.decompressobj()
        found[name] = "\n".join(_strings(stream.decompress(data[4:])))
        data = stream.unused_data
    return found


def _strings(serialised: bytes) -> Iterator[str]:
    """The elements of a character vector in R's XDR serialisation, version 3."""
    at = 14 + 4 + struct.unpack_from(">i", serialised, 14)[0]  # header, name of the encoding
    _, count = struct.unpack_from(">ii", serialised, at)
    at += 8
    for _ in range(count):
        _, size = struct.unpack_from(">ii", serialised, at)
        yield serialised[at + 8 : at + 8 + size].decode()
        at += 8 + size


def _prose(novel: str) -> str:
    """Paragraphs of one line each, in ASCII."""
    plain = novel.translate(str.maketrans("‘’“”—", "''\"\"-"))
    plain = unicodedata.normalize("NFKD", plain).encode("ascii", "ignore").decode()
    paragraphs = re.split(r"\n\s*\n", plain)
    return "\n\n".join(" ".join(part.split()) for part in paragraphs if part.strip())


def _code() -> dict[str, str]:
    """Sources of those modules that are ASCII, by name."""
    folder = Path(sysconfig.get_path("stdlib"))
    sources = {name: (folder / f"{name}.py").read_text() for name in _MODULES}
    return {name: source for name, source in sources.items() if source.isascii()}


def _write(name: str, text: str) -> dict[str, str | int]:
    raw = text.encode("ascii")
    (FOLDER / f"{name}.txt.xz").write_bytes(lzma.compress(raw, preset=9 | lzma.PRESET_EXTREME))
    return {"bytes": len(raw), "sha256": hashlib.sha256(raw).hexdigest()}


def main(argv: list[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m reference_models.training.collect",
        description="Collect the texts the trained checkpoints are trained on.",
        epilog="example: apt-get download r-cran-janeaustenr; python -m "
        "reference_models.training.collect r-cran-janeaustenr_1.0.0-1_all.deb",
    )
    parser.add_argument("package", type=Path, help="Debian's r-cran-janeaustenr")
    package: Path = parser.parse_args(argv).package
    found = novels(package)
    prose = _write("prose", _END.join(_prose(found[name]) for name in _KEPT))
    digest = hashlib.sha256(package.read_bytes()).hexdigest()
    prose |= {"from": f"{package.name}, sha256 {digest}: {' and '.join(_KEPT)}"}
    prose |= {"licence": "public domain (Jane Austen, 1775-1817)"}
    sources = _code()
    code = _write("code", _END.join(sources.values()))
    code |= {"from": f"standard library of CPython {sys.version.split()[0]}: {' '.join(sources)}"}
    code |= {"licence": "PSF-2.0, see LICENSE-python.txt"}
    record = json.dumps({"prose": prose, "code": code}, indent=2)
    (FOLDER / "texts.json").write_text(record + "\n")
    print(record)
    return 0


if __name__ == "__main__":
    sys.exit(main())
