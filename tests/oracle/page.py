"""Write `docs/oracle.md` from the manifest of what is stored."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.oracle.compare import BOUND, SAME, SLACK, TIE
from tests.oracle.stored import Entry
from tests.oracle.trajectory import CHAIN, LENGTH, PARTS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "oracle.md"
RUNNERS = ("reference_models", "mlx-lm", "transformers, float32")

KINDS = {
    "logits of one pass": ("logits",),
    "logits token by token": ("logits.steps",),
    "logits in parts": ("logits.parts",),
    "residual the head reads": ("hidden",),
    "keys and values, after every token": ("layers:keys", "layers:values"),
    "convolution window, after every token": ("layers:conv",),
    "recurrent state, after every token": ("layers:recurrent",),
    "n-gram history and table rows": ("layers:ngram", "layers:ngram_rows"),
    "PLE convolution window, after every token": ("layers:ple_conv",),
    "what the PLE adds": ("layers:ple_added",),
    "index keys and pooled rows": ("layers:index_keys", "layers:pooled"),
    "block scores": ("layers:scores",),
    "selected keys": ("layers:selected",),
    "head: logits of every pair": ("head.logits",),
    "head: a chain of drafts": ("head.chain",),
    "head: its caches and selections": (
        *("head:keys", "head:values", "head:index_keys", "head:pooled", "head:scores"),
        "head:selected",
    ),
}
"""Quantities as the page groups them."""


def kind_of(name: str) -> str:
    """The group of a quantity by its name."""
    part, _, last = name.partition(".")
    key = f"{part}:{last.partition('.')[2]}" if last[:1].isdigit() else name
    return next(kind for kind, names in KINDS.items() if key in names)


def text(manifest: Mapping[str, Any]) -> str:
    """The whole page."""
    models: dict[str, Entry] = manifest["models"]
    versions = ", ".join(f"{name} {value}" for name, value in manifest["versions"].items())
    ways = max(entry.ways for entry in models.values())
    small = models["gdn-small-keys"].choices["l2norm"]
    parts = ", ".join(str(end - start) for start, end in PARTS)
    return f"""# The independent oracle

Written by `python3 noxfile.py -s oracle -- --write`; a test holds it to what is stored.
Versions: {versions}.

Whether rewound state is right is judged without any expected value from outside. What the right
values *are* is another question, and the reference models alone cannot answer it. So Hugging Face
transformers opens the same checkpoint folders and computes the same {LENGTH} tokens on the CPU, in
float64 with the casts to float32 in its code neutralised (`tests/oracle/double.py`; a tensor that
comes out narrower is an error). That is stored in `golden/oracle/`, and compared with

- `reference_models`, float32 on MLX's CPU backend; also in `tests/`, where no PyTorch is needed;
- mlx-lm's own classes, for the families it has, with the head its loader drops, which the decoder
  puts together from mlx-lm's layers;
- transformers itself in float32, as shipped.

Each model runs in one pass, in parts of {parts} tokens, and token by token with a cache; in
float64 their logits are within {ways:.0e} of each other. Each state is read after every token.
The head gets every pair, then {CHAIN - 1} drafts of its own.

## What transformers has, and what is put together

The release has `qwen3_next`, `qwen3_5`, `qwen3_5_moe` and `qwen4_exp`; their own classes load the
folders, and every tensor is used. It has no MTP head (it drops `mtp.*`) and nothing like the
zoo's one-mechanism targets. Those are put together from its decoder layers, attentions, indexer,
PLE, residuals and norms (`tests/oracle/composed.py`): the mechanisms' formulas are transformers',
the joins are ours. A mistake in a join could be made twice. The joins are three lines each and
stand in that file's docstring.

## How far apart

A distance is the largest difference of a quantity, in units of its largest magnitude or of 1. It
may be {BOUND:.0e}, or {SLACK:.0f} times what moving every weight by half a float32 ULP does to that
quantity in float64 (three draws), whichever is larger. Some tokens of these random models divide
by something tiny and make much of a rounding, whoever computes them. Integers and selections must
be equal. So must the likeliest token of all three, in whatever logits they compute, except where
the two largest logits are closer than
{TIE:.0e}: {_ties(models)}.

{_models_table(models)}

A cell is the largest distance of so many quantities. {_lone(models)}

*closest cut* is the smallest distance between the last chosen and the first left out, of blocks and
of experts. A prompt with a cut closer than {TIE:.0e} is not used: `code` has an exact tie at a
selection cut of `qsa`, found by this, so that model is given `prose`.

{_kinds_table(models)}

## Known disagreements, and what is specified

Implementations read some formulas differently. Each other reading was put into transformers' own
model and run in float64: this is how far the logits go from the specified ones, in the same units.

{_choices_table(models)}

- **l2norm**: the epsilon 1e-6 is added to the sum of squares, as in transformers, FLA and mlx-lm
  0.32.2. mlx-lm 0.31.3 and some runtimes add it to the mean, which makes it D times larger. It
  shows where keys are small; `gdn-small-keys` is `gdn` with such keys.
- **head_norm**: the head's `pre_fc_norm_hidden` of qwen4_exp takes its mean over all streams at
  once, as in SGLang and the MLX runtimes that were read. llama.cpp takes it over each stream.
- **cells**: index selection takes whole blocks and then the tail, as in transformers. llama.cpp
  ranks cells in a width of budget + r - 1, so a short tail lets in part of one more block.
- **head_rope**: pair i is rotated by position i. transformers' `MtpCache` counts from one; the
  logits are the same, since rotations meet only as differences.

Two more, on which transformers and the reference agree: a query whose own token completes a block
that is not selected does not attend to its own token; and equal scores go to the lowest index here,
while `torch.topk` promises nothing. The second is why ties are kept out of the comparison.

`tests/models/test_oracle_choices.py` changes the reference model to each other reading and finds
it as far away as the table says; for head_rope, that the head's keys move and its logits do not.

Tokens of the golden vectors in `golden/` tell little of this. Of l2norm the other reading moves not
one of them, so they judge no foreign runtime on it; head_norm and head_rope are of the head, whose
logits they do not have; cells moves some tokens of `qsa` and of `flash-next`. Floats of another
framework are not judged there at all. What tells is `golden/oracle/`: the logits of
`gdn-small-keys` move by {small:.0%} of the largest.

## transformers' caches are no oracle for rollback

`DynamicCache.crop` leaves recurrent states where they were, and raises on `qwen4_exp`: see
[transformers-1](findings.md#transformers-1) and [transformers-2](findings.md#transformers-2). A
state after fewer tokens is therefore always made by a run that never saw the others.

## Using the files elsewhere

`golden/oracle/MODEL.safetensors` holds one model's quantities by name, floats in float64; what they
are and how they are shaped stands in `tests/oracle/trajectory.py`. `manifest.json` has the prompt,
the drafts of the chain, a SHA-256 of each file, a digest of the weights, sensitivities and
everything measured above. Runs of the same formulas in float64 elsewhere may be {SAME:.0e} from
what is stored (`SAME` in `tests/oracle/compare.py`), in the units above. The checkpoints come from
`python -m reference_models write MODEL DIR`.
"""


def _models_table(models: Mapping[str, Entry]) -> str:
    rows = [f"| model | target made of | {' | '.join(RUNNERS)} | allowed there | closest cut |"]
    rows.append("|---|---|---|---|---|---|---|")
    for name, entry in models.items():
        cells = [_worst(entry.measured.get(runner, {})) for runner in RUNNERS]
        cuts = ", ".join(f"{kind} {gap:.1e}" for kind, gap in entry.cuts.items()) or "none"
        allowed = _allowed(entry)
        rows.append(f"| `{name}` | {entry.made_of} | {' | '.join(cells)} | {allowed} | {cuts} |")
    return "\n".join(rows)


def _ties(models: Mapping[str, Entry]) -> str:
    """Where likeliest tokens tie, in words; `attn-ties` is made so and only counted."""
    named: list[str] = []
    for model, entry in models.items():
        rows = {name: tied for name, tied in entry.ties.items() if tied and "." not in name[:7]}
        rows |= {name: tied for name, tied in entry.ties.items() if tied and name[:5] == "head."}
        for name, tied in rows.items():
            where = f"{len(tied)} rows" if len(tied) > 3 else f"row {', '.join(map(str, tied))}"
            named.append(f"{where} of the {name} of `{model}`")
    return ", ".join(named) or "nowhere"


def _worst(measured: Mapping[str, float]) -> str:
    """The largest distance, and of how many quantities."""
    return f"{max(measured.values()):.1e} of {len(measured)}" if measured else "not in it"


def _lone(models: Mapping[str, Entry]) -> str:
    """Which models mlx-lm is compared in by one quantity, and why."""
    lone = [name for name, entry in models.items() if len(entry.measured.get("mlx-lm", ())) == 1]
    names = " and ".join(f"`{name}`" for name in lone)
    return (
        f"With mlx-lm it is one in\n{names}, the logits of one pass: mlx-lm 0.32.2 cannot be given "
        "a cache of a\nmodel without recurrent layers, so states and head are not compared there."
    )


def _allowed(entry: Entry) -> str:
    """The bound of the quantity in which the reference model is furthest off."""
    found = entry.measured["reference_models"]
    name = max(found, key=lambda quantity: found[quantity])
    return f"{max(BOUND, SLACK * entry.sensitivity[name]):.1e} ({name})"


def _kinds_table(models: Mapping[str, Entry]) -> str:
    """The worst of all models, kind by kind."""
    rows = [f"| quantity, worst of all models | {' | '.join(RUNNERS)} |", "|---|---|---|---|"]
    for kind in KINDS:
        cells: list[str] = []
        for runner in RUNNERS:
            found = [
                value
                for entry in models.values()
                for name, value in entry.measured.get(runner, {}).items()
                if kind_of(name) == kind
            ]
            cells.append(f"{max(found):.1e}" if found else "-")
        rows.append(f"| {kind} | {' | '.join(cells)} |")
    return "\n".join(rows)


def _choices_table(models: Mapping[str, Entry]) -> str:
    names = sorted({choice for entry in models.values() for choice in entry.choices})
    rows = [f"| model | {' | '.join(names)} |", "|---|" + "---|" * len(names)]
    for model, entry in models.items():
        cells = [f"{entry.choices[n]:.1e}" if n in entry.choices else "-" for n in names]
        rows.append(f"| `{model}` | {' | '.join(cells)} |")
    return "\n".join(rows)


def write(manifest: Mapping[str, Any]) -> Path:
    """Write the page, whole or not at all; returns its path."""
    fresh = PAGE.with_suffix(".partial")
    fresh.write_text(text(manifest))
    return fresh.replace(PAGE)
