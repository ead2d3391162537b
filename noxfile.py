#!/usr/bin/env python3
"""Everything one can run here: ``python3 noxfile.py -s SESSION [SESSION ...] [-- ARGUMENTS]``.

Works on a machine that has Python 3.11 or later and nothing else: if nox is missing,
``.ci/bootstrap.py`` puts it into ``.nox/bootstrap`` and starts again there.
``python3 noxfile.py --list`` prints the sessions.
"""

import ctypes.util
import hashlib
import os
import runpy
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent

if __name__ == "__main__":
    runpy.run_path(str(ROOT / ".ci" / "bootstrap.py"))["run_nox"](ROOT / "noxfile.py")

import nox  # noqa: E402  (run as a script, the line above has left for a Python that has nox)

nox.needs_version = ">=2025.2.9"
nox.options.sessions = ["conformance"]
nox.options.reuse_venv = "yes"
PEERS = {lock.stem: lock for lock in sorted((ROOT / "conformance" / "peers").glob("*.txt"))}
"""Other runtimes by name, and the lock of each one's environment."""

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
def seeds(session: nox.Session) -> None:
    """Judge the builtin decoder under ten seeds of weights, text and stories.

    Whatever is red is a false alarm. A draw may leave a cell without a reject, say, and so
    inconclusive; that is counted in the report and ends nothing.
    """
    _install(session, "suite")
    for seed in range(10):
        session.run(
            *("python", "-m", "mtp_conformance", "run", "--seed", str(seed)),
            *("--out", f"reports/seeds/{seed}", *session.posargs),
            success_codes=[0, 3],
        )


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
    """Say whether this may be merged: lint, types, tests, conformance, goldens, faults."""
    _install(session, "dev")
    session.run("python", ".ci/gate.py", *session.posargs)


@nox.session
def oracle(session: nox.Session) -> None:
    """Compare the models with Hugging Face transformers in PyTorch; `-- --write` stores anew."""
    _install(session, "oracle")
    session.run("python", "-m", "tests.oracle", *session.posargs)
    if not session.posargs:
        checks = [str(file) for file in sorted(Path("tests/oracle").glob("check_*.py"))]
        session.run("python", "-m", "pytest", *checks, "-n", "0")


@nox.session
def golden(session: nox.Session) -> None:
    """Make goldens and snapshots again, whole and tested; `-- --prune` removes stale ones."""
    _install(session, "dev")
    session.run("python", ".ci/golden.py", *session.posargs)


@nox.session
def gpu(session: nox.Session) -> None:
    """Measure row-exact and fast mode on this machine's GPU; `-- --quick --device cpu` tries it.

    Rows go to docs/results/gpu, and docs/gpu.md is written from them.
    """
    _install(session, "gpu" if sys.platform == "linux" else "suite")
    session.run("python", "-m", "tests.gpu", *session.posargs)
    if "--out" not in session.posargs:
        session.run("python", "docs/gpu.py")


@nox.session
def faults(session: nox.Session) -> None:
    """Seed every fault into the decoder: which case notices, how fast, and what survives."""
    _install(session, "suite")
    session.run("python", "-m", "mtp_conformance", "faults", *session.posargs)


def _python_for(lock: Path) -> str:
    """The Python a runtime needs, from the first line of its lock: `# python 3.12`.

    One that pyenv has is taken by its path, since its shims answer only for the version in use.
    """
    wanted = lock.read_text().splitlines()[0].removeprefix("# python ")
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    return next(map(str, sorted(pyenv.glob(f"{wanted}.*/bin/python"))), wanted)


@nox.session
@nox.parametrize(
    "python, peer", [nox.param(_python_for(lock), name, id=name) for name, lock in PEERS.items()]
)
def peers(session: nox.Session, peer: str) -> None:
    """Judge another runtime in an environment of its own; `-- --fresh` judges again."""
    session.notify("matrix")
    _install_lock(session, PEERS[peer])
    suite = _suite_python(session)
    out = ROOT / "reports" / "peers" / peer
    key, stamp = _key_of(peer), out / "judged.key"
    fresh = "--fresh" in session.posargs
    judged = (out / "report.jsonl").exists() and stamp.exists() and stamp.read_text() == key
    if judged and not fresh:
        session.log(f"{peer} is judged already: {out.relative_to(ROOT)}; `-- --fresh` repeats")
        return
    stamp.unlink(missing_ok=True)
    python = (Path(session.bin) / "python").relative_to(ROOT)
    # As it can be pasted: this command stands in the report behind every failure.
    module = f"mtp_conformance.adapters.{peer.replace('-', '_')}"
    command = f"env PYTHONPATH=src {python} -m {module}"
    environment = {"PYTHONWARNINGS": "ignore"}
    session.run(
        *(suite, "-m", "mtp_conformance.stock"),
        *("--runtime-cmd", command, "--out", str(_made(out) / "stock.json")),
        env=environment,
        external=True,
    )
    session.run(
        *(suite, "-m", "mtp_conformance", "run", "--profile", "peers", "--quiet"),
        *("--runtime-cmd", command, "--out", str(out)),
        env=environment,
        external=True,
        success_codes=[0, 1, 3],  # whatever was found, it was judged
    )
    stamp.write_text(key)


@nox.session(venv_backend="none")
def matrix(session: nox.Session) -> None:
    """Write docs/matrix.md and docs/matrix.html; with runtimes missing, beside the reports."""
    suite = _suite_python(session)
    found = sorted(path.parent for path in ROOT.glob("reports/peers/*/report.jsonl"))
    missing = set(PEERS) - {folder.name for folder in found}
    out = "reports/peers" if missing else "docs"
    folders = [str(folder.relative_to(ROOT)) for folder in found]
    command = (suite, "-m", "mtp_conformance", "report", "matrix", *folders, "--out", out)
    session.run(*command, external=True)
    if missing:
        session.log(f"docs/matrix.* stay as they are: no report of {', '.join(sorted(missing))}")


def _suite_python(session: nox.Session) -> str:
    """The Python of an environment with the suite, shared by the sessions that judge others."""
    folder = ROOT / ".nox" / "suite"
    python, installed = folder / "bin" / "python", folder / "pyproject.toml"
    if not installed.exists() or installed.read_bytes() != (ROOT / "pyproject.toml").read_bytes():
        session.run_install(sys.executable, "-m", "virtualenv", str(folder), external=True)
        command = (str(python), "-m", "pip", "install", "--editable", f"{ROOT}[suite]")
        session.run_install(*command, external=True)
        shutil.copy(ROOT / "pyproject.toml", installed)
    return str(python)


def _install_lock(session: nox.Session, lock: Path) -> None:
    """Install a lock, and nothing that is not in it, unless it is the one installed last."""
    installed = Path(session.virtualenv.location) / lock.name
    if installed.exists() and installed.read_bytes() == lock.read_bytes():
        return
    session.install("--no-deps", "-r", str(lock))
    shutil.copy(lock, installed)


def _key_of(peer: str) -> str:
    """A digest of everything a runtime's report depends on but the machine."""
    files = [PEERS[peer]]
    for pattern in ("conformance/**/*.py", "src/mtp_conformance/**/*.py", "reference_models/*.py"):
        files += ROOT.glob(pattern)
    known = (peer, "suite-bugs", "hardware-waivers")
    files += [ROOT / "conformance" / "known" / f"{name}.toml" for name in known]
    digest, module = hashlib.sha256(), peer.replace("-", "_")
    for file in sorted(filter(Path.exists, files)):
        if file.parent.name in ("reporting", "commands"):
            continue  # how a report is shown, not what it says
        if file.parent.name != "adapters" or file.stem in (module, "generating", "caches"):
            digest.update(str(file.relative_to(ROOT)).encode() + file.read_bytes())
    return digest.hexdigest()


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@nox.session
def train(session: nox.Session) -> None:
    """Train the byte-level models, or go on; `-- --ship` replaces the shipped ones."""
    _install(session, "train")
    session.run(
        *("python", "-m", "reference_models.training", *session.posargs),
        env=_quick_products(session),
    )
    if "--ship" in session.posargs:
        session.run("python", "docs/trained.py")


@nox.session
def bench(session: nox.Session) -> None:
    """Measure speed in fresh processes; `-- --quick`, `-- --ship --fresh` to replace the page."""
    _install(session, "train")
    ship = "--ship" in session.posargs
    options = [option for option in session.posargs if option != "--ship"]
    session.run("python", "-m", "reference_models.bench", "reports/bench/inputs", silent=True)
    session.run(
        *("python", "-m", "mtp_decoder", "bench", "--plan", "docs/bench.toml"),
        *("--out", "reports/bench", "--page", "reports/bench/benchmarks.md", *options),
    )
    if ship:
        rows = _made(ROOT / "docs" / "results" / "bench") / "rows.jsonl"
        shutil.copy(ROOT / "reports" / "bench" / "rows.jsonl", rows)
        session.run(
            *("python", "-m", "mtp_decoder", "bench", "--rows", str(rows.relative_to(ROOT))),
            *("--page", "docs/benchmarks.md"),
            silent=True,
        )


def _quick_products(session: nox.Session) -> dict[str, str]:
    """Put OpenBLAS in front of the reference BLAS that MLX's Linux wheel multiplies with."""
    if sys.platform != "linux":
        return {}
    blas = ctypes.util.find_library("openblas")
    if blas is None:
        session.warn("without OpenBLAS (Debian: libopenblas0) this takes some five times as long")
        return {}
    return {"LD_PRELOAD": blas}


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
