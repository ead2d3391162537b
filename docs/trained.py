"""Write `trained.md` and the curves beside the trained models: what they are and what they draft.

    python docs/trained.py

Curves are drawn from `curve.csv` by matplotlib (`pip install -e '.[train]'`). Everything else is
measured by decoding with the shipped weights on MLX's CPU backend.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import mlx.core as mx

from mtp_decoder import Head, Sampling, Session, Target
from reference_models.checkpoint import read
from reference_models.prompts import PROMPTS
from reference_models.tokenizer import decode, encode
from reference_models.training.recipe import RECIPES
from reference_models.training.ship import CURVE, MANIFEST, TRAINED

PAGE = Path(__file__).with_name("trained.md")
PLOT = "curve.svg"
DEPTH = 3
TOKENS = 256
SHOWN = 160
DECODINGS = {"greedy": 0.0, "temperature 0.7": 0.7, "temperature 1": 1.0}


@dataclass(frozen=True)
class Sample:
    """Tokens decoded after a prompt and what the drafts were worth.

    `margins` are distances between the two likeliest tokens' logits of every emitted token, in
    units in the last place of bfloat16.
    """

    tokens: list[int]
    rounds: int
    accepted: list[int]
    margins: list[int]


def sample(target: Target, head: Head, prompt: Sequence[int], temperature: float) -> Sample:
    """Decode `TOKENS` tokens or a few more, with `DEPTH` drafts a round."""
    session = Session(target, head, sampling=Sampling(temp=temperature, seed=1))
    tokens, margins = list(session.prefill(prompt).tokens), list[int]()
    while len(tokens) < TOKENS:
        outcome = session.round(DEPTH)
        tokens += outcome.tokens
        margins += margins_of(outcome.logits[: len(outcome.tokens)])
    counted = session.counters
    return Sample(tokens, counted.rounds, counted.accepted_by_depth, margins)


def margins_of(logits: mx.array) -> list[int]:
    """Units in the last place between the two largest of each row [rows, V] of bfloat16.

    The bits of two numbers of one sign differ by as many units as the numbers do; where the signs
    differ, both are counted from zero.
    """
    bits = mx.sort(logits, axis=-1)[:, -2:].view(mx.int16).astype(mx.int32)
    steps = mx.where(bits < 0, -(bits & 0x7FFF), bits)
    return cast("list[int]", (steps[:, 1] - steps[:, 0]).tolist())


def draw_curve(folder: Path) -> None:
    """Draw a model's losses into its folder."""
    matplotlib: Any = import_module("matplotlib")
    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = folder.name  # the same drawing, the same file
    pyplot: Any = import_module("matplotlib.pyplot")
    rows = list(csv.DictReader((folder / CURVE).read_text().splitlines()))
    figure, axes = pyplot.subplots(figsize=(7, 4))
    names = {"target": "target", **{f"head_{d}": f"head, draft {d}" for d in (1, 2, 3)}}
    for column, label in names.items():
        steps = [int(row["step"]) for row in rows]
        axes.plot(steps, [float(row[column]) for row in rows], label=label, linewidth=1)
    axes.set(title=folder.name, xlabel="step", ylabel="nats a token", ylim=(0.8, 4))
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(folder / PLOT, metadata={"Date": None}, bbox_inches="tight")
    pyplot.close(figure)


def page() -> str:
    """The whole page."""
    return f"""# Trained models

Written by `python docs/trained.py`. Random heads draft what no target says. These two models have
learned a little Python and a little Jane Austen, so that drafts are right about as often as those
of real models, logits nearly tie, and there is something to read.

```sh
python -m mtp_decoder generate --model reference_models/trained/qwen3_5-bytes --prompt "def "
python -m mtp_decoder generate --model reference_models/trained/flash-next-bytes \\
    --loader reference_models.checkpoint:read --prompt "It was "
```

`python3 noxfile.py -s train` trains them again
([recipe](../reference_models/training/recipe.py), [texts](../reference_models/trained/README.md)).
Tokens are bytes. Losses are in nats a token, on text that training never saw, in bfloat16; a
head's is its cross entropy against the target's own law, which is at least that law's entropy.

{chr(10).join(section(TRAINED / name) for name in RECIPES)}"""


def section(folder: Path) -> str:
    """What the page says of one model."""
    manifest = json.loads((folder / MANIFEST).read_text())
    target, head = read(folder)
    samples = {
        (prompt, decoding): sample(target, head, encode(text), temperature)
        for prompt, text in PROMPTS.items()
        for decoding, temperature in DECODINGS.items()
    }
    margins = [margin for one in samples.values() for margin in one.margins]
    ties = [sum(margin <= ulps for margin in margins) / len(margins) for ulps in (0, 1, 4)]
    at = f"../reference_models/trained/{folder.name}"
    return f"""## {folder.name}

{manifest["parameters"]:,} parameters, {_layers(manifest)}; {_training(manifest)}.
Weights: sha256 `{manifest["files"]["model.safetensors"][:16]}`.

![Losses on the way]({at}/{PLOT})

| held-out text | target | head, draft 1 | draft 2 | draft 3 |
|---|---|---|---|---|
{_losses(manifest)}

How many of the rounds accepted that many drafts, K = {DEPTH}, {TOKENS} tokens after the prompts of
`reference_models/prompts.py`, a draft accepted if it is the token sampled without drafts:

| prompt | decoding | 1 | 2 | 3 | tokens a round |
|---|---|---|---|---|---|
{chr(10).join(_row(*at, one) for at, one in samples.items())}

Of {len(margins):,} emitted tokens, {ties[0]:.1%} had two likeliest logits that were equal in bfloat16, {ties[1]:.1%}
no more than one unit in the last place apart, {ties[2]:.1%} no more than four.

{chr(10).join(_shown(*at, one) for at, one in samples.items() if at[1] != "temperature 1")}
"""


def _layers(manifest: dict[str, Any]) -> str:
    kinds = [
        kind.removesuffix("_attention") for kind in manifest["recipe"]["config"]["layer_types"]
    ]
    return f"layers {', '.join(kinds)}"


def _training(manifest: dict[str, Any]) -> str:
    recipe, versions = manifest["recipe"], manifest["versions"]
    seen = recipe["steps"] * recipe["batch"] * recipe["length"]
    of = f"{recipe['steps']:,} steps of {recipe['batch']} x {recipe['length']} bytes ({seen / 1e6:.1f} million)"
    return f"trained for {of} on {versions['machine']}, mlx {versions['mlx']}"


def _losses(manifest: dict[str, Any]) -> str:
    rows = manifest["held_out"].items()
    return "\n".join(f"| {name} | {' | '.join(f'{x:.2f}' for x in row)} |" for name, row in rows)


def _row(prompt: str, decoding: str, one: Sample) -> str:
    shares = " | ".join(f"{count / one.rounds:.0%}" for count in one.accepted)
    return f"| {prompt} | {decoding} | {shares} | {1 + sum(one.accepted) / one.rounds:.2f} |"


def _shown(prompt: str, decoding: str, one: Sample) -> str:
    """The end of the prompt and what came after it, as a block of text."""
    return f"{prompt}, {decoding}, after `{PROMPTS[prompt][-20:]!r}`:\n\n```text\n{decode(one.tokens[:SHOWN])}\n```\n"


def main() -> None:
    """Draw the curves and write the page."""
    mx.set_default_device(mx.cpu)
    for name in RECIPES:
        draw_curve(TRAINED / name)
    PAGE.write_text(page())
    print(f"wrote {PAGE.name} and {len(RECIPES)} curves")


if __name__ == "__main__":
    main()
