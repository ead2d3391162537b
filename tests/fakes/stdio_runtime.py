"""A runtime over stdio that misbehaves as its argument says.

    python -m tests.fakes.stdio_runtime MODE

`good` is the builtin runtime. The others answer the handshake properly and then go wrong at
the first round.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from mtp_conformance.protocol import PROTOCOL_VERSION
from mtp_conformance.stdio import serve

_CARD = {
    "protocol": PROTOCOL_VERSION,
    "name": "fake",
    "versions": {},
    "capabilities": ["stream", "drafts"],
    "models": [],
    "strategies": ["default"],
    "max_draft_tokens": 8,
}
_ROUND = {"accepted": 0, "tokens": [1], "counters": {}}


def _say(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _misbehave(mode: str, number: int) -> None:
    good = json.dumps({"id": number, "ok": True, "result": _ROUND})
    if mode == "hangs":
        time.sleep(600)
    elif mode == "dies":
        print("about to die: out of luck", file=sys.stderr, flush=True)
        os._exit(3)
    elif mode == "prints":
        _say("loading weights...\n")
    elif mode == "half-line":
        _say(good[: len(good) // 2])
        os._exit(0)
    elif mode == "wrong-number":
        _say(json.dumps({"id": number + 7, "ok": True, "result": _ROUND}) + "\n")
    elif mode == "no-object":
        _say(json.dumps({"id": number, "ok": True, "result": [1, 2]}) + "\n")
    elif mode == "fills-stderr":
        sys.stderr.write("noise " * 200_000 + f"\nat {Path.cwd()}/a.py\nlast words\n")
        sys.stderr.flush()
        os._exit(1)


def main(mode: str) -> None:
    """Serve, or answer by hand until the first round."""
    if mode == "good":
        from mtp_conformance.adapters.builtin import make_runtime  # slow; the others need none

        serve(make_runtime())
        return
    if mode == "old-protocol":
        _CARD["protocol"] = 0
    for line in sys.stdin:
        request: dict[str, Any] = json.loads(line)
        if mode == "injects-nothing" and request["op"] == "inject":
            problem = {"type": "KeyError", "message": "inject"}
            _say(json.dumps({"id": request["id"], "ok": False, "error": problem}) + "\n")
            continue
        if request["op"] == "round":
            _misbehave(mode, request["id"])
            continue
        results: dict[str, Any] = {"hello": _CARD, "open": {"session": "s"}}
        result = results.get(request["op"], _ROUND)
        _say(json.dumps({"id": request["id"], "ok": True, "result": result}) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
