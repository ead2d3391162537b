"""The pytest plugin: cells become parameters, outcomes become verdicts, a run becomes a report.

Load it with ``-p mtp_conformance.plugin``. Test functions without ``@case`` are left alone. Under
pytest-xdist each worker classifies its own outcomes and sends them along with the test reports
(``user_properties``); the controller, or the one process of a run without workers, collects them,
writes ``report.jsonl`` and prints the summary.
"""

import argparse
import contextlib
import hashlib
import os
import shlex
import sys
import time
from collections import Counter
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol, cast

import mlx.core as mx
import pytest

from mtp_conformance.case import Case, Cell, Registration, Scalar, Witness, registration_of
from mtp_conformance.compiling import (
    can_compile,
    compile_in_parent,
    compile_in_worker,
    run_eagerly,
)
from mtp_conformance.details import detailed
from mtp_conformance.exactness import StateDiffers
from mtp_conformance.grid import with_strategies, within_depth
from mtp_conformance.known_run import KnownRun, Place
from mtp_conformance.oracles import Oracles
from mtp_conformance.probe import run_probe
from mtp_conformance.report import (
    Failure,
    GitState,
    Record,
    ReportWriter,
    Result,
    Shard,
    case_record,
    environment_header,
    git_state,
    partial_path,
    read_case,
    read_report,
    read_result,
    result_record,
)
from mtp_conformance.reporting import shard
from mtp_conformance.verdict import Inconclusive, NearTie, Unsupported, Verdict

PROFILES = ("default", "gate", "full", "nightly", "peers", "smoke")
_USUAL = {"device": "cpu", "mx_compile": "off", "time_limit": "60.0", "seed": "0"}
_PROPERTY = "mtp_conformance"
_REPORT_NAME = "report.jsonl"
SETTINGS = "pytest_settings.toml"
"""The file the command line gives pytest in place of a project's own settings."""
_PHASES = ("setup", "call", "teardown")

_witness_key = pytest.StashKey[Witness]()
_collected_key = pytest.StashKey["_Collected"]()
_runtime_key = pytest.StashKey[dict[str, object]]()
_recorder_key = pytest.StashKey["_Recorder"]()
_known_key = pytest.StashKey[KnownRun]()


@dataclass
class _Collected:
    """What one process collected: every case, and how many cells were selected to run.

    ``total`` is the number of cells selected in all shards, 0 in a run without shards, and
    ``selection`` a digest of their names.
    """

    cases: dict[str, Case] = field(default_factory=dict[str, Case])
    selected: int = 0
    total: int = 0
    selection: str = ""


# --- options -----------------------------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of a conformance run."""
    group = parser.getgroup("mtp-conformance", "MTP conformance")
    group.addoption(
        "--profile", choices=PROFILES, default="default", help="which cells the cases run over"
    )
    group.addoption(
        "--report",
        metavar="DIR",
        default=None,
        help=f"write {_REPORT_NAME} and its pages into this folder",
    )
    group.addoption(
        "--shard",
        metavar="I/N",
        default=None,
        help="run the I-th of N parts, from 1; `mtp-conformance report merge` joins their reports",
    )
    group.addoption(
        "--runtime", metavar="NAME", default="builtin", help="the runtime that is judged"
    )
    group.addoption(
        "--runtime-cmd",
        metavar="COMMAND",
        default=None,
        help="a runtime in a process of its own, speaking the protocol over stdio",
    )
    group.addoption(
        "--time-limit",
        metavar="SECONDS",
        type=float,
        default=60.0,
        help="longest answer of a runtime process (default: 60; five times that to open a model)",
    )
    group.addoption(
        "--strategies",
        metavar="A,B",
        default=None,
        help="the runtime's ways of rewinding, in place of the builtin decoder's",
    )
    group.addoption(
        "--max-draft-tokens",
        metavar="K",
        type=int,
        default=None,
        help="the runtime's deepest K; a case that has deeper cells alone is run at this depth",
    )
    group.addoption(
        "--case",
        metavar="ID",
        action="append",
        default=[],
        help="only this case; can be given again",
    )
    group.addoption(
        "--device",
        choices=("cpu", "gpu"),
        default="cpu",
        help="mlx's default device; bits are claimed on the CPU backend (default: cpu)",
    )
    group.addoption(
        "--row-exact",
        action="store_true",
        help="the runtime verifies row by row, and bits are demanded of it on any device",
    )
    group.addoption(
        "--mx-compile",
        choices=("off", "on"),
        default="off",
        help="mx.compile for the whole run: off is eager (default), on compiles once, up front",
    )
    group.addoption(
        "--seed",
        metavar="N",
        type=_seed,
        default=0,
        help="of the models' weights, the text and the stories; 0 is the usual one (default: 0)",
    )
    group.addoption(
        "--known",
        metavar="FILE",
        action="append",
        default=None,
        help="a list of known failures, repeatable (default: those in conformance/known)",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker that this plugin sets and, outside workers, the recorder."""
    config.addinivalue_line("markers", "xdist_group(name): cells that share a worker's prefills")
    config.stash[_collected_key] = _Collected()
    _shard(config)  # a wrong form is said before anything is collected
    _choose_device(cast("str", config.getoption("device")))
    _choose_compilation(config)
    config.stash[_known_key] = known = KnownRun(config, _place)
    config.pluginmanager.register(known, "mtp-conformance-known")
    if hasattr(config, "workerinput"):
        _compute_in_batches()
    if not hasattr(config, "workerinput"):
        config.stash[_recorder_key] = recorder = _Recorder(config)
        config.pluginmanager.register(recorder, "mtp-conformance-recorder")


def _shard(config: pytest.Config) -> tuple[int, int] | None:
    """Which shard of how many this run is, None for a whole run."""
    text = cast("str | None", config.getoption("shard"))
    try:
        return None if text is None else shard.parse(text)
    except ValueError as error:
        raise pytest.UsageError(str(error)) from error


def _choose_device(name: str) -> None:
    if name == "gpu" and not mx.is_available(mx.gpu):
        raise pytest.UsageError("--device gpu: this mlx has no GPU backend; use --device cpu")
    mx.set_default_device(mx.gpu if name == "gpu" else mx.cpu)


def _choose_compilation(config: pytest.Config) -> None:
    if config.getoption("mx_compile") == "off":
        run_eagerly()
    elif hasattr(config, "workerinput"):
        compile_in_worker()
    elif not can_compile():
        raise pytest.UsageError("--mx-compile on: mlx's CPU backend needs g++; install it")
    else:
        compile_in_parent(_warm_up)


def _warm_up() -> None:
    """Run what a builtin run compiles; another runtime's own functions are its own affair."""
    from mtp_conformance.adapters import builtin

    builtin.warm_up()


def _compute_in_batches() -> None:
    """Let a worker's threads run on until they wait, where the system can be told so.

    MLX hands every operation to a thread of its own. With as many workers as cores, each
    hand-over of a tiny operation would otherwise push the other thread off its core, which
    took about a third of a run on two cores.
    """
    if hasattr(os, "SCHED_BATCH"):
        with contextlib.suppress(PermissionError):
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def describe_runtime(config: pytest.Config, description: Mapping[str, object]) -> None:
    """Put a runtime's description (names to JSON values) into the header of this run's report."""
    config.stash[_runtime_key] = dict(description)


@pytest.fixture
def witness(request: pytest.FixtureRequest) -> Witness:
    """Record what happened, so that the verdict can be held to it."""
    node = cast("pytest.Item", request.node)
    return node.stash.setdefault(_witness_key, Witness())


# --- collection --------------------------------------------------------------------------------


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrise a case over the cells of the profile."""
    registration = registration_of(metafunc.function)
    if registration is None or registration.cells is None:
        return
    profile = cast("str", metafunc.config.getoption("profile"))
    cells = list(registration.cells(profile))
    if not cells and profile == "peers":
        cells = list(registration.cells("smoke"))  # models no peer opens: unsupported, and counted
    strategies = cast("str | None", metafunc.config.getoption("strategies"))
    if strategies is not None:
        cells = with_strategies(cells, strategies.split(","))
    most = cast("int | None", metafunc.config.getoption("max_draft_tokens"))
    if most is not None:
        cells = within_depth(cells, most)
    ids = [cell.id for cell in cells]
    if "cell" not in metafunc.fixturenames:
        raise pytest.UsageError(f"{registration.case.id} has cells but takes no argument `cell`")
    if not cells:
        raise pytest.UsageError(f"{registration.case.id} has no cell in profile {profile}")
    if len(set(ids)) != len(ids):
        raise pytest.UsageError(f"{registration.case.id} has two cells of one id")
    metafunc.parametrize("cell", [pytest.param(c, id=c.id, marks=_group(c)) for c in cells])


def _group(cell: Cell) -> tuple[pytest.MarkDecorator, ...]:
    """Send cells of one model, dtype and prompt length to one worker: they share a prefill."""
    axes = [cell.model, cell.dtype, cell.prompt_length]
    name = "-".join(str(value) for value in axes if value is not None)
    return (pytest.mark.xdist_group(name),) if name else ()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Generator[None, object, object]:
    """Note every case before options deselect some; of what they leave, keep this shard's part."""
    for item in items:
        registration = _registration(item)
        if registration is not None:
            config.stash[_collected_key].cases[registration.case.id] = registration.case
    ordered = yield
    chosen = cast("list[str]", config.getoption("case"))
    if chosen:
        _keep_cases(config, items, chosen)
    wanted = _shard(config)
    if wanted is not None:
        _keep_shard(config, items, *wanted)
    return ordered


def _keep_cases(config: pytest.Config, items: list[pytest.Item], chosen: list[str]) -> None:
    """Keep the cases asked for by id; an id that no case has is an error."""
    unknown = set(chosen) - set(config.stash[_collected_key].cases)
    if unknown:
        raise pytest.UsageError(f"--case: there is no case {', '.join(sorted(unknown))}")
    registrations = [_registration(item) for item in items]
    kept = [known is not None and known.case.id in chosen for known in registrations]
    dropped = [item for item, keep in zip(items, kept, strict=True) if not keep]
    items[:] = [item for item, keep in zip(items, kept, strict=True) if keep]
    config.hook.pytest_deselected(items=dropped)


def _keep_shard(config: pytest.Config, items: list[pytest.Item], index: int, of: int) -> None:
    names = sorted(_node_id(item) for item in items if _registration(item) is not None)
    collected = config.stash[_collected_key]
    collected.total = len(names)
    collected.selection = hashlib.sha256("\n".join(names).encode()).hexdigest()[:16]
    groups = [_shard_group(item) for item in items]
    shards = shard.split(Counter(groups), of)
    kept = [shards[group] == index for group in groups]
    dropped = [item for item, keep in zip(items, kept, strict=True) if not keep]
    items[:] = [item for item, keep in zip(items, kept, strict=True) if keep]
    if dropped:
        config.hook.pytest_deselected(items=dropped)


def _shard_group(item: pytest.Item) -> str:
    """What stays in one shard: the cells of one xdist group, a test without a group by itself."""
    return "_".join(sorted(_xdist_groups(item))) or item.nodeid


def pytest_collection_finish(session: pytest.Session) -> None:
    """Note how many cells are to run."""
    selected = sum(_registration(item) is not None for item in session.items)
    session.config.stash[_collected_key].selected = selected


def _registration(item: pytest.Item) -> Registration | None:
    return registration_of(getattr(item, "function", None))


def _place(item: pytest.Item) -> Place | None:
    registration = _registration(item)
    return None if registration is None else Place(registration, _params(item))


# --- verdicts ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Outcome:
    """A verdict with what is known of its cause; the note is from the known failures."""

    verdict: Verdict
    reason: str | None = None
    error: BaseException | None = None
    note: str | None = None


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Give a case's report its verdict, and the outcome that pytest shows for it."""
    report = yield
    registration = _registration(item)
    if registration is None:
        return report
    outcome = _classify(item, call, report)
    if outcome is None and report.when == "setup":
        outcome = _Outcome(Verdict.ERROR, "the process died before the case ended")
    elif outcome is not None:
        outcome = _held_to_known(item, report, outcome)
        _show(item, report, outcome)
    if outcome is not None:
        result = _result(item, registration.case, outcome)
        payload = {"case": case_record(registration.case), "result": result_record(result)}
        report.user_properties.append((_PROPERTY, payload))
    return report


def _held_to_known(item: pytest.Item, report: pytest.TestReport, outcome: _Outcome) -> _Outcome:
    """The outcome as the known failures make it; they have no say in a teardown."""
    if report.when == "teardown":
        return outcome
    judged = item.config.stash[_known_key].judge(item, outcome.verdict, _message(outcome))
    if judged.verdict is outcome.verdict:
        return replace(outcome, note=judged.note)
    return replace(outcome, verdict=judged.verdict, reason=judged.note)


def _classify(
    item: pytest.Item, call: pytest.CallInfo[None], report: pytest.TestReport
) -> _Outcome | None:
    """The verdict of a phase; None for a setup or teardown that went well."""
    error = None if call.excinfo is None else _leading(call.excinfo.value)
    expected_failure = cast("str | None", getattr(report, "wasxfail", None))
    if expected_failure is not None:
        verdict = Verdict.XFAIL if report.skipped else Verdict.XPASS
        return _Outcome(verdict, expected_failure or "expected to fail", error)
    if error is None and report.failed:
        return _Outcome(Verdict.XPASS, report.longreprtext)
    if error is None:
        return _witnessed(item) if report.when == "call" else None
    return _raised(error, report.when)


def _witnessed(item: pytest.Item) -> _Outcome:
    """The verdict of a call that raised nothing: a pass only if arrays were compared."""
    if _witness(item).as_dict()["compared"] > 0:
        return _Outcome(Verdict.PASS)
    return _Outcome(Verdict.INCONCLUSIVE, "proves nothing: its witness compared no array")


def _raised(error: BaseException, when: str | None) -> _Outcome:
    if isinstance(error, Unsupported):
        return _Outcome(Verdict.UNSUPPORTED, error.reason)
    if isinstance(error, Inconclusive):
        return _Outcome(Verdict.INCONCLUSIVE, error.reason, error)
    if isinstance(error, NearTie):
        return _Outcome(Verdict.NEAR_TIE, error.reason, error)
    if isinstance(error, pytest.skip.Exception):
        return _Outcome(Verdict.ERROR, f"a case never skips: {error.msg}", error)
    if when == "call" and isinstance(error, AssertionError | pytest.fail.Exception):
        return _Outcome(Verdict.FAIL, error=error)
    return _Outcome(Verdict.ERROR, error=error)


def _leading(error: BaseException) -> BaseException:
    """The first error of a group (hypothesis raises groups), itself for any other."""
    grouped = cast("tuple[BaseException, ...]", getattr(error, "exceptions", ()))
    return _leading(grouped[0]) if grouped else error


def _show(item: pytest.Item, report: pytest.TestReport, outcome: _Outcome) -> None:
    """Set what pytest itself shows where it would show something else."""
    if outcome.verdict in (Verdict.UNSUPPORTED, Verdict.NEAR_TIE):
        path, line, _ = item.location
        report.outcome = "skipped"
        report.longrepr = (path, (line or 0) + 1, f"{outcome.verdict}: {outcome.reason}")
    elif outcome.verdict in (Verdict.INCONCLUSIVE, Verdict.ERROR) and not report.failed:
        report.outcome = "failed"
        report.longrepr = f"{outcome.verdict}: {outcome.reason}"
    elif outcome.verdict in (Verdict.XFAIL, Verdict.XPASS) and not hasattr(report, "wasxfail"):
        _show_known(report, outcome)
    if outcome.note is not None:
        report.sections.append(("known failures", outcome.note))


def _show_known(report: pytest.TestReport, outcome: _Outcome) -> None:
    """Show a known failure as pytest shows a strict xfail."""
    if outcome.verdict is Verdict.XFAIL:
        report.outcome = "skipped"
        report.wasxfail = outcome.reason or ""
    else:
        report.outcome = "failed"
        report.longrepr = f"{outcome.verdict}: {outcome.reason}"


def _result(item: pytest.Item, case: Case, outcome: _Outcome) -> Result:
    harmless = outcome.verdict in (Verdict.PASS, Verdict.UNSUPPORTED)
    return Result(
        case=case.id,
        params=_params(item),
        verdict=outcome.verdict,
        seconds=0.0,
        witness=_witness(item).as_dict(),
        failure=None if harmless else _failure(item, outcome),
        reason="; ".join(filter(None, (outcome.reason, outcome.note))) or None,
    )


def _failure(item: pytest.Item, outcome: _Outcome) -> Failure:
    values = cast("dict[str, object]", getattr(item, "funcargs", {}))
    oracles, cell = values.get("oracles"), values.get("cell")
    if outcome.verdict is Verdict.XFAIL and outcome.error is not None:
        outcome = replace(outcome, reason=None)  # how it fails; why it may is the result's reason
        oracles = None  # and how small it can be made was found out when it was listed
    return detailed(
        Failure(message=_message(outcome), command=_command(item)),
        outcome.error if outcome.verdict is not Verdict.XPASS else None,
        oracles if isinstance(oracles, Oracles) else None,
        cell if isinstance(cell, Cell) else None,
    )


def _message(outcome: _Outcome) -> str:
    if outcome.reason is not None:
        return outcome.reason
    if isinstance(outcome.error, StateDiffers):
        return str(outcome.error)
    return f"{type(outcome.error).__name__}: {outcome.error}".removesuffix(": ")


def _command(item: pytest.Item) -> str:
    """The command that runs this one cell again, in the way this run was started."""
    registration, callspec = _registration(item), getattr(item, "callspec", None)
    words = _options(item.config)
    if item.config.inipath is not None and item.config.inipath.name == SETTINGS:
        assert registration is not None
        chosen = ["--case", registration.case.id]
        if callspec is not None:
            chosen += ["-k", f"[{callspec.id}]"]
        return shlex.join(["mtp-conformance", "run", *chosen, *words, "-n", "0"])
    for name in ("strategies", "max_draft_tokens"):
        if item.config.getoption(name) is not None:
            words += [f"--{name.replace('_', '-')}", str(item.config.getoption(name))]
    if item.config.pluginmanager.hasplugin("xdist"):
        words += ["-n", "0"]
    return shlex.join([_python(), "-m", "pytest", _node_id(item), *words])


def _options(config: pytest.Config) -> list[str]:
    """What the same cell needs besides its name."""
    words = ["--profile", cast("str", config.getoption("profile"))]
    runtime = cast("str", config.getoption("runtime"))
    command = cast("str | None", config.getoption("runtime_cmd"))
    for name, usual in _USUAL.items():
        value = str(config.getoption(name))
        if value != usual:
            words += [f"--{name.replace('_', '-')}", value]
    if config.getoption("row_exact"):
        words += ["--row-exact"]
    for file in cast("list[str] | None", config.getoption("known")) or []:
        words += ["--known", file]
    if runtime != "builtin":
        words += ["--runtime", runtime]
    if command is not None:
        words += ["--runtime-cmd", command]
    return words


def _python() -> str:
    """This interpreter as a person in the current folder would name it."""
    path = Path(sys.executable)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else "python"


def _node_id(item: pytest.Item) -> str:
    """The node id without the ``@group`` that xdist's loadgroup appends to it."""
    groups = _xdist_groups(item)
    return item.nodeid.removesuffix(f"@{'_'.join(sorted(groups))}") if groups else item.nodeid


def _xdist_groups(item: pytest.Item) -> set[str]:
    marks = item.iter_markers("xdist_group")
    return {str(mark.args[0]) if mark.args else "default" for mark in marks}


def _params(item: pytest.Item) -> dict[str, Scalar]:
    """A cell's parameters, and those of plain ``parametrize`` marks beside it."""
    callspec = getattr(item, "callspec", None)
    if callspec is None:
        return {}
    given = cast("dict[str, object]", callspec.params)
    params: dict[str, Scalar] = {}
    for name, value in given.items():
        if isinstance(value, Cell):
            params |= value.params
        elif isinstance(value, str | int | float):
            params[name] = value
        else:
            params["id"] = cast("str", callspec.id)
    return params


def _witness(item: pytest.Item) -> Witness:
    return item.stash.get(_witness_key, Witness())


# --- from workers to the controller ------------------------------------------------------------


def pytest_sessionfinish(session: pytest.Session) -> None:
    """In a worker: send what was collected and how the runtime describes itself."""
    output = cast("dict[str, object] | None", getattr(session.config, "workeroutput", None))
    if output is None:
        return
    collected = session.config.stash[_collected_key]
    output[_PROPERTY] = {
        "cases": [case_record(case) for case in collected.cases.values()],
        "selected": collected.selected,
        "total": collected.total,
        "selection": collected.selection,
        "runtime": session.config.stash.get(_runtime_key, None),
    }


class _WorkerNode(Protocol):
    """What is used of xdist's handle on a worker."""

    workeroutput: Mapping[str, object]


# --- the record of the run ---------------------------------------------------------------------


class _Recorder:
    """Collects results as reports come in; writes the report when the session ends."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._open: dict[str, Result] = {}
        self._started = time.perf_counter()
        self._git: GitState | None = None
        self._collected_all = True
        self.results: list[Result] = []
        self.alone = True
        """Whether nothing but cases ran, so that the time is theirs."""
        self.seconds = 0.0
        self.written: Path | None = None
        self.pages: list[Path] = []

    @property
    def target(self) -> Path | None:
        """Where the report goes, None when there is none to write."""
        folder = cast("str | None", self._config.getoption("report"))
        if folder is None or self._config.getoption("collectonly"):
            return None
        return Path(folder) / _REPORT_NAME

    def pytest_sessionstart(self) -> None:
        """Remove the reports of an earlier run and note the state of the checkout."""
        self._started = time.perf_counter()
        if self.target is None:
            return
        self.target.parent.mkdir(parents=True, exist_ok=True)
        self.target.unlink(missing_ok=True)
        partial_path(self.target).unlink(missing_ok=True)
        from mtp_conformance.reporting.pages import remove_all  # jinja2 is for reports alone

        remove_all(self.target.parent)
        self._git = git_state(self._config.rootpath)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note a file that could not be collected: workers would run the others all the same."""
        if report.failed:
            self._collected_all = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Follow a cell from setup to teardown; keep its result when it ends."""
        payload = _payload(report)
        self.alone = self.alone and (payload is not None or report.when != "call")
        if payload is not None:
            case = read_case(payload["case"])
            self._config.stash[_collected_key].cases[case.id] = case
            self._merge(report.nodeid, read_result(payload["result"]))
        result = self._open.get(report.nodeid)
        if result is None:
            return
        crashed = report.when not in _PHASES
        if crashed:
            result = _crashed(result, report.longreprtext.splitlines()[-1])
        self._open[report.nodeid] = replace(result, seconds=result.seconds + report.duration)
        if crashed or report.when == "teardown":
            self.results.append(self._open.pop(report.nodeid))

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: _WorkerNode) -> None:
        """Take over what a worker collected; one that crashed has nothing to give."""
        output = getattr(node, "workeroutput", {}).get(_PROPERTY)
        if output is None:
            return
        collected = self._config.stash[_collected_key]
        cases = [read_case(record) for record in cast("list[Record]", output["cases"])]
        collected.cases |= {case.id: case for case in cases}
        collected.selected = max(collected.selected, cast("int", output["selected"]))
        collected.total = max(collected.total, cast("int", output["total"]))
        collected.selection = collected.selection or cast("str", output["selection"])
        if output["runtime"] is not None:
            describe_runtime(self._config, cast("Record", output["runtime"]))

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """Write the report, under its final name only if every selected cell ended."""
        self.seconds = time.perf_counter() - self._started
        if self.target is None:
            return
        with ReportWriter(self.target) as writer:
            self._write(writer)
            complete = self._complete(exitstatus)
            self.written = writer.close(self.seconds) if complete else writer.abort(self.seconds)
        if complete:
            self.pages = _write_pages(self.written)

    def _merge(self, node_id: str, result: Result) -> None:
        """Let a later phase's result replace an earlier one, but not hide a failure of the call."""
        known = self._open.get(node_id)
        if known is None:
            self._open[node_id] = result
        elif known.verdict not in (Verdict.FAIL, Verdict.INCONCLUSIVE):
            self._open[node_id] = replace(result, seconds=known.seconds)

    def _complete(self, exitstatus: int) -> bool:
        ended = exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
        ended = ended and self._collected_all
        return ended and 0 < len(self.results) == self._config.stash[_collected_key].selected

    def _write(self, writer: ReportWriter) -> None:
        cases = _sorted_cases(self._config.stash[_collected_key].cases.values())
        name = cast("str", self._config.getoption("runtime"))
        writer.header(
            environment_header(
                git=self._git,
                cases=cases,
                runtime={"name": name, **self._config.stash.get(_runtime_key, {}), **self._given()},
                profile=cast("str", self._config.getoption("profile")),
                seed=cast("int", self._config.getoption("seed")),
                argv=[str(argument) for argument in self._config.invocation_params.args],
                shard=self._shard(),
                probe=self._probe(),
            )
        )
        for case in cases:
            writer.case(case)
        for result in sorted(self.results, key=lambda result: result.key):
            writer.result(result)

    def _given(self) -> dict[str, object]:
        """How the runtime was named, and what was selected of which this is a shard."""
        command = cast("str | None", self._config.getoption("runtime_cmd"))
        found: dict[str, object] = {"given": command or self._config.getoption("runtime")}
        selection = self._config.stash[_collected_key].selection
        if selection:
            found["selection"] = selection
        return found

    def _probe(self) -> Mapping[str, object] | None:
        """The probe of the device, for a run in which a runtime was judged."""
        if _runtime_key not in self._config.stash:
            return None
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        if terminal is not None:  # on a GPU this takes a minute
            terminal.write_line(
                "\nfinding out what rounds by the number of rows here, for the report"
            )
        probe = run_probe()
        return {**probe.as_dict(), "fingerprint": probe.fingerprint, "row_exact": probe.row_exact}

    def _shard(self) -> Shard | None:
        wanted = _shard(self._config)
        return wanted and Shard(*wanted, self._config.stash[_collected_key].total)


def _write_pages(report: Path) -> list[Path]:
    from mtp_conformance.reporting.pages import write_all

    return write_all(read_report(report), report.parent)


def _payload(report: pytest.TestReport) -> Mapping[str, Record] | None:
    for name, value in report.user_properties:
        if name == _PROPERTY:
            return cast("Mapping[str, Record]", value)
    return None


def _crashed(result: Result, message: str) -> Result:
    """The result of a cell during which its worker died: its last word was a provisional one."""
    if result.failure is None:
        return replace(result, verdict=Verdict.ERROR, reason=message)
    failure = replace(result.failure, message=message)
    return replace(result, verdict=Verdict.ERROR, reason=message, failure=failure)


def _seed(text: str) -> int:
    """A whole number from 0; anything else is refused by the option's name."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 0")
    return int(text)


def _sorted_cases(cases: Iterable[Case]) -> list[Case]:
    return sorted(cases, key=lambda case: case.id)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the summary of the run if any case ran."""
    from mtp_conformance.summary import render  # rich is slow to import

    config = terminalreporter.config
    recorder = config.stash.get(_recorder_key, None)
    if recorder is None or not recorder.results:
        return
    colour = terminalreporter.hasmarkup
    whole = recorder.alone and config.stash[_known_key].whole and _shard(config) is None
    # pytest offers no public width.
    width = terminalreporter._tw.fullwidth  # pyright: ignore[reportPrivateUsage]
    text = render(
        recorder.results,
        seconds=recorder.seconds,
        profile=cast("str", config.getoption("profile")) if whole else "",
        report=recorder.written,
        pages=recorder.pages,
        colour=colour,
        width=width if colour else max(100, width),
    )
    terminalreporter.section("MTP conformance")
    terminalreporter.write(text)
