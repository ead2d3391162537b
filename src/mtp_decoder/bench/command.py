"""`python -m mtp_decoder bench`: run a plan, show what came out, write the page.

Raw rows are in `OUT/rows.jsonl` as they come; everything shown is made from them.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

from mtp_decoder.bench.page import write_page
from mtp_decoder.bench.plan import DISK, MEMORY, MLX_LM, Arm, Block, Job, Model, Plan, arms_of
from mtp_decoder.bench.plan_file import Encode, read_plan, read_text
from mtp_decoder.bench.rows import Failure, Rows, Run, line_of, read_rows
from mtp_decoder.bench.running import ROWS, only, quick, run_plan
from mtp_decoder.bench.table import table
from mtp_decoder.errors import DecoderError
from mtp_decoder.naming import member_of
from mtp_decoder.qwen.load import read_config
from mtp_decoder.rewind import Rewind

EXAMPLES = """examples:
  python -m mtp_decoder bench --model DIR --prompt code=prompt.py
  python -m mtp_decoder bench --model DIR --num-draft-tokens 0,3 --rewind tape,snapshot --json
  python -m mtp_decoder bench --model DIR --expert-budget 24G --out reports/bench
  python -m mtp_decoder bench --plan docs/bench.toml --out reports/bench --page docs/benchmarks.md
  python -m mtp_decoder bench --rows reports/bench/rows.jsonl --page docs/benchmarks.md
"""
OUT = Path("reports/bench")
PROMPT = "def rewind(cache, accepted):\n    "
_OF_A_MODEL: dict[str, Any] = {
    **{"loader": None, "prompt": [], "num_draft_tokens": "0,1,2,3,4,5,6", "rewind": "tape"},
    **{"expert_budget": None, "max_tokens": 192, "passes": 2},
}
_OF_A_RUN: dict[str, Any] = {
    **{"device": None, "only": None, "quick": False, "resume": False, "fresh": False},
}


def add(commands: Any, size: Callable[[str], int]) -> None:
    """Add the command to `ArgumentParser.add_subparsers`'s; `size` reads a number of bytes."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "bench",
        help="speed against K, strategy and experts on disk, in fresh processes that take turns",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--model", type=Path, metavar="DIR", help="checkpoint folder")
    what.add_argument("--plan", type=Path, metavar="FILE", help="TOML: models, prompts, blocks")
    what.add_argument("--rows", type=Path, metavar="FILE", help="run nothing; show these rows")
    add_ = parser.add_argument
    add_("--loader", metavar="PACKAGE.MODULE:FUNCTION", help="as of `generate`")
    add_(
        "--prompt",
        action="append",
        metavar="NAME=FILE",
        help="a workload: a name and a file of text; repeatable (a line of Python)",
    )
    add_("--num-draft-tokens", metavar="K,...", help="(0,1,2,3,4,5,6)")
    add_("--rewind", metavar="NAME,...", help="strategies (tape)")
    add_("--expert-budget", type=size, metavar="SIZE", help="run with experts on disk, too")
    add_("--max-tokens", type=int, metavar="N", help="tokens a run (192)")
    add_("--passes", type=int, metavar="N", help="turns an arm; even (2)")
    add_("--device", choices=["cpu", "gpu"], help="(MLX's default)")
    add_("--out", type=Path, default=OUT, metavar="DIR", help=f"of {ROWS} ({OUT})")
    add_("--resume", action="store_true", help="go on with a run that was stopped")
    add_("--fresh", action="store_true", help="replace rows that are there")
    add_("--only", action="append", metavar="TEXT", help="blocks with it in the title; repeatable")
    add_("--quick", action="store_true", help="few arms and tokens: does it work?")
    add_("--page", type=Path, metavar="FILE", help="write a page and plots (needs matplotlib)")
    add_("--json", action="store_true", help="one JSON object a raw run, as they come")
    add_("--quiet", action="store_true", help="no progress")
    parser.set_defaults(**_OF_A_MODEL, **_OF_A_RUN)


def run(arguments: argparse.Namespace, encode: Encode) -> int:
    """Run the command; returns 0, or 1 if a process failed.

    Raises:
        DecoderError: bad input, or rows that are there already.
    """
    _refuse_without_effect(arguments)
    if arguments.rows is not None:
        rows = read_rows(arguments.rows)
        if arguments.json:
            print("".join(map(line_of, [*rows.runs, *rows.failures])), end="")
    else:
        rows = _measure(arguments, encode)
    if not arguments.json:
        print(table(rows))
    if arguments.page is not None:
        for file in write_page(rows, arguments.page):
            print(f"wrote {file}", file=sys.stderr)
    return 1 if rows.failures else 0


def _measure(arguments: argparse.Namespace, encode: Encode) -> Rows:
    # Processes are in sessions of their own: a shell's `kill` has to end them as Ctrl-C does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    plan = _plan(arguments, encode)
    plan = only(plan, arguments.only) if arguments.only else plan
    plan = quick(plan) if arguments.quick else plan
    watcher = Progress(
        sys.stderr, quiet=arguments.quiet, json_to=sys.stdout if arguments.json else None
    )
    return run_plan(plan, arguments.out, watcher, resume=arguments.resume, fresh=arguments.fresh)


def _plan(arguments: argparse.Namespace, encode: Encode) -> Plan:
    if arguments.plan is None:
        return _plan_of_options(arguments, encode)
    plan = read_plan(arguments.plan, encode)
    return plan if arguments.device is None else replace(plan, device=arguments.device)


def _plan_of_options(arguments: argparse.Namespace, encode: Encode) -> Plan:
    """A plan for one model: a block a strategy, and mlx-lm's loop where it has the class."""
    folder, name = arguments.model, arguments.model.resolve().name
    read_config(folder)
    depths = [_depth(text) for text in arguments.num_draft_tokens.split(",")]
    strategies = [
        member_of(Rewind, text.strip(), "--rewind").value for text in arguments.rewind.split(",")
    ]
    named = [_prompt(text) for text in arguments.prompt]
    _once(depths, "--num-draft-tokens")
    _once(strategies, "--rewind")
    _once([title for title, _ in named], "--prompt")
    texts = dict(named) or {"code": PROMPT}
    places = [MEMORY] if arguments.expert_budget is None else [MEMORY, DISK]
    stock = [Arm(MLX_LM, 0, "")] if arguments.loader is None and 0 in depths else []
    blocks = [
        Block(
            f"{name}, {strategy}" + (", experts on disk" if place == DISK else ""),
            name,
            (*(stock if place == MEMORY else []), *arms_of([strategy], depths, [place])),
            tuple(texts),
            arguments.passes,
            arguments.max_tokens,
        )
        for place in places
        for strategy in strategies
    ]
    model = Model(name, str(folder), arguments.loader, arguments.expert_budget)
    prompts = {name: {title: encode(folder, text) for title, text in texts.items()}}
    return Plan({name: model}, prompts, tuple(blocks), device=arguments.device)


def _depth(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise DecoderError(f"--num-draft-tokens is like 0,1,3, not {text!r}") from None


def _prompt(text: str) -> tuple[str, str]:
    name, _, file = text.partition("=")
    if not name or not file:
        raise DecoderError(f"--prompt is NAME=FILE, not {text!r}")
    return name, read_text(Path(file), "the prompt")


def _once(names: Sequence[Any], option: str) -> None:
    """Refuse a name that an option has twice: rows could not be told apart."""
    if twice := [name for name in names if names.count(name) > 1]:
        raise DecoderError(f"{option} has {twice[0]!r} twice; give it once")


def _refuse_without_effect(arguments: argparse.Namespace) -> None:
    """Refuse options that what is run has no use for."""
    given = "--plan" if arguments.rows is None else "--rows"
    unused = {} if arguments.model is not None else dict(_OF_A_MODEL)
    unused |= {} if arguments.rows is None else _OF_A_RUN
    for name, default in unused.items():
        if getattr(arguments, name) != default:
            rest = "" if name in _OF_A_MODEL else " or --plan"
            option = "--" + name.replace("_", "-")
            raise DecoderError(f"{option} goes with --model{rest}; it has no effect with {given}")


class Progress:
    """What runs, on a terminal in one line that is written over; elsewhere a line a block."""

    def __init__(self, out: TextIO, *, quiet: bool, json_to: TextIO | None = None) -> None:
        self._out, self._quiet, self._json_to = out, quiet, json_to
        self._start = time.monotonic()
        self._block = ""

    def begin(self, job: Job, done: int, total: int) -> None:
        """A process is about to start."""
        if self._quiet:
            return
        left = ""
        if done:
            seconds = (time.monotonic() - self._start) / done * (total - done)
            left = (
                f", about {seconds / 60:.0f} min left"
                if seconds > 90
                else f", {seconds:.0f} s left"
            )
        line = f"{done + 1}/{total} {job.block.title}: {job}{left}"
        if self._out.isatty():
            print(f"\r\033[K{line[:100]}", end="", file=self._out, flush=True)
        elif job.block.title != self._block:
            print(line, file=self._out, flush=True)
        self._block = job.block.title

    def end(self, job: Job, records: Sequence[Run | Failure]) -> None:
        """It ended; its rows go out as JSON if that is wanted, a failure is said."""
        if self._json_to is not None:
            print("".join(map(line_of, records)), end="", file=self._json_to, flush=True)
        for record in records:
            if isinstance(record, Failure) and not self._quiet:
                print(f"\n{job.block.title}: {job}: {record.error}", file=self._out, flush=True)
        if self._out.isatty() and not self._quiet:
            print("\r\033[K", end="", file=self._out, flush=True)
