"""Write docs/gpu.md from the raw rows in docs/results/gpu, which `nox -s gpu` makes."""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.gpu.agreement import agreement  # noqa: E402
from tests.gpu.rows import read  # noqa: E402

RESULTS, PAGE = ROOT / "docs" / "results" / "gpu", ROOT / "docs" / "gpu.md"
Row = dict[str, Any]
_DEPTHS = range(1, 9)
"""Draft tokens that the claims are to be shown for."""
_TARGET = 1.5
"""Steps that a row-exact verify pass at K=3 may cost."""
_TOP = """# Row-exact mode and fast mode on an accelerator

Made by `python docs/gpu.py` from the raw rows in [`docs/results/gpu`](results/gpu); `nox -s gpu`
makes those on any machine with a GPU. Times are medians of rounds in one process, arms in turn;
they say how arms compare on this device, and nothing about another one.

*Row-exact* computes every row of a verify pass as a one-token step computes it
(`Session(row_exact=True)`, `--row-exact`). *Fast* is the default. On CUDA mlx-lm's models keep
their rows together: dense products as batches of one-row products, quantised ones and experts
wherever the device was seen to keep their bits, the recurrence in one kernel that has the bits of
mlx-lm's operations; attention is asked query by query. All other models, and every model on Metal,
run layer by layer one row a call. Metal was not measured.

Claims were run by several processes at once, times by one alone. On CUDA MLX multiplies several
float32 rows in TF32 and one row in float32, so that float32 choices of the fast mode lie thousands
of ULP apart: by the rule of four ULP they are no ties.
"""


def page(files: list[Path]) -> str:
    """The page over these files of rows."""
    devices = defaultdict[tuple[str, ...], list[Row]](list)
    for file in files:
        head, *rows = read(file)
        same = tuple(head[name] for name in ("device", "backend", "driver", "mlx", "mlx-lm"))
        devices[same] += rows if devices[same] else [head, *rows]
    return "\n".join([_TOP, *(_device(rows) for rows in devices.values())])


def _device(rows: list[Row]) -> str:
    head, parts = rows[0], defaultdict[str, list[Row]](list)
    for row in rows[1:]:
        parts[row["part"]].append(row)
    driver = f", driver {head['driver']}" if head["driver"] else ""
    sections = [
        f"## {head['device']} ({head['backend']}{driver})\n",
        f"mlx {head['mlx']}, mlx-lm {head['mlx-lm']}, Python {head['python']}, {head['os']}, "
        f"{head['date']}.\n",
        _summary(parts["stream"], parts["recurrence"], parts["rounds"], parts["where"]),
        _models(parts["size"], parts["refused"]),
        _claims(parts["stream"], parts["state"]),
        _near(parts["near"], parts["ladder"]),
        _agreement(parts["probe"], parts["near"]),
        _verify(parts["rounds"]),
        _strategies(parts["rounds"]),
        _loops(parts["loops"]),
        _where(parts["where"]),
    ]
    return "\n".join(section for section in sections if section)


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def _models(sizes: list[Row], refused: list[Row]) -> str:
    found = [
        [row["model"], f"{row['parameters'] / 1e9:.2f} billion", f"{row['bytes'] / 2**30:.2f} GiB"]
        for row in {row["model"]: row for row in sizes}.values()
    ]
    text = "### Models of real size\n\n" + _table(["model", "parameters", "weights"], found)
    for row in refused:
        text += f"\n{row['model']} in {row['dtype']} is refused here: {row['why']}\n"
    return text if sizes or refused else ""


def _claims(streams: list[Row], states: list[Row]) -> str:
    if not streams:
        return ""
    names = _large_first({(r["model"], r["dtype"]) for r in streams})
    rows: list[list[str]] = []
    for name, dtype in names:
        mine = [r for r in streams if (r["model"], r["dtype"]) == (name, dtype)]
        held = [r for r in states if (r["model"], r["dtype"]) == (name, dtype)]
        rows.append(
            [
                name,
                dtype,
                _held(mine),
                _held([r for r in held if r["row_exact"]]),
                _held([r for r in held if not r["row_exact"]]),
                f"{sum(r['compared'] for r in (*mine, *held)):,}",
            ]
        )
    columns = ["model", "dtype", "stream, row-exact", "state, row-exact", "state, fast", "values"]
    return (
        "### Claims to the bit\n\n"
        "By K: whether the claim held. *stream*: tokens, logits of rows that stand and, after "
        "every round, every array of every cache, against K=0 of the same decoder. *state*: every "
        "array after every rewind, against a run with other rejected drafts.\n\n"
    ) + _table(columns, rows)


def _held(rows: list[Row]) -> str:
    broken = [
        f"K={row['k']}: {row['differing'] or 'nothing compared'}" for row in rows if not row["ok"]
    ]
    if broken:
        return "; ".join(broken)
    depths = sorted(row["k"] for row in rows)
    if not depths:
        return "not run"
    left = [str(k) for k in _DEPTHS if k not in depths]
    whole = depths == list(range(depths[0], depths[-1] + 1))
    said = f"{depths[0]}..{depths[-1]}" if whole else ", ".join(map(str, depths))
    said = f"all of K={said}"
    return f"{said}; K={', '.join(left)} not run" if left else said


def _near(near: list[Row], ladders: list[Row]) -> str:
    if not near:
        return ""
    rows: list[list[str]] = []
    for name, dtype in _large_first({(r["model"], r["dtype"]) for r in near}):
        mine = [r for r in near if (r["model"], r["dtype"]) == (name, dtype)]
        # Models of real size K by K; the zoo's over all K.
        for some in [[r] for r in mine] if name.startswith("random") else [mine]:
            depths = sorted(r["k"] for r in some)
            margins = [margin for r in some for margin in r["margins_ulp"]]
            rows.append(
                [
                    name,
                    dtype,
                    str(depths[0]) if len(depths) == 1 else f"{depths[0]}..{depths[-1]}",
                    f"{sum(r['blocks_differing'] for r in some)} of {sum(r['blocks'] for r in some)}",
                    f"{max(r['largest_difference'] for r in some):.3g}",
                    f"{len(margins)} of {sum(r['rows'] for r in some)}",
                    f"{median(margins):.2g} / {max(margins):.2g}" if margins else "",
                    str(sum(r["beyond_ulps"] for r in some)) if margins else "",
                ]
            )
    columns = [
        "model",
        "dtype",
        "K",
        "blocks that differ",
        "largest",
        "choices",
        "margin, ULP",
        "over 4",
    ]
    text = (
        "### Fast mode against K=0\n\n"
        "Teacher-forced along the tokens of K=0. *choices*: rows whose likeliest token is another "
        "one; *margin*: of K=0's choice over that one in K=0's own logits, median and largest, in "
        "units in the last place of their type at their magnitude.\n\n"
    ) + _table(columns, rows)
    found = [
        [row["model"], row["dtype"], *(_place(row["first_divergence"][k]) for k in ("1", "2", "3"))]
        for row in ladders
        if row["model"].startswith("random") or set(row["first_divergence"].values()) != {None}
    ]
    text += (
        "\nThe ladder: where a free-running stream first leaves K=0's. It does so nowhere within "
        f"{min(row['tokens'] for row in ladders)} tokens for models that are not listed.\n\n"
    )
    return text + _table(["model", "dtype", "K=1", "K=2", "K=3"], found)


def _large_first(names: set[tuple[str, str]]) -> list[tuple[str, str]]:
    return sorted(names, key=lambda name: (not name[0].startswith("random"), *name))


def _summary(streams: list[Row], kernel: list[Row], rounds: list[Row], where: list[Row]) -> str:
    """What the tables below come to."""
    text = ""
    if streams:
        held = sum(row["ok"] for row in streams)
        left = len(_DEPTHS) * len({(row["model"], row["dtype"]) for row in streams}) - len(streams)
        text += (
            f"- Row-exact: {held} of {len(streams)} cells (model, type, K = 1..8) have the tokens, "
            f"logits and caches of K=0 to the bit{f'; {left} more were not run' * (left > 0)}.\n"
        )
    if kernel:
        held = sum(row["ok"] for row in kernel)
        text += (
            f"- The recurrence's kernel has the bits of mlx-lm's operations in {held} of "
            f"{len(kernel)} cells (shape, type, positions).\n"
        )
    ratios = {model: _ratio(rounds, model, 3) for model in _models_in(rounds)}
    if ratios:
        best, worst = min(ratios.values()), max(ratios.values())
        met = [model for model, ratio in ratios.items() if ratio <= _TARGET]
        text += (
            f"- A row-exact verify pass at K=3 costs {best:.2f} to {worst:.2f} one-token steps; the "
            f"target of {_TARGET} is {f'met by {len(met)}' if met else 'met by none'} of "
            f"{len(ratios)} models. A fast one costs {min(_ratio(rounds, m, 3, exact=False) for m in ratios):.2f} "
            f"to {max(_ratio(rounds, m, 3, exact=False) for m in ratios):.2f}.\n"
        )
    cost = {(r["what"], r["width"]): median(r["ms"]) for r in where}
    same, more = "attention, as many keys every time", "attention, more keys every time"
    if cost.get((more, 4), 0) > 4 * cost.get((same, 4), 1):
        text += (
            f"- Where the fast pass loses: attention of several queries takes {cost[more, 4]:.0f} ms "
            f"for every number of keys it has not met before, and {cost[same, 4]:.2f} ms for one it "
            "has. MLX builds a plan for each shape, and every round has more keys. One query at a "
            f"time needs none: {cost['attention by query, more keys every time', 4]:.2f} ms for four.\n"
        )
    return text


def _models_in(rounds: list[Row]) -> list[str]:
    return list(dict.fromkeys(row["model"] for row in rounds))


def _ratio(rounds: list[Row], model: str, k: int, *, exact: bool = True) -> float:
    """Milliseconds of a verify pass in those of a one-token step beside it, strategy tape."""
    mine = [r for r in rounds if r["model"] == model and r["strategy"] == "tape"]
    step = _step(mine, k)
    return next(_ms(r, "verify") for r in mine if (r["k"], r["row_exact"]) == (k, exact)) / step


def _step(rounds: list[Row], k: int) -> float:
    """Milliseconds of a one-token step while rounds of K drafts ran in turn with it."""
    return next(_ms(r, "verify") for r in rounds if (r["k"], r["beside"]) == (0, k))


def _place(index: int | None) -> str:
    return "nowhere" if index is None else str(index)


def _agreement(probes: list[Row], near: list[Row]) -> str:
    if not probes or not near:
        return ""
    rows = [agreement(probes[0], row) for row in near]
    lies = [row for row in rows if row["lied"]]
    strict = [row for row in rows if row["seen_exact"] and not row["says_exact"]]
    text = (
        "### The probe\n\n"
        "A pass of the fast mode is exact if every operation in it is. In "
        f"{len(rows) - len(lies) - len(strict)} of {len(rows)} cells (model, type, K) the probe "
        f"said what was seen; in {len(strict)} it was stricter (an operation differs, this model's "
        f"blocks did not); in {len(lies)} it promised bits that were not there.\n"
    )
    for word, some in (("Stricter", strict), ("Wrong", lies)):
        if some:
            text += f"\n{word}: {_cells(some)}.\n"
    table = probes[0]["operations"]
    found = [
        [name, *("" if v is None else "equal" if v else "differ" for v in row.values())]
        for name, row in table.items()
    ]
    widths = [f"{w} rows" for w in next(iter(table.values()))]
    return text + "\n" + _table(["operation", *widths], found)


def _cells(rows: list[Row]) -> str:
    depths = defaultdict[str, list[str]](list)
    for row in rows:
        depths[f"{row['model']} {row['dtype']}"].append(str(row["k"]))
    return ", ".join(f"{name} (K={', '.join(ks)})" for name, ks in sorted(depths.items()))


def _ms(row: Row, phase: str) -> float:
    return median(one[phase] for one in row["ms"])


def _verify(rows: list[Row]) -> str:
    if not rows:
        return ""
    text = (
        "### What a verify pass costs\n\n"
        "Milliseconds, and in one-token steps of the same model that ran in turn with them. The "
        "target: row-exact at K=3 in at most 1.5 steps.\n\n"
    )
    found: list[list[str]] = []
    for model in dict.fromkeys(row["model"] for row in rows):
        mine = [r for r in rows if r["model"] == model and r["strategy"] == "tape"]
        for k in sorted({r["k"] for r in mine if r["k"]}):
            step = _step(mine, k)
            by_mode = {r["row_exact"]: _ms(r, "verify") for r in mine if r["k"] == k}
            fast, exact = by_mode[False], by_mode[True]
            found.append(
                [
                    model,
                    str(k),
                    f"{step:.2f}",
                    f"{fast:.2f} ({fast / step:.2f})",
                    f"{exact:.2f} ({exact / step:.2f})",
                ]
            )
    return text + _table(["model", "K", "one step", "fast", "row-exact"], found)


def _strategies(rows: list[Row]) -> str:
    drafted = [row for row in rows if row["k"] == 3]
    if not drafted:
        return ""
    found: list[list[str]] = []
    for row in drafted:
        emitted = sum(one["accepted"] + 1 for one in row["ms"])
        seconds = sum(one["wall"] for one in row["ms"]) / 1e3
        cut = [one["rewind"] for one in row["ms"] if one["accepted"] < row["k"]]
        found.append(
            [
                row["model"],
                str(row["k"]),
                row["strategy"],
                "row-exact" if row["row_exact"] else "fast",
                f"{median(cut):.2f}" if cut else "",
                f"{median(cut) / _ms(row, 'verify'):.1%}" if cut else "",
                f"{row['remembered_bytes'] / 2**20:.2f}",
                f"{emitted / seconds:.1f}",
            ]
        )
    columns = ["model", "K", "strategy", "mode", "rewind ms", "of verify", "MiB kept", "tokens/s"]
    return (
        "### Rewind, memory and speed by strategy, K=3\n\n"
        "Rewinds of rounds with a reject. Drafts are injected so that every accepted count comes "
        "equally often; tokens/s are of such rounds, the head's drafting included. Other K: the raw "
        "rows.\n\n"
    ) + _table(columns, found)


def _loops(rows: list[Row]) -> str:
    if not rows:
        return ""
    found: list[list[str]] = []
    for model in _models_in(rows):
        speed: dict[str, float] = {}
        for loop in ("mtp_decoder", "mtp_decoder, ahead", "mlx-lm"):
            runs = [
                r["tokens"] / r["seconds"] for r in rows if (r["model"], r["loop"]) == (model, loop)
            ]
            if runs:
                speed[loop] = median(runs)
        theirs = speed["mlx-lm"]
        ours = [speed.get(loop) for loop in ("mtp_decoder", "mtp_decoder, ahead")]
        shown = [f"{one:.1f} ({one / theirs:.2f})" if one else "not measured" for one in ours]
        found.append([model, *shown, f"{theirs:.1f}"])
    columns = ["model", "round by round", "`generate_step`, one step ahead", "mlx-lm's loop"]
    return (
        "### K=0 beside mlx-lm's own loop\n\n"
        "Tokens/s, and as a share of mlx-lm's. Rounds wait for every token before the next one is "
        "built; mlx-lm's loop does not, nor does `generate_step`.\n\n"
    ) + _table(columns, found)


def _where(rows: list[Row]) -> str:
    if not rows:
        return ""
    widths = sorted({row["width"] for row in rows})
    found = [
        [
            what,
            *(
                f"{median(next(r['ms'] for r in rows if r['what'] == what and r['width'] == w)):.3f}"
                for w in widths
            ),
        ]
        for what in dict.fromkeys(row["what"] for row in rows)
    ]
    return (
        f"### Where the time of a fast pass goes\n\n{rows[0]['model']}; milliseconds by rows.\n\n"
    ) + _table(["part", *(f"{w} rows" if w > 1 else "1 row" for w in widths)], found)


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(sorted(RESULTS.glob("*.jsonl"))))
    print(PAGE.relative_to(ROOT))


if __name__ == "__main__":
    main()
