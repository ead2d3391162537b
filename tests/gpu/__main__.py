"""`python -m tests.gpu`: row-exact and fast mode on mlx's default device; raw rows to a file."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import mlx.core as mx

from mtp_conformance.probe import run_probe
from tests.gpu import exact, fast_verify, models, near, recurrence, timing
from tests.gpu.models import Subject
from tests.gpu.rows import Row, Rows, backend, header

PARTS = ("probe", "recurrence", "exact", "near", "rounds", "loops", "where")
_EXAMPLES = """examples:
  python -m tests.gpu                                    everything, on the GPU
  python -m tests.gpu --parts exact,near --k 1,3         the claims alone, two depths
  python -m tests.gpu --device cpu --quick --out /tmp/x  what the scripts do, in a minute

exit codes: 0 every bit claimed was there; 1 one was not; 2 bad arguments or no such device
"""


def main(argv: list[str] | None = None) -> int:
    """Run the parts asked for; see `--help` for the exit codes."""
    arguments = _arguments(argv)
    if arguments.device == "gpu" and not (mx.metal.is_available() or mx.cuda.is_available()):
        print(
            "error: this mlx has no GPU backend; install mlx[cuda13], or --device cpu",
            file=sys.stderr,
        )
        return 2
    mx.set_default_device(mx.gpu if arguments.device == "gpu" else mx.cpu)
    head = header(sys.argv[1:] if argv is None else argv)
    file = arguments.out / f"{arguments.name or backend()}.jsonl"
    partial = file.with_suffix(".partial.jsonl")
    rows = Rows(partial)
    rows.add(head)
    print(f"{head['device']}, {head['backend']}, mlx {head['mlx']}", flush=True)
    try:
        with tempfile.TemporaryDirectory() as folder:
            for row in _run(arguments, Path(folder)):
                rows.add(row)
    except KeyboardInterrupt:
        print(f"interrupted: what there is stands in {partial}", file=sys.stderr)
        return 130
    finally:
        rows.close()
    partial.replace(file)
    print(f"{file}: {rows.failures} of the claims failed")
    return 1 if rows.failures else 0


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.gpu",
        description=__doc__,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--device", choices=("gpu", "cpu"), default="gpu")
    add("--parts", type=_parts, default=PARTS, metavar="A,B", help=f"of {', '.join(PARTS)} (all)")
    add("--models", choices=("zoo", "big", "all"), default="all", help="which models (all)")
    add("--only", default="", metavar="TEXT", help="only models with this in their name")
    add("--shard", type=_shard, default=(1, 1), metavar="I/N", help="the I-th of N parts of them")
    add("--k", type=_depths, default=tuple(range(1, 9)), metavar="K,K", help="depths (1..8)")
    add("--tokens", type=int, default=48, metavar="N", help="tokens a claim follows (48)")
    add(
        "--out",
        type=Path,
        default=Path("docs/results/gpu"),
        metavar="DIR",
        help="folder of the rows",
    )
    add("--name", default="", metavar="NAME", help="of the file in it (the backend's name)")
    add("--quick", action="store_true", help="small models: what the scripts do, not how fast")
    return parser.parse_args(argv)


def _parts(text: str) -> tuple[str, ...]:
    found = tuple(text.split(","))
    unknown = set(found) - set(PARTS)
    if unknown:
        raise argparse.ArgumentTypeError(
            f"no part {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}"
        )
    return found


def _shard(text: str) -> tuple[int, int]:
    first, _, of = text.partition("/")
    if not (first.isdecimal() and of.isdecimal() and 1 <= int(first) <= int(of)):
        raise argparse.ArgumentTypeError(f"{text!r}: give a part and how many there are, as 1/4")
    return int(first), int(of)


def _depths(text: str) -> tuple[int, ...]:
    try:
        found = tuple(int(part) for part in text.split(","))
    except ValueError:
        found = (0,)
    if min(found) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: give depths such as 1,2,3")
    return found


def _run(arguments: argparse.Namespace, folder: Path) -> Iterator[Row]:
    if "probe" in arguments.parts:
        start = time.perf_counter()
        probe = run_probe(progress=lambda name: print(name, flush=True))
        yield {"part": "probe", **probe.as_dict()}
        print(f"probe: {time.perf_counter() - start:.0f} s", flush=True)
    if "recurrence" in arguments.parts and backend() == "cuda":
        yield from recurrence.bits()
    subjects: list[Subject] = []
    if arguments.models != "big":
        subjects += models.zoo(folder, quick=arguments.quick)
    if arguments.models != "zoo":
        subjects += models.big(quick=arguments.quick)
    chosen = [subject for subject in subjects if arguments.only in subject.name]
    first, of = arguments.shard
    for subject in chosen[first - 1 :: of]:
        yield from _subject(arguments, subject)


def _subject(arguments: argparse.Namespace, subject: Subject) -> Iterator[Row]:
    try:
        pair = subject.make()
    except Exception as error:  # a kernel that the backend lacks: said, and gone on
        yield {"part": "refused", "model": subject.name, "dtype": subject.dtype, "why": str(error)}
        return
    real = subject.name.startswith("random")
    if real:
        size = {"parameters": models.parameters(pair[0]), "bytes": models.weight_bytes(pair[0])}
        yield {"part": "size", "model": subject.name, "bits": subject.quantised, **size}
    for part, made in _parts_of(arguments, subject, pair, real=real):
        if part in arguments.parts:
            start = time.perf_counter()
            yield from made()
            seconds = time.perf_counter() - start
            print(f"{subject.name} {subject.dtype}: {part} {seconds:.0f} s", flush=True)
    mx.clear_cache()


def _parts_of(
    arguments: argparse.Namespace, subject: Subject, pair: models.Pair, *, real: bool
) -> Iterator[tuple[str, Callable[[], Iterator[Row]]]]:
    quick, tokens = arguments.quick, 12 if arguments.quick else arguments.tokens
    yield "exact", lambda: _exact(arguments.k, subject, pair, tokens)
    yield "near", lambda: _near(arguments.k, subject, pair, tokens)
    if real:
        count = 2 if quick else 12
        yield (
            "rounds",
            lambda: (row for k in arguments.k for row in timing.rounds(subject, pair, k, count)),
        )
        yield "loops", lambda: timing.loops(subject, pair, 8 if quick else 128, 2 if quick else 4)
        if not subject.quantised and "experts" not in subject.name:
            yield (
                "where",
                lambda: (
                    row for width in (1, 2, 4, 8) for row in fast_verify.where(subject, pair, width)
                ),
            )


def _exact(
    depths: tuple[int, ...], subject: Subject, pair: models.Pair, tokens: int
) -> Iterator[Row]:
    for k in depths:
        strategy = timing.STRATEGIES[k % len(timing.STRATEGIES)]  # one in turn
        yield exact.stream_claim(subject, pair, k, tokens, rewind=strategy)
        for mode in (False, True):
            yield exact.state_claim(subject, pair, k, tokens, rewind=strategy, row_exact=mode)


def _near(
    depths: tuple[int, ...], subject: Subject, pair: models.Pair, tokens: int
) -> Iterator[Row]:
    for k in depths:
        yield near.near_ties(subject, pair, k, tokens)
    yield near.ladder(subject, pair, tokens)


if __name__ == "__main__":
    sys.exit(main())
