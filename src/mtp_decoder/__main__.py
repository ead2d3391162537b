"""`python -m mtp_decoder generate`: text as it comes, then what the drafts were worth."""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from mlx_lm.tokenizer_utils import load as load_tokenizer

from mtp_decoder.counters import PHASES, Counters
from mtp_decoder.drafting import HeadRows
from mtp_decoder.errors import CheckpointError, DecoderError
from mtp_decoder.generate import check_arguments, emit
from mtp_decoder.qwen.load import load
from mtp_decoder.rewind import Rewind
from mtp_decoder.session import Session
from mtp_decoder.target import Head, Target

_EXAMPLES = """examples:
  python -m mtp_decoder generate --model DIR --prompt "def fib(n):" --num-draft-tokens 3
  python -m mtp_decoder generate --model DIR --prompt - --rewind snapshot --json < prompt.txt
  python -m mtp_decoder generate --model DIR --prompt "Once" --loader my_models:read
"""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m mtp_decoder",
        description="Decode with drafts from the model's own multi-token-prediction head.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    add = commands.add_parser(
        "generate",
        help="print text as it comes, then speed, acceptance by depth and time by phase",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    ).add_argument
    add("--model", type=Path, required=True, metavar="DIR", help="checkpoint folder")
    add("--prompt", required=True, metavar="TEXT", help="text to go on from; - reads stdin")
    add("--num-draft-tokens", type=int, default=3, metavar="K", help="drafts a round (3)")
    add("--max-tokens", type=int, default=256, metavar="N", help="-1 for no limit (256)")
    add("--rewind", choices=[r.value for r in Rewind], default=Rewind.TAPE.value)
    add("--head-rows", choices=[r.value for r in HeadRows], default=HeadRows.DRAFT.value)
    add("--prefill-step-size", type=int, default=2048, metavar="N", help="tokens a pass (2048)")
    add("--ignore-eos", action="store_true", help="go on after an end of text")
    add("--ignore-chat-template", action="store_true", help="give the prompt as it is")
    add(
        "--loader",
        metavar="PACKAGE.MODULE:FUNCTION",
        help="from a folder to (target, head), for models mlx-lm's classes do not cover",
    )
    add("--json", action="store_true", help="one JSON object at the end instead of the table")
    return parser


def main(argv: list[str] | None = None) -> int:
    """Run the command line; returns 0, 2 for bad input, or 130 after Ctrl-C."""
    arguments = _parser().parse_args(argv)
    try:
        return _generate(arguments)
    except DecoderError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _generate(arguments: argparse.Namespace) -> int:
    target, head = _load(arguments.model, arguments.loader)
    k = arguments.num_draft_tokens
    check_arguments(k, arguments.max_tokens, has_drafts=head is not None)
    tokenizer = _tokenizer(arguments.model)
    text = sys.stdin.read() if arguments.prompt == "-" else arguments.prompt
    session = Session(
        target,
        head if k else None,
        rewind=arguments.rewind,
        head_rows=arguments.head_rows,
        prefill_step_size=arguments.prefill_step_size,
    )
    prompt = _encode(tokenizer, text, plain=arguments.ignore_chat_template)
    session.check_prompt(prompt)
    ends = [] if arguments.ignore_eos else [(token,) for token in tokenizer.eos_token_ids]
    emissions = emit(
        session, prompt, num_draft_tokens=k, max_tokens=arguments.max_tokens, stops=ends
    )
    tokens: list[int] = []
    start, interrupted = time.perf_counter(), False
    try:
        for segment in _segments(tokenizer, emissions, tokens):
            if not arguments.json:
                print(segment, end="", flush=True)
    except KeyboardInterrupt:
        interrupted = True
    seconds = time.perf_counter() - start
    _report(arguments.json, session.counters, prompt, tokens, seconds, tokenizer)
    return 130 if interrupted else 0


def _load(folder: Path, loader: str | None) -> tuple[Target, Head | None]:
    if loader is None:
        loaded = load(folder)
        return loaded.target, loaded.head
    module, _, function = loader.partition(":")
    try:
        read = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise DecoderError(f"--loader {loader}: {error}; give package.module:function") from error
    try:
        return cast("tuple[Target, Head | None]", read(folder))
    except (ValueError, OSError) as error:
        raise CheckpointError(f"{loader} cannot read {folder}: {error}") from error


def _tokenizer(folder: Path) -> Any:
    """mlx-lm's tokenizer of the folder, ending where the model's config says."""
    config = json.loads((folder / "config.json").read_text())
    ends = config.get("eos_token_id", config.get("text_config", {}).get("eos_token_id"))
    try:
        return load_tokenizer(folder, eos_token_ids=ends)
    except (ValueError, OSError, KeyError) as error:
        raise CheckpointError(f"{folder} has no usable tokenizer: {error}") from error


def _encode(tokenizer: Any, text: str, *, plain: bool) -> list[int]:
    if tokenizer.has_chat_template and not plain:
        messages = [{"role": "user", "content": text}]
        return list(tokenizer.apply_chat_template(messages, add_generation_prompt=True))
    return list(tokenizer.encode(text))


def _segments(
    tokenizer: Any, emissions: Iterator[tuple[int, Any, bool]], tokens: list[int]
) -> Iterator[str]:
    """Printable text of every emission; `tokens` receives the ids."""
    detokenizer = tokenizer.detokenizer
    detokenizer.reset()
    for token, _, _ in emissions:
        tokens.append(token)
        detokenizer.add_token(token)
        yield detokenizer.last_segment
    detokenizer.finalize()
    yield detokenizer.last_segment


def _report(
    as_json: bool,
    counters: Counters,
    prompt: list[int],
    tokens: list[int],
    seconds: float,
    tokenizer: Any,
) -> None:
    decoding = seconds - counters.seconds["prefill"]
    speed = max(0, len(tokens) - 1) / decoding if decoding > 0 else 0.0
    if as_json:
        record = {
            "text": tokenizer.decode(tokens),
            "tokens": tokens,
            "prompt_tokens": len(prompt),
            "tokens_per_second": speed,
            "rounds": counters.rounds,
            "drafted_by_depth": counters.drafted_by_depth,
            "accepted_by_depth": counters.accepted_by_depth,
            "seconds": counters.seconds,
        }
        print(json.dumps(record))
        return
    print(f"\n\n{len(prompt)} prompt tokens, {len(tokens)} tokens in {seconds:.2f} s")
    print(f"{speed:.1f} tokens/s after the prefill, {counters.rounds} rounds")
    depths = zip(counters.drafted_by_depth, counters.accepted_by_depth, strict=True)
    for depth, (drafted, accepted) in enumerate(depths, start=1):
        print(f"draft {depth}: accepted {accepted} of {drafted} ({accepted / drafted:.0%})")
    print("   ".join(f"{phase} {counters.seconds[phase]:.3f} s" for phase in PHASES))


if __name__ == "__main__":
    sys.exit(main())
