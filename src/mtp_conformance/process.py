"""The harness's side of a runtime in a process of its own.

A runtime that hangs, dies, writes garbage or half a line, or answers another question than
was asked costs the case that met it an error with the tail of its stderr. It is started anew
for the next session.
"""

from __future__ import annotations

import collections
import contextlib
import json
import os
import queue
import shlex
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import weakref
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, cast

import mlx.core as mx

from mtp_conformance.failure import RuntimeFailure
from mtp_conformance.protocol import (
    PROTOCOL_VERSION,
    Capability,
    Description,
    Generated,
    Options,
    Outcome,
    Trial,
)

Json = dict[str, Any]
_STDERR_LINES = 20
_LINE_LIMIT = 2000
_STDERR_MOMENT = 0.05
MOST_TIMEOUTS = 2
"""So often one model may let a time limit pass; after that it is not opened again."""


@dataclass(frozen=True)
class TimeLimits:
    """Seconds a call may take: opening a model, and anything else."""

    open: float = 300.0
    call: float = 60.0


class ProcessRuntime:
    """A runtime started by a command.

    Args:
        command: as typed in a shell; it is split, not run by one.
        limits: seconds.
        device: `cpu` or `gpu`, what mlx computes on in that process.

    Raises:
        RuntimeFailure: the command cannot be started or does not speak this protocol.
    """

    def __init__(self, command: str, limits: TimeLimits | None = None, device: str = "cpu") -> None:
        self._command = command
        self._device = device
        self._limits = limits or TimeLimits()
        self._folder = Path(tempfile.mkdtemp(prefix="mtp-exchange-"))
        self._remove = weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        self._process: _Process | None = None
        self._description: Description | None = None
        self.generation = 0
        self._timeouts: collections.Counter[str] = collections.Counter()

    def describe(self) -> Description:
        """The card the process gave in its handshake."""
        self._running()
        assert self._description is not None
        return self._description

    def open(self, model: str, checkpoint: Path, options: Options) -> ProcessSession:
        """Start a session, and the process if there is none."""
        if self._timeouts[model] >= MOST_TIMEOUTS:
            raise RuntimeFailure(
                f"{model} let {MOST_TIMEOUTS} time limits pass and is not asked again; "
                "if it is slow and not stuck, give more seconds with --time-limit"
            )
        args = {"model": model, "checkpoint": str(checkpoint), "options": asdict(options)}
        result = self.ask("open", "", args, self.generation or 1, model)
        return ProcessSession(self, _text(result, "session"), self.generation, model)

    def ask(self, op: str, session: str, args: Json, generation: int, model: str) -> Json:
        """Ask one question of the process that is running, about a session of a model.

        Raises:
            RuntimeFailure: the process of that generation is gone, or fails now.
        """
        process = self._running() if op == "open" else self._process
        if process is None or (op != "open" and generation != self.generation):
            raise RuntimeFailure("the runtime's process is gone since an earlier failure")
        try:
            limit = self._limits.open if op == "open" else self._limits.call
            return process.ask(op, session, args, limit)
        except _Broken as error:
            self._timeouts[model] += isinstance(error, _TimedOut)
            self._process = None
            raise RuntimeFailure(str(error), process.kill()) from error

    def stderr_tail(self) -> str:
        """The last lines the running process wrote to stderr; empty if there is none."""
        return "" if self._process is None else self._process.tail()

    def inject(self, evaluation: int) -> bool:
        """Let an evaluation in the process raise, counted from now; 0 lets none.

        Returns:
            With 0 whether the one before did raise.

        Raises:
            RuntimeError: `unsupported:` if the process does not know this.
            RuntimeFailure: the process is gone, or fails now.
        """
        generation = self.generation
        try:
            result = self.ask("inject", "", {"evaluation": evaluation}, generation, "")
        except RuntimeFailure as error:
            if self._process is None:
                raise
            raise RuntimeError(f"unsupported: its process injects no failures: {error}") from error
        return bool(result.get("raised"))

    def load(self, result: Json) -> dict[str, mx.array]:
        """The arrays an answer refers to; the file is removed.

        Raises:
            RuntimeFailure: there is no such file, or it is no safetensors file.
        """
        file = self._folder / Path(_text(result, "arrays")).name
        try:
            arrays = cast("dict[str, mx.array]", mx.load(str(file)))
            mx.eval(list(arrays.values()))
        except (RuntimeError, ValueError, OSError) as error:
            raise RuntimeFailure(f"its array file cannot be read: {error}") from error
        file.unlink()
        return arrays

    def close(self) -> None:
        """End the process and remove the exchange folder."""
        if self._process is not None:
            self._process.kill()
            self._process = None
        self._remove()

    def _running(self) -> _Process:
        if self._process is None:
            process = _Process(self._command)
            self.generation += 1
            try:
                hello = {
                    "protocol": PROTOCOL_VERSION,
                    "exchange": str(self._folder),
                    "device": self._device,
                }
                card = process.ask("hello", "", hello, self._limits.open)
                self._description = _description(card)
            except (_Broken, RuntimeFailure) as error:
                raise RuntimeFailure(f"no handshake: {error}", process.kill()) from error
            self._process = process
        return self._process


class ProcessSession:
    """A session in the runtime's process."""

    def __init__(self, runtime: ProcessRuntime, name: str, generation: int, model: str) -> None:
        self._runtime = runtime
        self._name = name
        self._generation = generation
        self._model = model

    def _ask(self, op: str, **args: Any) -> Json:
        return self._runtime.ask(op, self._name, args, self._generation, self._model)

    def prefill(self, tokens: Sequence[int]) -> Outcome:
        """See the protocol."""
        return self._outcome(self._ask("prefill", tokens=list(tokens)))

    def round(self, drafts: Sequence[int]) -> Outcome:
        """See the protocol."""
        return self._outcome(self._ask("round", tokens=list(drafts)))

    def generate(
        self,
        tokens: Sequence[int],
        *,
        num_draft_tokens: int,
        max_tokens: int,
        eos_token_ids: Sequence[int] = (),
        stop_sequences: Sequence[Sequence[int]] = (),
        guess: Sequence[int] | None = None,
        stop_strings: Sequence[str] = (),
    ) -> Generated:
        """See the protocol."""
        # An older adapter's `generate` has no such argument.
        text = {"stop_strings": list(stop_strings)} if stop_strings else {}
        result = self._ask(
            "generate",
            tokens=list(tokens),
            num_draft_tokens=num_draft_tokens,
            max_tokens=max_tokens,
            eos_token_ids=list(eos_token_ids),
            stop_sequences=[list(stop) for stop in stop_sequences],
            guess=None if guess is None else list(guess),
            **text,
        )
        counts = (_integer(result, name) for name in ("drafted", "accepted"))
        drafts = cast("list[list[int]]", result.get("drafts") or [])
        return Generated(
            _tokens(result),
            *counts,
            drafts=tuple(map(tuple, drafts)),
            text=str(result.get("text") or ""),
            logprobs=tuple(cast("list[float]", result.get("logprobs") or [])),
        )

    def depths(
        self, requests: Sequence[Sequence[Trial]], *, num_draft_tokens: int
    ) -> list[list[int]]:
        """See the protocol."""
        trials = [[asdict(trial) for trial in request] for request in requests]
        result = self._ask("depths", requests=trials, num_draft_tokens=num_draft_tokens)
        return cast("list[list[int]]", result.get("depths"))

    def state(self) -> dict[str, mx.array]:
        """See the protocol."""
        return self._runtime.load(self._ask("state"))

    def poison(self, value: float) -> int:
        """See the protocol."""
        return _integer(self._ask("poison", value=value), "filled")

    def timings(self) -> dict[str, float]:
        """See the protocol."""
        return {str(name): float(value) for name, value in self._ask("timings").items()}

    def slow_rewind(self, component: str, steps: int) -> None:
        """See the protocol."""
        self._ask("slow_rewind", component=component, steps=steps)

    def fork(self, options: Options | None = None) -> ProcessSession:
        """See the protocol."""
        result = self._ask("fork", options=asdict(options or Options()))
        name = _text(result, "session")
        return ProcessSession(self._runtime, name, self._generation, self._model)

    def save(self, file: Path) -> None:
        """See the protocol."""
        self._ask("save", file=str(file))

    def restore(self, file: Path) -> None:
        """See the protocol."""
        self._ask("restore", file=str(file))

    def cancel(self, drafts: Sequence[int] = ()) -> None:
        """See the protocol."""
        self._ask("cancel", tokens=list(drafts))

    def extend(self, tokens: Sequence[int]) -> Outcome:
        """See the protocol."""
        return self._outcome(self._ask("extend", tokens=list(tokens)))

    def close(self) -> None:
        """See the protocol."""
        self._ask("close")

    def _outcome(self, result: Json) -> Outcome:
        logits = self._runtime.load(result).get("logits") if "arrays" in result else None
        counters = {str(k): int(v) for k, v in result.get("counters", {}).items()}
        return Outcome(_integer(result, "accepted"), _tokens(result), logits, counters)


class _Broken(Exception):
    """The process can no longer be talked to."""


class _TimedOut(_Broken):
    """It gave no answer in time."""


class _Process:
    """One running process and the threads that read it."""

    def __init__(self, command: str) -> None:
        try:
            self._popen = subprocess.Popen(
                shlex.split(command) or [""],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            why = "it is empty" if not command.strip() else str(error)
            raise RuntimeFailure(f"cannot start {command!r}: {why}") from error
        self._lines: queue.Queue[bytes | None] = queue.Queue()
        self._stderr: collections.deque[str] = collections.deque(maxlen=_STDERR_LINES)
        self._count = 0
        self._threads = [
            threading.Thread(target=self._read_answers, daemon=True),
            threading.Thread(target=self._read_stderr, daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def ask(self, op: str, session: str, args: Json, seconds: float) -> Json:
        """Write a request and read its answer.

        Raises:
            _Broken: no use in asking anything more.
            RuntimeFailure: the runtime reports an error of its own.
        """
        self._count += 1
        request = {"id": self._count, "op": op, "session": session, "args": args}
        try:
            stdin = cast("IO[bytes]", self._popen.stdin)
            stdin.write(json.dumps(request).encode() + b"\n")
            stdin.flush()
        except OSError:
            raise _Broken(f"{op}: the runtime died ({self._exit()})") from None
        return self._answer(op, seconds)

    def _answer(self, op: str, seconds: float) -> Json:
        try:
            line = self._lines.get(timeout=seconds)
        except queue.Empty:
            why = f"{op}: no answer within {seconds:g} s (--time-limit gives it more)"
            raise _TimedOut(why) from None
        if line is None:
            raise _Broken(f"{op}: the runtime died ({self._exit()})")
        try:
            answer = json.loads(line)
            number, ok = answer["id"], answer["ok"]
            result = answer["result"] if ok else answer["error"]
        except (ValueError, KeyError, TypeError):
            shown = line[:200].decode(errors="replace").rstrip()
            raise _Broken(f"{op}: an answer that is no line of the protocol: {shown!r}") from None
        if number != self._count:
            raise _Broken(f"{op}: an answer to request {number}, not {self._count}")
        if not isinstance(result, dict):
            raise _Broken(f"{op}: an answer whose result is no object")
        if not ok:
            self._raise(op, cast("Json", result))
        return cast("Json", result)

    def _raise(self, op: str, problem: Json) -> None:
        message = str(problem.get("message", ""))
        if message.startswith("unsupported:"):
            raise RuntimeError(message)
        raise RuntimeFailure(f"{op}: {problem.get('type', 'error')}: {message}", self.tail())

    def tail(self) -> str:
        """The last lines of stderr; what was written before an answer has a moment to arrive."""
        time.sleep(_STDERR_MOMENT)
        return self._last_words()

    def kill(self) -> str:
        """End the process, whatever it does; returns the tail of its stderr."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._popen.pid, signal.SIGKILL)  # it leads a session of its own
        self._popen.wait()
        for thread in self._threads:
            thread.join(timeout=2)
        for pipe in (self._popen.stdin, self._popen.stdout, self._popen.stderr):
            with contextlib.suppress(OSError):
                cast("IO[bytes]", pipe).close()
        return self._last_words()

    def _last_words(self) -> str:
        """What was kept of stderr, files named from the current folder on: it may be published."""
        return "\n".join(list(self._stderr)).replace(f"{Path.cwd()}{os.sep}", "")

    def _exit(self) -> str:
        try:
            code = self._popen.wait(timeout=2)
        except subprocess.TimeoutExpired:
            return "it closed its output and still runs"
        return f"signal {-code}" if code < 0 else f"exit code {code}"

    def _read_answers(self) -> None:
        stdout = cast("IO[bytes]", self._popen.stdout)
        for line in stdout:
            self._lines.put(line)
        self._lines.put(None)

    def _read_stderr(self) -> None:
        stderr = cast("IO[bytes]", self._popen.stderr)
        while chunk := stderr.readline(_LINE_LIMIT):
            self._stderr.append(chunk.decode(errors="replace").rstrip("\n"))


def _description(card: Json) -> Description:
    version = card.get("protocol")
    if version != PROTOCOL_VERSION:
        raise RuntimeFailure(
            f"the runtime speaks protocol {version!r}, this suite {PROTOCOL_VERSION}; "
            "install the same mtp-conformance on both sides"
        )
    try:
        return Description(
            name=card["name"],
            versions={str(k): str(v) for k, v in card["versions"].items()},
            capabilities=frozenset(Capability(value) for value in card["capabilities"]),
            models=tuple(card["models"]),
            strategies=tuple(card["strategies"]),
            head_rows=tuple(card.get("head_rows", ("draft",))),
            max_draft_tokens=int(card["max_draft_tokens"]),
            after_stop=str(card.get("after_stop", "frontier")),
            depth_policies=tuple(card.get("depth_policies", ())),
            notes={str(k): str(v) for k, v in card.get("notes", {}).items()},
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RuntimeFailure(f"the runtime's description is not one: {error}") from error


def _text(result: Json, name: str) -> str:
    value = result.get(name)
    if not isinstance(value, str):
        raise RuntimeFailure(f"an answer has no text {name!r}")
    return value


def _integer(result: Json, name: str) -> int:
    value = result.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise RuntimeFailure(f"an answer has no integer {name!r}")
    return value


def _tokens(result: Json) -> tuple[int, ...]:
    value = result.get("tokens")
    if not isinstance(value, list) or not all(isinstance(t, int) for t in cast("list[Any]", value)):
        raise RuntimeFailure("an answer has no list of integer tokens")
    return tuple(cast("list[int]", value))
