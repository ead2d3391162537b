"""`mtp-conformance gate --model DIR`: is decoding with drafts lossless on this checkpoint, here?"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mlx.core as mx

from mtp_conformance.case import Cell
from mtp_conformance.commands import Subparsers
from mtp_conformance.commands.common import add_runtime_options, running, say
from mtp_conformance.failure import RuntimeFailure, UsageError
from mtp_conformance.protocol import Capability, Options
from mtp_conformance.suite import suite_root

if TYPE_CHECKING:
    from mtp_conformance.gate.checks import Check, Plan
    from mtp_conformance.gate.prompts import Encode, Prompt
    from mtp_conformance.protocol import Runtime
    from mtp_conformance.report import Header, Result

_REPORT = "report.jsonl"
_BEYOND_K = 4
_DRAFT_TOKENS = 257
_EXAMPLES = """examples:
  mtp-conformance gate --model ~/models/Qwen3.5-9B-4bit --k 1,2,3
  mtp-conformance gate --model DIR --k 3 --prompts prompts.txt --max-tokens 256
  mtp-conformance gate --model DIR --k 1,2,3 --row-exact --device gpu
  mtp-conformance gate --model DIR --k 2 --runtime-cmd "python -m their.adapter"

prompts: one a line; in a .jsonl file each line is a string, or an object with "prompt" or "tokens".
Every prompt is decoded; the first two are held to the state claims as well.

exit codes: 0 lossless: tokens with drafts are those of K=0, and so is the state; 1 broken: it says
in which layer, component and round; 2 a folder, file or option that cannot be used; 3 near-ties
only, or inconclusive; 130 interrupted: what ended before is in report.partial.jsonl
"""


def add_parser(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "gate",
        help="is decoding with drafts lossless on a checkpoint of yours, here?",
        description="Hold one checkpoint folder to the claims of the suite: K=0 repeats itself, "
        "rewound states are those of runs without a rejected draft, tokens with K drafts are "
        "those of K=0. Says lossless, near-ties only, broken or inconclusive.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--model", type=Path, required=True, metavar="DIR", help="checkpoint folder")
    add("--k", type=_depths, default=(1, 2, 3), metavar="1,2,3", help="draft tokens to try (1,2,3)")
    add_runtime_options(parser, seconds=600.0)
    add("--prompts", type=Path, metavar="FILE", help="in place of a little code and prose")
    add("--max-tokens", type=int, default=64, metavar="N", help="tokens of a stream (64)")
    add("--row-exact", action="store_true", help="verify row by row; the runtime must offer it")
    add("--strategy", default="", metavar="NAME", help="one of the runtime's ways of rewinding")
    for option, whose in (("--norms", "the model's"), ("--head-norms", "its MTP head's")):
        add(
            option,
            choices=("about-zero", "about-one"),
            help=f"builtin: what {whose} norm weights are stored about, where it cannot be told",
        )
    add("--device", choices=("cpu", "gpu"), help="mlx's (a GPU where there is one)")
    add("--mx-compile", choices=("off", "on"), help="(on, but off on a CPU, where it needs g++)")
    add(
        "--out",
        type=Path,
        metavar="DIR",
        default=Path("reports/gate-checkpoint"),
        help="where report.jsonl and its pages go (reports/gate-checkpoint)",
    )
    add("--quiet", action="store_true", help="no progress")
    add("--json", action="store_true", help="one JSON object instead of the screen")
    parser.set_defaults(run=run)


def _depths(text: str) -> tuple[int, ...]:
    """Numbers from 1, by commas."""
    parts = text.split(",")
    if not all(part.strip().isdecimal() and int(part) > 0 for part in parts):
        raise argparse.ArgumentTypeError(f"{text!r} is no list of numbers from 1, such as 1,2,3")
    return tuple(dict.fromkeys(int(part) for part in parts))


def run(arguments: argparse.Namespace) -> int:
    """Hold the folder to the claims; returns the exit code above."""
    if not arguments.model.is_dir():
        raise UsageError(f"--model {arguments.model} is no folder; give a checkpoint folder")
    _set_device(arguments)
    sys.path.insert(0, str(suite_root()))  # for reference_models
    with running(arguments, _folder_runtime(arguments)) as runtime:
        return _Gate(arguments, runtime).run()


def _folder_runtime(arguments: argparse.Namespace) -> Callable[[], Runtime] | None:
    """What `--runtime builtin` stands for here."""
    if arguments.runtime_cmd is not None or arguments.runtime != "builtin":
        if arguments.norms or arguments.head_norms:
            raise UsageError("--norms and --head-norms are for the builtin runtime's loader")
        return None
    from mtp_conformance.adapters import builtin

    return lambda: builtin.FolderRuntime(arguments.norms, arguments.head_norms)


def _set_device(arguments: argparse.Namespace) -> None:
    has_gpu = mx.is_available(mx.gpu)
    if arguments.device == "gpu" and not has_gpu:
        raise UsageError("--device gpu: this mlx has no GPU backend; use --device cpu")
    arguments.device = arguments.device or ("gpu" if has_gpu else "cpu")
    mx.set_default_device(mx.gpu if arguments.device == "gpu" else mx.cpu)
    arguments.mx_compile = arguments.mx_compile or ("on" if arguments.device == "gpu" else "off")
    if arguments.mx_compile == "off":
        mx.disable_compile()


@dataclass(frozen=True)
class _Opened:
    """What a first session showed of the folder; a vocabulary of 0 is not known."""

    dtype: str
    state: int
    vocabulary: int


def _check_vocabulary(prompts: Sequence[Prompt], size: int) -> None:
    """Refuse tokens that the model does not have.

    Raises:
        UsageError: names the prompt, or says that injected drafts need more tokens.
    """
    if 0 < size < _DRAFT_TOKENS:
        raise UsageError(f"the vocabulary has {size} tokens; drafts need {_DRAFT_TOKENS}")
    for prompt in prompts:
        if size and max(prompt.tokens) >= size:
            raise UsageError(
                f"prompt {prompt.name} holds token {max(prompt.tokens)}, the vocabulary ends at "
                f"{size - 1}"
            )


class _Gate:
    """One run of the command."""

    def __init__(self, arguments: argparse.Namespace, runtime: Runtime) -> None:
        from mtp_conformance.checked import CheckedRuntime

        self._arguments = arguments
        self._runtime = runtime
        self._card = CheckedRuntime(runtime).description
        self._start = time.perf_counter()

    def run(self) -> int:
        """All of it; returns the exit code."""
        self._check_card()
        try:
            begun = self._begin()
        except KeyboardInterrupt:
            self._clear()
            say("interrupted; nothing was judged yet")
            return 130
        return self._judge(*begun)

    def _begin(self) -> tuple[Plan, tuple[Check, ...], Header, int, int]:
        """What is judged, by which checks, under which header; bytes loaded and of a state."""
        from mtp_conformance.gate.checks import checks_for

        prompts = self._prompts()
        self._say("loading the checkpoint")
        facts = self._facts()
        plan, opened = self._plan(prompts)
        loaded = mx.get_active_memory()
        mx.reset_peak_memory()
        checks = checks_for(row_exact=plan.row_exact)
        return plan, checks, self._header(plan, checks, facts), loaded, opened.state

    def _check_card(self) -> None:
        """Refuse what the runtime does not offer.

        Raises:
            UsageError: says what it does.
        """
        given, card = self._arguments, self._card
        if given.row_exact and Capability.ROW_EXACT not in card.capabilities:
            raise UsageError(f"--row-exact: {card.name} has no row-exact mode; leave it out")
        if max(given.k) > card.max_draft_tokens:
            most = card.max_draft_tokens
            raise UsageError(f"--k {max(given.k)}: {card.name} drafts at most {most} tokens")
        if given.strategy and given.strategy not in card.strategies:
            known = ", ".join(card.strategies)
            raise UsageError(f"--strategy {given.strategy}: {card.name} has {known}")
        least = max(given.k) + _BEYOND_K
        if given.max_tokens < least:
            raise UsageError(
                f"--max-tokens {given.max_tokens}: give {least} or more, so that drafts of every "
                f"K are accepted and rejected"
            )

    def _prompts(self) -> list[Prompt]:
        from mtp_conformance.gate.prompts import built_in, read_prompts

        file = self._arguments.prompts
        encode = self._encode()
        return built_in(encode) if file is None else read_prompts(file, encode)

    def _encode(self) -> Encode:
        """The folder's tokenizer, looked for when the first text has to be encoded."""
        found: list[Any] = []

        def encode(text: str) -> Sequence[int]:
            from mtp_conformance.adapters.builtin import encoder

            if not found:
                found.append(encoder(self._arguments.model))
            return found[0](text)

        return encode

    def _facts(self) -> Mapping[str, str]:
        """What the loader found; of another runtime than the builtin one the name alone."""
        show: Callable[[Path], Mapping[str, str]] | None = getattr(self._runtime, "facts", None)
        name = self._arguments.model.resolve().name
        return {"name": name, **(show(self._arguments.model) if show is not None else {})}

    def _plan(self, prompts: list[Prompt]) -> tuple[Plan, _Opened]:
        from mtp_conformance.gate.checks import Plan
        from mtp_conformance.gate.oracles import GateOracles

        given = self._arguments
        folder = given.model.resolve()
        oracles = GateOracles(self._runtime, folder, prompts, row_exact=given.row_exact)
        opened = self._first_look(oracles, folder, prompts[0])
        _check_vocabulary(prompts, opened.vocabulary)
        plan = Plan(
            oracles=oracles,
            model=folder.name,
            dtype=opened.dtype,
            strategy=given.strategy,
            ks=given.k,
            prompts=tuple(prompts),
            max_tokens=given.max_tokens,
            row_exact=given.row_exact,
        )
        return plan, opened

    def _first_look(self, oracles: Any, folder: Path, prompt: Prompt) -> _Opened:
        """Open the folder and prefill once: what cannot be opened ends the gate here."""
        from mtp_conformance.oracles import MOST_ROUNDING
        from mtp_conformance.verdict import Unsupported

        try:
            session = oracles.runtime.open(folder.name, folder, Options())
            logits = session.prefill(prompt.tokens).logits
            shows = oracles.runtime.offers(Capability.STATE)
            state = sum(a.nbytes for a in session.state().values()) if shows else 0
        except Unsupported as error:
            raise UsageError(f"{self._card.name} cannot open {folder.name}: {error}") from error
        if logits is None:
            return _Opened("bfloat16", state, 0)
        dtype = str(logits.dtype).removeprefix("mlx.core.")
        if dtype not in MOST_ROUNDING:
            raise RuntimeFailure(f"logits are {dtype}, no type of a decoder")
        return _Opened(dtype, state, logits.shape[-1])

    def _judge(
        self, plan: Plan, checks: Sequence[Check], header: Header, loaded: int, state: int
    ) -> int:
        from mtp_conformance.gate import screen
        from mtp_conformance.gate.answer import EXIT, answer
        from mtp_conformance.gate.running import measured
        from mtp_conformance.report import read_report
        from mtp_conformance.reporting.pages import write_all

        results: list[Result] = []
        with self._writer(header, checks) as writer:
            try:
                for result in self._results(plan, checks, writer):
                    results.append(result)
            except KeyboardInterrupt:
                partial = writer.abort(time.perf_counter() - self._start)
                self._clear()
                say(f"interrupted; what ended before is in {partial}")
                return 130
            memory = measured(loaded, state)
            path = writer.close(time.perf_counter() - self._start, memory.as_dict())
        self._clear()
        outcome = answer((check.case for check in checks), results)
        pages = write_all(read_report(path), path.parent)
        if self._arguments.json:
            print(json.dumps(self._record(header, results, outcome, memory.as_dict(), path)))
        else:
            print("\n".join(screen.render(header, results, outcome, memory)))
            print(screen.where(path, pages))
        return EXIT[outcome.answer]

    def _results(self, plan: Plan, checks: Sequence[Check], writer: Any) -> Any:
        from mtp_conformance.gate.running import run_checks

        return run_checks(plan, checks, writer, self._command, self._say)

    @contextmanager
    def _writer(self, header: Header, checks: Sequence[Check]) -> Generator[Any]:
        from mtp_conformance.report import ReportWriter
        from mtp_conformance.reporting.pages import remove_all

        out = self._arguments.out
        if out.exists() and not out.is_dir():
            raise UsageError(f"--out {out} is a file; name a folder for the report")
        try:
            out.mkdir(parents=True, exist_ok=True)
            remove_all(out)
            writer = ReportWriter(out / _REPORT)
        except OSError as error:
            raise UsageError(f"--out {out}: {error.strerror}") from error
        with writer:
            writer.header(header)
            for check in checks:
                writer.case(check.case)
            yield writer

    def _header(self, plan: Plan, checks: Sequence[Check], facts: Mapping[str, str]) -> Header:
        from mtp_conformance.fixtures import card_of
        from mtp_conformance.probe import run_probe
        from mtp_conformance.report import environment_header, git_state

        probe = run_probe(progress=lambda name: self._say(f"probing {name}"))
        given = self._arguments
        in_process = plan.oracles.runtime.in_process
        found = {"fingerprint": probe.fingerprint, "row_exact": probe.row_exact}
        return environment_header(
            git=git_state(suite_root()),
            cases=[check.case for check in checks],
            runtime={
                **card_of(self._card),
                "given": given.runtime_cmd or given.runtime,
                "checkpoint": {**facts, "dtype": f"logits in {plan.dtype}"},
                "row_exact": plan.row_exact,
                "in_process": in_process,
                "mx_compile": given.mx_compile if in_process else "as its process decides",
            },
            profile="checkpoint",
            seed=None,
            argv=sys.argv[1:],
            probe={**probe.as_dict(), **found},
        )

    def _record(
        self,
        header: Header,
        results: Sequence[Result],
        outcome: Any,
        memory: Mapping[str, int],
        path: Path,
    ) -> dict[str, object]:
        from collections import Counter

        from mtp_conformance.gate.answer import EXIT
        from mtp_conformance.report import result_record
        from mtp_conformance.verdict import Verdict

        counts = Counter(str(result.verdict) for result in results)
        harmless = (Verdict.PASS, Verdict.UNSUPPORTED)
        return {
            "answer": outcome.answer.value,
            "because": outcome.because,
            "exit": EXIT[outcome.answer],
            "checkpoint": header.runtime["checkpoint"],
            "counts": dict(counts),
            "memory": dict(memory),
            "open": [result_record(r) for r in results if r.verdict not in harmless],
            "report": str(path),
        }

    def _command(self, cell: Cell) -> str:
        """What holds the same folder to the claims again, with this cell's K alone."""
        given = self._arguments
        words = ["mtp-conformance", "gate", "--model", str(given.model)]
        words += ["--k", str(cell.k) if cell.k else ",".join(map(str, given.k))]
        for name, usual in (
            ("prompts", None),
            ("max_tokens", 64),
            ("strategy", ""),
            ("norms", None),
            ("head_norms", None),
        ):
            if getattr(given, name) != usual:
                words += [f"--{name.replace('_', '-')}", str(getattr(given, name))]
        if given.runtime_cmd is not None:
            words += ["--runtime-cmd", given.runtime_cmd]
        elif given.runtime != "builtin":
            words += ["--runtime", given.runtime]
        words += ["--device", given.device, "--mx-compile", given.mx_compile]
        words += ["--row-exact"] * given.row_exact
        return shlex.join(words)

    def _say(self, text: str) -> None:
        """Progress: one line that is written over on a terminal, else a line each."""
        if self._arguments.quiet:
            return
        if sys.stderr.isatty():
            sys.stderr.write(f"\r\x1b[2K{text}")
            sys.stderr.flush()
        else:
            say(text)

    def _clear(self) -> None:
        if not self._arguments.quiet and sys.stderr.isatty():
            sys.stderr.write("\r\x1b[2K")
            sys.stderr.flush()
