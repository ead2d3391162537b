"""The page: every figure of a finished run, made from its raw rows.

`write_page(rows, docs/benchmarks.md)` writes the page and `benchmarks.svg` beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from mtp_decoder.bench.limit import tokens_a_round
from mtp_decoder.bench.plan import DISK, MLX_LM, OURS
from mtp_decoder.bench.plot import draw, panels_of
from mtp_decoder.bench.rows import Rows, Run
from mtp_decoder.bench.showing import markdown, milliseconds, percent, shown, size, times, whole
from mtp_decoder.bench.summary import (
    WIDEST,
    WIDEST_OF_A_PHASE,
    Cell,
    Figure,
    acceptance,
    beside,
    cells_of,
    limit,
    of,
    ours,
    plain_of,
    reach,
    rewind_share,
    speed,
    speed_beside,
    speed_up,
)
from mtp_decoder.bench.table import bound_of, not_shown, sign_of, withheld
from mtp_decoder.bench.targets import TRAINED, WIDE, Target, targets_of
from mtp_decoder.errors import DecoderError

PHASES = ("draft", "verify", "accept", "rewind")
Place = tuple[str, str, str]
MISSED = """Where a target is missed, this is why. What a step or a round costs beside its passes does not grow
with the model: building the next step so that it can be undone, waiting for MLX's threads, judging,
and, on this backend, starting the small operations of a recurrence again to undo it. A model of a
million parameters takes two milliseconds a step, so that tenths of one are seen; the random model of
228 million takes a hundred times as long, and the last rows of the table say what is left of them
there. A limit in which drafts cost nothing is out of reach of any decoder: a head is a layer, and the
trained targets have four."""
OF_TRAINED = """- The trained models have a million parameters. A pass over them is mostly the cost of starting small
  operations; a pass over a real model is mostly reading weights, so that a few more positions cost
  little. Speed-ups here say how near the decoder comes to the limit, not what a real model gains."""
OF_WIDE = """- The random model's drafts are all but never accepted. It is there for what a rewind and its memory
  cost at real widths, and for K=0. It has two value heads a key head, as Qwen3-Next has. A tape keeps
  a key a key head and a value a value head, a snapshot a state a value head: with as many of one as of
  the other the same snapshots would be some 88 tapes."""
OF_CPU = """- MLX's CPU backend runs a recurrence as one operation after the other, a step a position;
  on Metal, and with this decoder on CUDA, it is one kernel."""
QUICK = """**Of a quick run**: few arms, few tokens. It shows that everything works; its figures mean
little."""


def write_page(rows: Rows, file: Path) -> list[Path]:
    """Write the page, and its plot if a model was run at K=0 and two more; returns the files.

    Raises:
        DecoderError: the run was not finished, nothing was measured in it, matplotlib is not
            installed, or the files cannot be written.
    """
    if not rows.complete:
        raise DecoderError("no page of a run that is not finished; --resume goes on with it")
    if all(run.warm_up for run in rows.runs):
        raise DecoderError("no page of a run in which nothing was measured; the table says why")
    plot = file.with_suffix(".svg")
    drawn = [plot] if panels_of(cells_of(rows)) else []
    text = page(rows, plot.name if drawn else "")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        for path in drawn:
            _whole(path, lambda at: draw(rows, at))
        _whole(file, lambda at: at.write_text(text, encoding="utf-8"))
    except OSError as error:
        raise DecoderError(f"cannot write {error.filename or file}: {error.strerror}") from error
    return [file, *drawn]


def _whole(file: Path, write: Callable[[Path], object]) -> None:
    """Write a file whole or not at all."""
    partial = file.with_name(f"{file.stem}.partial{file.suffix}")
    try:
        write(partial)
        partial.replace(file)
    finally:
        partial.unlink(missing_ok=True)


def page(rows: Rows, plot: str) -> str:
    """The whole page; `plot` is the drawing's file beside it, if there is one."""
    cells = cells_of(rows)
    left_out = "; ".join(rows.header.left_out)
    sections = [
        _head(rows, plot),
        f"**Not run this time**: {left_out}." if left_out else "",
        QUICK if rows.header.quick else "",
        _targets(targets_of(cells), explained=_is_ours_to_ship(rows)),
        _beside(rows, cells),
        *_models(cells),
        _experts(cells),
        _memory(cells),
        _missing(cells),
        _caveats(rows, cells),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def _head(rows: Rows, plot: str) -> str:
    machine = rows.header.machine
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    counted = [run for run in rows.runs if not run.warm_up]
    loads = [run.load for run in counted]
    return f"""# Benchmarks

Written by `python -m mtp_decoder bench` from raw rows; not to be edited.{_again(rows)} Speeds
are this one computer's; ratios within the run are what to look at.

| | |
|---|---|
| processor | {machine["processor"]}, {machine["cores"]} cores, {machine["memory_gib"]} GiB |
| system | {machine["system"]}, Python {machine["python"]} |
| backend | MLX's {machine["device"].upper()} backend |
| versions | {versions} |
| runs | {len(counted)} that count, of {len({(r.block, r.way, r.turn) for r in counted})} processes |
| load before a run | {min(loads):.1f} to {max(loads):.1f} processes (one-minute mean; a run itself is 1 or more) |

Arms that are compared take turns, forwards and backwards (A B C C B A), each turn in a fresh process
that decodes the same prompt once to warm up.{_sliced(rows)} A figure is the median of the turns, with the least and
the largest in brackets; a ratio is taken turn by turn. It is withheld (–) if a process failed, if
drafts were never made or never rejected, if experts on disk were never read, or if the middle half of
its runs spreads over more than {WIDEST:.0%} of the median, or {WIDEST_OF_A_PHASE:.0%} for times by phase;
[what is withheld](#withheld) says why. A
target is too close to call if its bound lies in that middle half.

{f"![Speed-up against K, beside the limit]({plot})" if plot else "Too few depths for a plot."}

The limit is E / c: E = 1 + a₁ + … + a_K tokens a round, a_j being the share of rounds that accepted
their first j drafts, over c, what the round's draft and verify passes cost in plain steps. Both are
measured. The formula is theorem 3.8 of Leviathan, Kalman and Matias, "Fast Inference from Transformers
via Speculative Decoding" (ICML 2023), without its assumptions that drafts are accepted independently
and that a pass over K + 1 positions costs what a step does."""


def _sliced(rows: Rows) -> str:
    """Which blocks' arms share a process: those whose memory nobody could tell apart."""
    blocks = dict.fromkeys(run.block for run in rows.runs if "peak" not in run.bytes)
    if not blocks:
        return ""
    return (
        f" In {' and '.join(f'“{block}”' for block in blocks)} all arms of a turn\n"
        "share the process and take turns of a few tokens there, so that what slows the computer down "
        "for a\nsecond slows them all down."
    )


def _again(rows: Rows) -> str:
    """How the page is made anew."""
    if _is_ours_to_ship(rows):
        return (
            "\n`python3 noxfile.py -s bench -- --ship --fresh` runs everything again and replaces "
            "rows, page and plot."
        )
    return "\nThe same with `--rows` and `--page` makes it again from the rows of a run."


def _targets(targets: Sequence[Target], *, explained: bool) -> str:
    lines = [
        [
            target.what,
            target.where,
            shown(target.figure, percent if target.percent else times),
            "" if target.bound is None else f"{sign_of(target)} {bound_of(target)}",
            _verdict(target),
        ]
        for target in targets
    ]
    if not lines:
        return ""
    head = ["what", "where", "measured", "target", ""]
    missed = any(target.verdict == "missed" for target in targets)
    parts = [
        "## Targets",
        "Ratios within this run.",
        markdown(head, lines),
        MISSED if missed and explained else "",
    ]
    return "\n\n".join(part for part in parts if part)


def _verdict(target: Target) -> str:
    """Also why a figure is withheld; nothing where there is no bound."""
    why = f": {target.figure.withheld}" if target.figure.withheld else ""
    return f"**{target.verdict}**{why}" if target.verdict else ""


def _beside(rows: Rows, cells: Sequence[Cell]) -> str:
    """Other runtimes, and our arm of the same K in the same block."""
    lines: list[list[str]] = []
    for cell, mine in beside(cells):
        shares = " ".join(f"{share:.0%}" for share in acceptance(cell)) if cell.runs else ""
        speeds = [shown(speed(one), whole) for one in (cell, mine)]
        names = [cell.block, cell.workload, str(cell.arm.k), cell.arm.runtime]
        theirs = shown(speed_beside(mine, cell), times)
        lines.append([*names, *speeds, theirs, shares, _same_tokens(mine, cell)])
    text = "## Other runtimes\n\n"
    if lines:
        head = [
            *("block", "workload", "K", "runtime", "its tokens/s", f"{OURS}'s", "ours / its"),
            *("it accepted", "same tokens"),
        ]
        text += (
            f"At K=0 `{MLX_LM}` is its `generate_step`. Where drafts differ, so do accepts; the "
            "speed of a runtime is of its own loop, which its file in `bench/peers` names. One with "
            "model classes of its own, or another version of mlx-lm, may round to other tokens at "
            "K=0 already. Which of them decode right is not measured here.\n\n"
            + markdown(head, lines)
        )
    absent = [f"- {name}: {why}." for name, why in rows.header.absent.items()]
    if absent:
        text += "\n\nAsked for and not there:\n\n" + "\n".join(absent)
    if not lines and not absent:
        return ""
    return text


def _same_tokens(mine: Cell, other: Cell) -> str:
    digests = [{run.tokens_digest for run in cell.runs} for cell in (mine, other)]
    return "yes" if digests[0] == digests[1] and len(digests[0]) == 1 else "no"


def _models(cells: Sequence[Cell]) -> list[str]:
    """A section a model: speed, acceptance, time by phase."""
    places: dict[str, list[Cell]] = {}
    for cell in ours(cells):
        places.setdefault(cell.model, []).append(cell)
    return [_model(model, found, cells) for model, found in places.items()]


def _model(model: str, found: Sequence[Cell], cells: Sequence[Cell]) -> str:
    parts = [f"## {model}"]
    if accepted := _accepted(found):
        parts.append(accepted)
    listed = _with_plain(found, cells)
    places = {(cell.arm.experts, cell.workload): None for cell in listed}
    for experts, workload in places:
        of_place = [c for c in listed if (c.arm.experts, c.workload) == (experts, workload)]
        title = workload.capitalize() + (", experts on disk" if experts == DISK else "")
        parts.append(f"### {model}: {title}\n\n{_speeds(of_place, cells)}\n\n{_phases(of_place)}")
    return "\n\n".join(parts)


def _with_plain(found: Sequence[Cell], cells: Sequence[Cell]) -> list[Cell]:
    """Cells with drafts that have one without to be compared with, and those."""
    drafted = [cell for cell in found if cell.arm.k and plain_of(cell, cells) is not None]
    kept = {id(cell) for cell in drafted} | {id(plain_of(cell, cells)) for cell in drafted}
    return [cell for cell in found if id(cell) in kept]


def _accepted(cells: Sequence[Cell]) -> str:
    """Acceptance by depth of the deepest arm of each workload."""
    deepest: dict[str, Cell] = {}
    for cell in cells:
        best = deepest.get(cell.workload)
        if cell.runs and not cell.withheld and (best is None or cell.arm.k > best.arm.k):
            deepest[cell.workload] = cell
    depth = max((cell.arm.k for cell in deepest.values()), default=0)
    if not depth:
        return ""
    lines = [
        [name, str(cell.arm.k), *_shares(cell, depth), f"{_tokens_a_round(cell):.2f}"]
        for name, cell in deepest.items()
        if cell.arm.k
    ]
    head = ["workload", "K", *(f"draft {j + 1}" for j in range(depth)), "tokens a round"]
    return f"Rounds that accepted so many drafts:\n\n{markdown(head, lines)}"


def _shares(cell: Cell, depth: int) -> list[str]:
    shares = [f"{share:.0%}" for share in acceptance(cell)]
    return shares + [""] * (depth - len(shares))


def _tokens_a_round(cell: Cell) -> float:
    run = cell.runs[0]
    return tokens_a_round(run.drafted_by_depth, run.accepted_by_depth)


def _speeds(cells: Sequence[Cell], every: Sequence[Cell]) -> str:
    """Speed-up by K and strategy, and how much of the limit it is."""
    lines: list[list[str]] = []
    for cell in sorted(cells, key=lambda c: (c.arm.k, cells.index(c))):
        plain = plain_of(cell, every)
        assert plain is not None
        drafts = [speed_up(cell, plain), limit(cell, plain), reach(cell, plain)]
        beside_plain = map(shown, drafts, (times, times, percent)) if cell.arm.k else ("", "", "")
        lines.append([str(cell.arm.k), cell.arm.strategy, shown(speed(cell), whole), *beside_plain])
    head = ["K", "strategy", "tokens/s", "speed-up", "limit", "of the limit"]
    return markdown(head, lines)


def _phases(cells: Sequence[Cell]) -> str:
    """Milliseconds by phase."""
    lines: list[list[str]] = []
    for cell in sorted(cells, key=lambda c: (c.arm.k, cells.index(c))):
        spent = [shown(figure, milliseconds) for _, figure in _times(cell)]
        share = shown(rewind_share(cell), percent)
        lines.append([str(cell.arm.k), cell.arm.strategy, *spent, share])
    head = ["K", "strategy", *(name for name, _ in _times(cells[0])), "rewind / verify"]
    text = "Time of a round by phase, and of all rewinds and of the prompt of a request:\n\n"
    return text + markdown(head, lines)


def _times(cell: Cell) -> list[tuple[str, Figure]]:
    """Seconds of a round and of a request."""

    def time(name: str, value: Callable[[Run], float]) -> tuple[str, Figure]:
        return name, of(cell, value, WIDEST_OF_A_PHASE)

    def a_round(phase: str) -> Callable[[Run], float]:
        return lambda run: run.seconds[phase] / run.rounds

    return [
        *(time(f"{phase} ms", a_round(phase)) for phase in PHASES),
        time("outside ms", _outside),
        time("rewinds a request, ms", lambda run: run.seconds["rewind"]),
        time("prompt ms", lambda run: run.seconds["prefill"]),
    ]


def _outside(run: Run) -> float:
    """Seconds a round that no phase is charged with."""
    return (run.decode_seconds - sum(run.seconds[phase] for phase in PHASES)) / run.rounds


def _experts(cells: Sequence[Cell]) -> str:
    """What experts on disk cost: reads and bytes by K and strategy."""
    lines: list[list[str]] = []
    for cell in ours(cells):
        if cell.arm.experts != DISK or cell.withheld:
            continue
        counts = cell.runs[0].experts_read
        hits = counts["hits"] / counts["requests"]
        lines.append(
            [
                *(cell.model, cell.workload, str(cell.arm.k), cell.arm.strategy),
                f"{counts['slots']} x {size(counts['expert_bytes'])}",
                f"{counts['requests']:,}",
                f"{hits:.0%}",
                f"{counts['reads']:,}",
                size(counts["bytes_read"]),
                size(counts["bytes_read"] / cell.runs[0].tokens),
            ]
        )
    if not lines:
        return ""
    head = [
        *("model", "workload", "K", "strategy", "slots", "asked for", "hits", "read"),
        *("bytes read", "bytes a token"),
    ]
    return (
        "## Experts on disk\n\nOf the first request that counts, which finds what a warm-up left in "
        "the slots; its prompt and the head's experts are included. A rewind "
        "reads none; the strategies differ only if `replay` decodes again.\n\n"
        + markdown(head, lines)
    )


def _memory(cells: Sequence[Cell]) -> str:
    """Bytes remembered for a round, and the peak, by strategy at the deepest K."""
    lines: list[list[str]] = []
    seen: set[Place] = set()
    for cell in ours(cells):
        at = (cell.model + cell.arm.experts, cell.arm.strategy, str(cell.arm.k))
        if cell.withheld or at in seen or "peak" not in cell.runs[0].bytes:
            continue
        seen.add(at)
        place = cell.model + (", experts on disk" if cell.arm.experts == DISK else "")
        remembered, peak, resident = (
            max(run.bytes[name] for run in cell.runs) for name in ("remembered", "peak", "resident")
        )
        per = size(remembered / (cell.arm.k + 1))
        sizes = [size(remembered), per, size(peak), size(resident)]
        lines.append([place, str(cell.arm.k), cell.arm.strategy, *sizes])
    if not lines:
        return ""
    head = [
        *("model", "K", "strategy", "remembered a round", "a position", "MLX's peak"),
        "process at most",
    ]
    return (
        "## Memory\n\nWhat a strategy remembers for one round, without the state from before it, "
        "which all of them keep; and the most memory MLX, and the process, had.\n\n"
        + markdown(head, lines)
    )


def _missing(cells: Sequence[Cell]) -> str:
    lines = withheld(list(cells))
    for cell in _with_plain(ours(cells), cells):
        if not cell.withheld:
            lines += not_shown(cell, _times(cell))
    said = [f"- {line.removeprefix('withheld: ')}." for line in lines]
    return "## Withheld\n\n" + ("\n".join(said) or "Nothing.")


def _caveats(rows: Rows, cells: Sequence[Cell]) -> str:
    """What the figures do not say."""
    streams: dict[tuple[str, str, int, int], set[str]] = {}
    for cell in ours(cells):
        for run in cell.runs:
            at = (cell.model, cell.workload, run.prompt_tokens, run.tokens)
            streams.setdefault(at, set()).add(run.tokens_digest)
    differ = sorted(
        {f"{model}, {name}" for (model, name, *_), found in streams.items() if len(found) > 1}
    )
    same = (
        "Whatever K, the strategy and the place of the experts, this decoder emitted the same tokens "
        "in all runs of a model and prompt."
        if not differ
        else f"Runs of this decoder emitted different tokens on: {'; '.join(differ)}."
    )
    models = {cell.model for cell in cells}
    lines = [
        f"- {same}",
        OF_TRAINED if models & set(TRAINED) else "",
        OF_WIDE if WIDE in models else "",
        OF_CPU if rows.header.machine["device"] == "cpu" else "",
        "- Greedy decoding; ends of text are ignored, so that every run has its full length.",
    ]
    return "## Caveats\n\n" + "\n".join(line for line in lines if line)


def _is_ours_to_ship(rows: Rows) -> bool:
    """Whether the rows are of this project's own models alone, of which more can be said."""
    return {run.model for run in rows.runs} <= {WIDE, *TRAINED}
