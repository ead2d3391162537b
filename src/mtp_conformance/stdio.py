"""A runtime in a process of its own: JSON lines for control, safetensors for arrays.

The runtime's side is `serve`: an adapter ends with `serve(MyRuntime())`. It needs the
standard library and mlx alone.

Every request is one line `{"id": n, "op": ..., "session": ..., "args": {...}}`, every answer
one line `{"id": n, "ok": true, "result": {...}}` or `{"id": n, "ok": false, "error": ...}`.
Arrays are written to a safetensors file in the exchange folder, which the first request
names; the answer holds the file's name under `arrays`.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any, cast

import mlx.core as mx

from mtp_conformance import answers
from mtp_conformance.injecting import Injector
from mtp_conformance.protocol import (
    PROTOCOL_VERSION,
    Adapter,
    Description,
    Generated,
    Options,
    Outcome,
    RuntimeSession,
    SmallestSession,
    Trial,
)

Json = dict[str, Any]


def describe_json(description: Description) -> Json:
    """A description as JSON values."""
    record = asdict(description)
    record["capabilities"] = sorted(c.value for c in description.capabilities)
    return {
        **record,
        "versions": dict(description.versions),
        "notes": dict(description.notes),
    }


def serve(runtime: Adapter) -> None:
    """Answer requests from stdin until it ends.

    A session needs only the methods of the capabilities its runtime lists.

    Whatever the runtime prints goes to stderr, so that it cannot break a line of the protocol.
    """
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    server = _Server(runtime, channel)
    for line in sys.stdin:
        server.answer(json.loads(line))


class _Server:
    """The sessions of one process."""

    def __init__(self, runtime: Adapter, channel: IO[str]) -> None:
        self._runtime = runtime
        self._channel = channel
        self._sessions: dict[str, RuntimeSession] = {}
        self._exchange = Path()
        self._files = 0
        self._injector = Injector()

    def answer(self, request: Json) -> None:
        """Do what a request asks and write one line."""
        try:
            result = self._dispatch(request["op"], request.get("session", ""), request["args"])
            answer = {"id": request["id"], "ok": True, "result": result}
        except Exception as error:  # the harness is told, and judges
            if not str(error).startswith("unsupported:"):
                traceback.print_exc()  # to stderr, whose tail goes into the report
            problem = {"type": type(error).__name__, "message": str(error)}
            answer = {"id": request["id"], "ok": False, "error": problem}
        self._channel.write(json.dumps(answer) + "\n")
        self._channel.flush()

    def _dispatch(self, op: str, name: str, args: Json) -> Json:
        if op == "hello":
            self._exchange = Path(args["exchange"])
            mx.set_default_device(mx.gpu if args.get("device") == "gpu" else mx.cpu)
            card = answers.description(self._runtime.describe())
            return {"protocol": PROTOCOL_VERSION, **describe_json(card)}
        if op == "open":
            options = Options(**args["options"])
            opened = self._runtime.open(args["model"], Path(args["checkpoint"]), options)
            return self._add(answers.session(opened, "open"))
        if op == "inject":
            return self._inject(args["evaluation"])
        session = self._sessions[name]
        if op == "fork":
            forked = session.fork(Options(**args["options"]))
            return self._add(answers.session(forked, "fork"))
        if op == "close":
            del self._sessions[name]
            session.close()
            return {}
        return self._call(session, op, args)

    def _inject(self, evaluation: int) -> Json:
        if evaluation:
            self._injector.arm(evaluation)
            return {"raised": False}
        return {"raised": self._injector.disarm()}

    def _add(self, opened: SmallestSession) -> Json:
        session = cast("RuntimeSession", opened)  # only what it has capabilities for is called
        name = f"s{len(self._sessions)}-{self._files}"
        self._files += 1
        self._sessions[name] = session
        return {"session": name}

    def _call(self, session: RuntimeSession, op: str, args: Json) -> Json:
        if op in ("prefill", "round", "extend"):
            given = args["tokens"]
            outcome = getattr(session, op)(given)
            return self._outcome(answers.outcome(outcome, len(given) * (op == "round"), op))
        if op == "generate":
            made = session.generate(args.pop("tokens"), **args)
            return self._generated(answers.generated(made, args["num_draft_tokens"]))
        if op == "depths":
            most = args["num_draft_tokens"]
            trials = [[Trial(**trial) for trial in request] for request in args["requests"]]
            chosen = session.depths(trials, num_draft_tokens=most)
            return {"depths": answers.depths(chosen, list(map(len, trials)), most)}
        if op == "state":
            return {"arrays": self._write(answers.state(session.state()))}
        return self._act(session, op, args)

    @staticmethod
    def _act(session: RuntimeSession, op: str, args: Json) -> Json:
        if op == "poison":
            return {"filled": session.poison(args["value"])}
        if op == "timings":
            return answers.timings(session.timings())
        if op == "slow_rewind":
            session.slow_rewind(args["component"], args["steps"])
        elif op == "cancel":
            drafts = args.get("tokens", ())
            session.cancel(drafts) if drafts else session.cancel()
        elif op in ("save", "restore"):
            (session.save if op == "save" else session.restore)(Path(args["file"]))
        else:
            raise ValueError(f"unknown operation {op!r}")
        return {}

    @staticmethod
    def _generated(made: Generated) -> Json:
        counts = {"drafted": made.drafted, "accepted": made.accepted}
        drafts = [[int(token) for token in drafts] for drafts in made.drafts]
        tokens = [int(token) for token in made.tokens]
        text = {"text": made.text, "logprobs": [float(p) for p in made.logprobs]}
        return {"tokens": tokens, **counts, "drafts": drafts, **text}

    def _outcome(self, outcome: Outcome) -> Json:
        record: Json = {
            "accepted": outcome.accepted,
            "tokens": [int(token) for token in outcome.tokens],
            "counters": dict(outcome.counters),
        }
        if outcome.logits is not None:
            answers.array(outcome.logits, "logits")
            record["arrays"] = self._write({"logits": outcome.logits})
        return record

    def _write(self, arrays: Mapping[str, mx.array]) -> str:
        self._files += 1
        name = f"{os.getpid()}-{self._files}.safetensors"
        mx.save_safetensors(str(self._exchange / name), dict(arrays))
        return name
