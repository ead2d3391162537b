#!/usr/bin/env python3
"""Everything one can run here: ``python3 noxfile.py -s SESSION [SESSION ...] [-- ARGUMENTS]``.

Works on a machine that has Python 3.11 or later and nothing else: if nox is missing,
``.ci/bootstrap.py`` puts it into ``.nox/bootstrap`` and starts again there.
``python3 noxfile.py --list`` prints the sessions.
"""

import runpy
import shutil
from pathlib import Path

ROOT = Path(__file__).resolve().parent

if __name__ == "__main__":
    runpy.run_path(str(ROOT / ".ci" / "bootstrap.py"))["run_nox"](ROOT / "noxfile.py")

import nox  # noqa: E402  (run as a script, the line above has left for a Python that has nox)

nox.needs_version = ">=2025.2.9"
nox.options.sessions = ["conformance"]
nox.options.reuse_venv = "yes"
nox.options.default_venv_backend = "virtualenv"  # pip, so that the user's pip settings apply


@nox.session
def conformance(session: nox.Session) -> None:
    """Judge the builtin decoder by every case; leave the report in reports/conformance."""
    _install(session, "suite")
    report = ROOT / "reports" / "conformance"
    shutil.rmtree(report, ignore_errors=True)  # a run that dies must not show an older run's report
    try:
        session.run(
            *("python", "-m", "pytest", "conformance", "-n", "auto"),
            *("--report", str(report), "--profile", "default"),
            *session.posargs,
        )
    finally:
        if report.is_dir():
            session.log(f"report: {report.relative_to(ROOT)}")


@nox.session
def tests(session: nox.Session) -> None:
    """Test everything: this project's own units and seeded faults, and the conformance cases."""
    _install(session, "suite")
    session.run("python", "-m", "pytest", "-n", "auto", *session.posargs)


@nox.session
def lint(session: nox.Session) -> None:
    """Check style, formatting, and who may import whom."""
    _install(session, "lint")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("lint-imports")


@nox.session
def types(session: nox.Session) -> None:
    """Check types, strictly."""
    _install(session, "dev")
    session.run("pyright", "--project", "pyproject.toml", *session.posargs)


@nox.session
def gate(session: nox.Session) -> None:
    """Say whether this may be merged: lint, import rules, types, tests, conformance."""
    _install(session, "dev")
    session.run("python", ".ci/gate.py", *session.posargs)


@nox.session
def docs(session: nox.Session) -> None:
    """Write the pages that code writes."""
    _install(session, "suite")
    session.run("python", "docs/tape_cost.py")
    session.run("python", "docs/clauses.py")


def _install(session: nox.Session, extra: str) -> None:
    """Install this project, editable, unless pyproject.toml is what it was the last time."""
    installed = Path(session.virtualenv.location) / f"pyproject.{extra}.toml"
    wanted = ROOT / "pyproject.toml"
    if installed.exists() and installed.read_bytes() == wanted.read_bytes():
        return
    session.install("--editable", f".[{extra}]")
    # `run_install`, so that `nox --no-install` leaves no claim of an install behind.
    session.run_install(
        *("python", "-c", "import shutil, sys; shutil.copy(*sys.argv[1:])"),
        *(str(wanted), str(installed)),
        silent=True,
    )
