"""K=0 streams of one runtime beside another's: the stock claim, reported and never judged.

    python -m mtp_conformance.stock --runtime-cmd "python -m their.adapter" --out stock.json

Another engine may order its sums otherwise, keep another norm convention or break ties elsewhere,
and be right. What is found is therefore a note beside the verdicts and no verdict.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

from mtp_conformance.adapters import builtin
from mtp_conformance.checked import CheckedRuntime
from mtp_conformance.failure import RuntimeFailure
from mtp_conformance.grid import PEER_MODELS
from mtp_conformance.process import ProcessRuntime
from mtp_conformance.protocol import Capability, Options
from mtp_conformance.tokens import first_difference
from mtp_conformance.verdict import Unsupported

LENGTH = 24
PROMPT = 12


def compare(runtime: CheckedRuntime, model: str, folder: Path) -> str:
    """Where the runtime's float32 K=0 stream leaves the builtin decoder's, in words."""
    materials = builtin.zoo_materials(folder)
    checkpoint = materials.checkpoint(model, "float32")
    prompt = materials.prompt[:PROMPT]
    try:
        ours = _stream(CheckedRuntime(builtin.make_runtime()), model, checkpoint, prompt)
        theirs = _stream(runtime, model, checkpoint, prompt)
    except Unsupported:
        return "–"
    except RuntimeFailure as error:
        return f"error: {str(error).splitlines()[0]}"
    at = first_difference(theirs, ours)
    return f"equal for {LENGTH} tokens" if at is None else f"differs at token {at}"


def _stream(
    runtime: CheckedRuntime, model: str, checkpoint: Path, prompt: Sequence[int]
) -> list[int]:
    session = runtime.open(model, checkpoint, Options())
    tokens = list(prompt)
    made = session.generate(tokens, num_draft_tokens=0, max_tokens=LENGTH)
    session.close()
    return list(made.tokens)


def main() -> None:
    """Compare every model of the profile `peers`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runtime-cmd", required=True)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    process = ProcessRuntime(arguments.runtime_cmd)
    runtime = CheckedRuntime(process)
    found: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        if runtime.offers(Capability.STREAM):
            found = {model: compare(runtime, model, Path(folder)) for model in PEER_MODELS}
    process.close()
    arguments.out.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
