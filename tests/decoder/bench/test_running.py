"""Running a plan: processes one after the other, rows as they come."""

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mtp_decoder import DecoderError
from mtp_decoder.bench.plan import Arm, Job, Model, Plan, jobs_of
from mtp_decoder.bench.rows import Rows, read_rows
from mtp_decoder.bench.running import LaunchError, launch, only, quick, run_plan
from tests.decoder.bench.made import DEEP, MACHINE, PLAIN, STOCK, Watching, measured, plan_of

PLAN = plan_of(STOCK, PLAIN, DEEP)
Start = Callable[[Plan, Job], list[dict[str, Any]]]


def well(_: Plan, job: Job) -> list[dict[str, Any]]:
    """A process that says what it should."""
    return [measured(job)]


def stopped_after(count: int) -> Start:
    """Processes of which that many end, and then somebody presses Ctrl-C."""
    done = 0

    def start(plan: Plan, job: Job) -> list[dict[str, Any]]:
        nonlocal done
        done += 1
        if done > count:
            raise KeyboardInterrupt
        return well(plan, job)

    return start


def _run(folder: Path, start: Start = well, plan: Plan = PLAN, **how: Any) -> Rows:
    return run_plan(plan, folder, Watching(), start=start, **how)


def _places(rows: Rows) -> list[tuple[str, int, int, bool]]:
    return [(run.arm, run.k, run.turn, run.warm_up) for run in rows.runs]


def test_every_process_in_turn(tmp_path: Path) -> None:
    """Rows are in the order of the plan, warm-up and all, and the file is finished."""
    watcher = Watching()
    rows = run_plan(PLAN, tmp_path / "new" / "folder", watcher, start=well)
    jobs = jobs_of(PLAN.blocks[0])
    assert _places(rows) == [(j.arm.runtime, j.arm.k, j.turn, j.warm_up) for j in jobs]
    assert (rows.complete, len(watcher.begun)) == (True, 7)
    assert watcher.begun[-1] == "mlx-lm 0 1 6/7"


SLICED = plan_of(STOCK, PLAIN, slice_tokens=8)


def test_arms_that_share_a_process(tmp_path: Path) -> None:
    """Their rows come in the order in which they took turns, each with its own arm."""
    rows = _run(tmp_path, lambda _, job: [measured(job) for _ in job.arms], SLICED)
    assert _places(rows) == [
        *[("mlx-lm", 0, -1, True)],
        *[("mlx-lm", 0, 0, False), ("mtp-decoder", 0, 0, False)],
        *[("mtp-decoder", 0, 1, False), ("mlx-lm", 0, 1, False)],
    ]
    with pytest.raises(DecoderError, match="is finished"):
        _run(tmp_path, plan=SLICED, resume=True)


def test_arms_that_fail_together(tmp_path: Path) -> None:
    """A process that ends early is the failure of every arm in it."""
    rows = _run(tmp_path, well, SLICED)  # one row where two are due
    assert [(f.arm, f.turn) for f in rows.failures] == [
        *[("mlx-lm", 0), ("mtp-decoder", 0), ("mtp-decoder", 1), ("mlx-lm", 1)],
    ]
    assert all("gave 1 rows" in failure.error for failure in rows.failures)


def _fails(_: Plan, job: Job) -> list[dict[str, Any]]:
    raise LaunchError("out of memory")


@pytest.mark.parametrize(
    ("start", "message"),
    [
        (_fails, "out of memory"),
        (lambda plan, job: [], "gave 0 rows"),
        (lambda plan, job: [{**measured(job), "workload": "song"}], "gave 1 rows"),
        (lambda plan, job: [{**measured(job), "tempo": 3}], "printed other fields"),
        (lambda plan, job: [{**measured(job), "tokens": 7}], "emitted 7 tokens, not 192"),
    ],
)
def test_a_process_that_fails(tmp_path: Path, start: Start, message: str) -> None:
    """Its place is taken by its failure, and the rest goes on."""

    def some(plan: Plan, job: Job) -> list[dict[str, Any]]:
        return start(plan, job) if job.arm == DEEP else well(plan, job)

    rows = _run(tmp_path, some)
    assert len(rows.runs) == 5
    assert [(f.k, f.turn) for f in rows.failures] == [(2, 0), (2, 1)]
    assert all(message in failure.error for failure in rows.failures)


def test_a_stopped_run_goes_on(tmp_path: Path) -> None:
    """Rows of whole passes stay; the pass that was interrupted is run again, after a warm-up."""
    with pytest.raises(KeyboardInterrupt):
        _run(tmp_path, stopped_after(5))
    stopped = read_rows(tmp_path / "rows.jsonl")
    assert (len(stopped.runs), stopped.complete) == (5, False)
    rows = _run(tmp_path, resume=True)
    again = [job for job in jobs_of(PLAN.blocks[0]) if job.turn != 0]
    assert [(k, turn) for _, k, turn, _ in _places(rows)[:3]] == [(0, 0), (0, 0), (2, 0)]
    assert _places(rows)[3:] == [(j.arm.runtime, j.arm.k, j.turn, j.warm_up) for j in again]
    assert rows.complete


def test_a_line_that_was_not_written_whole(tmp_path: Path) -> None:
    """What a computer that went down left of a line is dropped."""
    with pytest.raises(KeyboardInterrupt):
        _run(tmp_path, stopped_after(5))
    file = tmp_path / "rows.jsonl"
    file.write_text(file.read_text()[:-20])
    assert len(_run(tmp_path, resume=True).runs) == 7


def test_refuses_rows_that_are_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is replaced unasked, nor mixed with another plan's rows or another computer's."""
    with pytest.raises(KeyboardInterrupt):
        _run(tmp_path, stopped_after(5))
    before = (tmp_path / "rows.jsonl").read_bytes()
    with pytest.raises(DecoderError, match="--resume goes on with it, --fresh replaces it"):
        _run(tmp_path)
    with pytest.raises(DecoderError, match="is of another plan"):
        _run(tmp_path, plan=plan_of(PLAIN), resume=True)
    monkeypatch.setattr("mtp_decoder.bench.running.machine", lambda _: MACHINE)
    with pytest.raises(DecoderError, match="is of another computer"):
        _run(tmp_path, resume=True)
    monkeypatch.undo()
    assert (tmp_path / "rows.jsonl").read_bytes() == before
    _run(tmp_path, resume=True)
    with pytest.raises(DecoderError, match="is finished; --fresh replaces it"):
        _run(tmp_path, resume=True)
    assert len(_run(tmp_path, fresh=True).runs) == 7


def test_quick() -> None:
    """A quick plan has each model's first block, its ends of K, and says that it is one."""
    blocks = [plan_of(*(Arm(k=k) for k in range(7)), title=t).blocks[0] for t in ("one", "two")]
    other = replace(blocks[0], title="three", model="n", tokens=16)
    made = quick(replace(PLAN, blocks=(*blocks, other)))
    assert [(b.title, b.tokens, b.passes, b.repeats) for b in made.blocks] == [
        ("one", 48, 2, 1),
        ("three", 16, 2, 1),
    ]
    assert [arm.k for arm in made.blocks[0].arms] == [0, 3]
    assert made.quick
    assert not PLAN.quick


def test_only() -> None:
    """Blocks are chosen by their titles, and the others are named."""
    blocks = [plan_of(PLAIN, title=title).blocks[0] for title in ("one a", "two a", "two b")]
    plan = replace(PLAN, blocks=tuple(blocks))
    made = only(plan, ["one", "b"])
    assert [block.title for block in made.blocks] == ["one a", "two b"]
    assert made.left_out == ("two a",)
    with pytest.raises(DecoderError, match="no block has 'c' in its title; there are: one a; two"):
        only(plan, ["one", "c"])


def test_a_process(checkpoint: Callable[..., Path]) -> None:
    """An arm of ours runs in a Python of its own, and says what a row needs."""
    plan = replace(PLAN, models={"m": Model("m", str(checkpoint("gdn")))})
    job = replace(jobs_of(PLAN.blocks[0])[3], block=replace(PLAN.blocks[0], tokens=6, warm_up=0))
    (row,) = launch(plan, job)
    assert set(row) == set(measured(job))
    assert (job.arm, row["tokens"], len(row["drafted_by_depth"])) == (DEEP, 6, 2)


def _peer(tmp_path: Path, script: str) -> tuple[Plan, Job]:
    file = tmp_path / "peer.py"
    file.write_text(script)
    plan = replace(plan_of(Arm("peer", 0, "")), peers={"peer": f"{sys.executable} -S {file}"})
    return plan, jobs_of(plan.blocks[0])[1]


def test_a_process_of_another_runtime(tmp_path: Path) -> None:
    """It gets the specification, and its lines of JSON are rows; anything else is not."""
    script = "import json, sys\nprint('hello')\nprint(json.dumps({'k': json.load(sys.stdin)['k']}))"
    assert launch(*_peer(tmp_path, script)) == [{"k": 0}]


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("import sys; sys.exit('error: no such model')", "^no such model$"),
        ("import sys; sys.exit(3)", "exit code 3"),
        ("print('{broken')", "printed no JSON"),
    ],
)
def test_a_process_that_says_why(tmp_path: Path, script: str, message: str) -> None:
    """The last line of what it said is its failure."""
    with pytest.raises(LaunchError, match=message):
        launch(*_peer(tmp_path, script))


def test_a_process_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is ended, with whatever it started."""
    monkeypatch.setattr("mtp_decoder.bench.running.HANGS_AFTER", 0.3)
    with pytest.raises(LaunchError, match="no end after"):
        launch(*_peer(tmp_path, "import time; time.sleep(60)"))


def test_a_runtime_that_is_not_there() -> None:
    """Its command is named."""
    plan = replace(plan_of(Arm("peer", 0, "")), peers={"peer": "/no/such/python x.py"})
    with pytest.raises(LaunchError, match="cannot start /no/such/python"):
        launch(plan, jobs_of(plan.blocks[0])[1])


def test_versions_of_other_runtimes(tmp_path: Path) -> None:
    """What they say of themselves stands with ours."""
    rows = _run(tmp_path, plan=replace(PLAN, versions={"peer": "3.1"}))
    assert {"mlx", "mlx-lm", "peer"} <= set(rows.header.machine["versions"])
    assert rows.header.machine["versions"]["peer"] == "3.1"


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    """It is said before anything runs."""
    (tmp_path / "file").write_text("")
    with pytest.raises(DecoderError, match=r"cannot write .*rows\.jsonl: Not a directory"):
        _run(tmp_path / "file" / "folder")
