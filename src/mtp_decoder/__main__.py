"""`python -m mtp_decoder generate`: text as it comes, then what the drafts were worth."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

from mtp_decoder.counters import PHASES, Counters
from mtp_decoder.drafting import HeadRows
from mtp_decoder.errors import CheckpointError, DecoderError
from mtp_decoder.experts import (
    Eviction,
    ExpertStore,
    OffloadSettings,
    Shards,
    group,
    offload,
    stores_of,
)
from mtp_decoder.generate import check_arguments, emit
from mtp_decoder.policy import Depth, make_policy
from mtp_decoder.qwen.load import load
from mtp_decoder.qwen.norms import Norms
from mtp_decoder.rewind import Rewind
from mtp_decoder.sampling import AcceptBy, Sampling
from mtp_decoder.session import Session, check_model
from mtp_decoder.stopping import Stops
from mtp_decoder.target import Head, Target
from mtp_decoder.text import TextStream
from mtp_decoder.tokenizer import read_tokenizer

_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_EXAMPLES = """examples:
  python -m mtp_decoder generate --model DIR --prompt "def fib(n):" --num-draft-tokens 3
  python -m mtp_decoder generate --model DIR --prompt - --rewind snapshot --json < prompt.txt
  python -m mtp_decoder generate --model DIR --prompt "Once" --loader my_models:read
  python -m mtp_decoder generate --model DIR --prompt "Once" --expert-budget 24G
"""

Stores = dict[str, ExpertStore]
"""Stores of experts on disk, by `target` and `head`."""


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
    add(
        "--depth-policy",
        choices=[depth.value for depth in Depth],
        default=Depth.FIXED.value,
        help="fixed: K drafts every round; streak: none for a while after rounds that accepted "
        "nothing; rate: as many as pay by measured cost",
    )
    add("--stop", action="append", default=[], metavar="TEXT", help="end there; repeatable")
    add("--temp", type=float, default=0.0, metavar="T", help="0 takes the likeliest (0)")
    add("--top-p", type=float, default=1.0, metavar="P", help="likeliest that come to P (1)")
    add("--top-k", type=int, default=0, metavar="N", help="the N likeliest; 0 for all (0)")
    add("--min-p", type=float, default=0.0, metavar="P", help="P times the likeliest (0)")
    add("--seed", type=int, default=0, metavar="N", help="of every random number (0)")
    add(
        "--acceptance",
        choices=[a.value for a in AcceptBy],
        default=AcceptBy.MATCH.value,
        help="match: the tokens of K=0, whatever K is; rejection: their law, and more accepts",
    )
    add("--rewind", choices=[r.value for r in Rewind], default=Rewind.TAPE.value)
    add("--head-rows", choices=[r.value for r in HeadRows], default=HeadRows.DRAFT.value)
    add(
        "--row-exact",
        action="store_true",
        help="verify row by row: the tokens of K=0 on any backend; slower",
    )
    add("--prefill-step-size", type=int, default=2048, metavar="N", help="tokens a pass (2048)")
    add("--ignore-eos", action="store_true", help="go on after an end of text")
    add("--ignore-chat-template", action="store_true", help="give the prompt as it is")
    add(
        "--expert-budget",
        type=_bytes,
        metavar="SIZE",
        help="leave routed experts on disk, and keep so many bytes of them (512M, 24G, 4096)",
    )
    add(
        "--head-expert-budget",
        type=_bytes,
        metavar="SIZE",
        help="likewise for the head's experts (as --expert-budget)",
    )
    add(
        "--expert-eviction",
        choices=[e.value for e in Eviction],
        default=Eviction.LFU.value,
        help="which expert leaves: the least often asked for, or the longest ago (lfu)",
    )
    add(
        "--group-experts",
        choices=["on", "off"],
        help="sort rows by expert from 64 on, or never (as the model's classes do it)",
    )
    add(
        "--loader",
        metavar="PACKAGE.MODULE:FUNCTION",
        help="from a folder to (target, head), for models mlx-lm's classes do not cover",
    )
    for option, whose in (("--norms", "the model's"), ("--head-norms", "its MTP head's")):
        add(
            option,
            choices=[n.value for n in Norms],
            help=f"what {whose} norm weights are stored about (told by layout and values)",
        )
    add("--json", action="store_true", help="one JSON object at the end instead of the table")
    return parser


def _bytes(text: str) -> int:
    """A number of bytes, perhaps with K, M, G or T for powers of 1024."""
    unit = _UNITS.get(text[-1:].upper(), 1)
    digits = text if unit == 1 else text[:-1]
    try:
        count = int(float(digits) * unit)
    except (ValueError, OverflowError):
        count = -1
    if count < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no size; give bytes, or 512M, 24G")
    return count


def main(argv: list[str] | None = None) -> int:
    """Run the command line.

    Returns:
        0; 2 for bad input; 130 after Ctrl-C; 141 when whatever reads the output has gone. The
        last two are what a shell reports of a process ended by that signal.
    """
    arguments = _parser().parse_args(argv)
    try:
        code = _generate(arguments)
        sys.stdout.flush()
    except DecoderError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # Python flushes once more at exit; that must not meet the closed pipe.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    return code


def _generate(arguments: argparse.Namespace) -> int:
    check_arguments(arguments.num_draft_tokens, arguments.max_tokens, has_drafts=True)
    _sampling(arguments)  # refused before anything is loaded
    _experts(arguments)
    tokenizer = read_tokenizer(arguments.model)
    text = sys.stdin.read() if arguments.prompt == "-" else arguments.prompt
    prompt = _encode(tokenizer, text, plain=arguments.ignore_chat_template)
    session, stores = _session(arguments)
    session.check_prompt(prompt)
    ends = [] if arguments.ignore_eos else list(tokenizer.eos_token_ids)
    text = TextStream(tokenizer, arguments.stop, tokenizer.eos_token_ids)
    emissions = emit(
        session,
        prompt,
        num_draft_tokens=arguments.num_draft_tokens,
        max_tokens=arguments.max_tokens,
        stops=Stops(ends, text=text),
        policy=make_policy(arguments.depth_policy),
    )
    output = _Output(text, quiet=arguments.json)
    start, interrupted = time.perf_counter(), False
    try:
        for token, _, _ in emissions:
            output.add(token)
    except KeyboardInterrupt:
        interrupted = True
    seconds = time.perf_counter() - start
    output.finish()
    _report(arguments.json, session.counters, len(prompt), output, seconds, stores)
    return 130 if interrupted else 0


def _session(arguments: argparse.Namespace) -> tuple[Session, Stores]:
    k = arguments.num_draft_tokens
    target, head = _load(arguments)
    check_arguments(k, arguments.max_tokens, has_drafts=head is not None)
    parts: dict[str, Target | Head | None] = {"target": target, "head": head}
    there = {name: part.layers for name, part in parts.items() if part is not None}
    if arguments.group_experts is not None:
        for layers in there.values():
            group(layers, sort=arguments.group_experts == "on")
    stores = {name: store for name, layers in there.items() for store in stores_of(layers)}
    session = Session(
        target,
        head if k else None,
        rewind=arguments.rewind,
        head_rows=arguments.head_rows,
        sampling=_sampling(arguments),
        prefill_step_size=arguments.prefill_step_size,
        row_exact=arguments.row_exact,
    )
    return session, stores


def _experts(arguments: argparse.Namespace) -> OffloadSettings | None:
    """What the options say of experts on disk; None where they stay in memory."""
    budget, head_budget = arguments.expert_budget, arguments.head_expert_budget
    if budget is None:
        if head_budget is not None:
            raise DecoderError("--head-expert-budget needs --expert-budget beside it")
        return None
    return OffloadSettings(budget, head_budget, Eviction(arguments.expert_eviction))


def _sampling(arguments: argparse.Namespace) -> Sampling:
    return Sampling(
        temp=arguments.temp,
        top_p=arguments.top_p,
        top_k=arguments.top_k,
        min_p=arguments.min_p,
        seed=arguments.seed,
        acceptance=arguments.acceptance,
    )


def _load(arguments: argparse.Namespace) -> tuple[Target, Head | None]:
    folder, experts = arguments.model, _experts(arguments)
    if arguments.loader is None:
        norms, head_norms = arguments.norms, arguments.head_norms
        loaded = load(folder, experts, norms=norms, head_norms=head_norms)
        return loaded.target, loaded.head
    shards = None if experts is None else Shards(folder)
    target, head = _load_with(arguments.loader, folder)
    if shards is not None and experts is not None:
        offload(target, head, shards, experts)
    return target, head


def _load_with(loader: str, folder: Path) -> tuple[Target, Head | None]:
    """What another function reads from a folder; it may lie beside the user, as with python -m."""
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.append(here)
    module, _, function = loader.partition(":")
    try:
        read = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise DecoderError(f"--loader {loader}: {error}; give package.module:function") from error
    try:
        found: object = read(folder)
    except Exception as error:  # whatever a stranger's function raises
        what = f"{type(error).__name__}: {error}"
        raise CheckpointError(f"--loader {loader} cannot read {folder}: {what}") from error
    if not isinstance(found, tuple) or len(cast("tuple[object, ...]", found)) != 2:
        kind = type(cast("object", found)).__name__
        raise DecoderError(f"--loader {loader} returned a {kind}, not (target, head or None)")
    target, head = cast("tuple[Target, Head | None]", found)
    try:
        check_model(target, head)
    except DecoderError as error:
        raise DecoderError(f"--loader {loader} returned no (target, head): {error}") from error
    return target, head


def _encode(tokenizer: Any, text: str, *, plain: bool) -> list[int]:
    if tokenizer.has_chat_template and not plain:
        messages = [{"role": "user", "content": text}]
        return list(tokenizer.apply_chat_template(messages, add_generation_prompt=True))
    return list(tokenizer.encode(text))


class _Output:
    """The tokens so far, and their text, printed as it comes unless `quiet`.

    An end of text is a token, and no text.
    """

    def __init__(self, stream: TextStream, *, quiet: bool) -> None:
        self.tokens: list[int] = []
        self.text = ""
        self._stream = stream
        self._quiet = quiet

    def add(self, token: int) -> None:
        """Take one more token."""
        self._show(self._stream.piece(len(self.tokens)))
        self.tokens.append(token)

    def finish(self) -> None:
        """Print what was held back."""
        self._show(self._stream.finish())

    def _show(self, text: str) -> None:
        self.text += text
        if not self._quiet:
            print(text, end="", flush=True)


def _report(
    as_json: bool,
    counters: Counters,
    prompt_tokens: int,
    output: _Output,
    seconds: float,
    stores: Stores,
) -> None:
    tokens = output.tokens
    decoding = seconds - counters.seconds["prefill"]
    speed = max(0, len(tokens) - 1) / decoding if decoding > 0 else 0.0
    if as_json:
        record: dict[str, Any] = {
            "text": output.text,
            "tokens": tokens,
            "prompt_tokens": prompt_tokens,
            "tokens_per_second": speed,
            "rounds": counters.rounds,
            "drafted_by_depth": counters.drafted_by_depth,
            "accepted_by_depth": counters.accepted_by_depth,
            "seconds": counters.seconds,
        }
        if stores:
            record["experts"] = {
                name: {"slots": s.slots, "expert_bytes": s.expert_bytes, **asdict(s.counts)}
                for name, s in stores.items()
            }
        print(json.dumps(record))
        return
    print(f"\n\n{prompt_tokens} prompt tokens, {len(tokens)} tokens in {seconds:.2f} s")
    print(f"{speed:.1f} tokens/s after the prefill, {counters.rounds} rounds")
    depths = zip(counters.drafted_by_depth, counters.accepted_by_depth, strict=True)
    for depth, (drafted, accepted) in enumerate(depths, start=1):
        print(f"draft {depth}: accepted {accepted} of {drafted} ({accepted / drafted:.0%})")
    for name, store in stores.items():
        c = store.counts
        print(
            f"experts of the {name}: {store.slots} slots, {c.hits} of {c.requests} requests hit, "
            f"{c.reads} read ({c.bytes_read / 2**20:.1f} MiB)"
        )
    print("   ".join(f"{phase} {counters.seconds[phase]:.3f} s" for phase in PHASES))


if __name__ == "__main__":
    sys.exit(main())
