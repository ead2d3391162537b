"""Write `tape.md`: what each rewind strategy remembers, in bytes, from arrays that were made.

    python docs/tape_cost.py

Tiny models are measured by a real verify pass. The 122B shape is measured on one real
GatedDeltaNet layer of mlx-lm with that model's heads, run over the same number of positions.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import ArraysCache
from mlx_lm.models.qwen3_5 import DecoderLayer, TextModelArgs

from mtp_decoder.qwen.target import LinearLayer
from mtp_decoder.rewind import Rewind, make_undo
from reference_models.checkpoint import read, write_zoo
from reference_models.hybrid import LinearLayer as SpecifiedLayer
from reference_models.zoo import ZOO

PAGE = Path(__file__).with_name("tape.md")
POSITIONS = 4
STRATEGIES = (Rewind.TAPE, Rewind.RERUN, Rewind.SNAPSHOT)
# Heads of the 122B model; its hidden size is 3072 and it has 36 such layers.
LARGE = {
    "linear_num_value_heads": 64,
    "linear_num_key_heads": 16,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "hidden_size": 3072,
    "intermediate_size": 8,
}
LARGE_LAYERS = 36


def remembered(layer: Any, cache: ArraysCache, x: mx.array) -> dict[Rewind, float]:
    """Bytes a position each strategy remembers for one layer's verify pass over x [1, T, W]."""
    found: dict[Rewind, float] = {}
    tokens = mx.zeros(x.shape[:2], mx.int64)
    for strategy in STRATEGIES:
        undo = make_undo(0, layer, cache, strategy)
        mx.eval(undo.run(x, tokens))
        found[strategy] = undo.nbytes() / x.shape[1]
    return found


def tiny_rows() -> list[str]:
    """One row a zoo model and kind of linear layer."""
    rows: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        for name in ZOO:
            for dtype, label in ((mx.float32, "float32"), (mx.bfloat16, "bfloat16")):
                target, _ = read(write_zoo(name, Path(folder) / f"{name}-{label}", dtype))
                x = target.embed(mx.zeros((1, POSITIONS), mx.int32))
                linear = [layer for layer in target.layers if isinstance(layer, SpecifiedLayer)]
                kinds = {layer.slots: layer for layer in linear}
                for slots, layer in kinds.items():
                    cost = remembered(layer, layer.make_cache(), x)
                    kind = "GDN + PLE" if len(slots) > 2 else "GDN"
                    rows.append(_row(f"`{name}` {kind}", label, cost))
    return rows


def large_costs() -> dict[Rewind, float]:
    """Bytes a position of one layer of the 122B shape, bfloat16 activations."""
    layer = DecoderLayer(TextModelArgs.from_dict(LARGE), layer_idx=0)
    layer.set_dtype(mx.bfloat16)
    x = mx.zeros((1, POSITIONS, LARGE["hidden_size"]), mx.bfloat16)
    return remembered(LinearLayer(layer), ArraysCache(size=2), x)


def _row(name: str, dtype: str, cost: dict[Rewind, float]) -> str:
    tape, rerun, snapshot = (cost[strategy] for strategy in STRATEGIES)
    return f"| {name} | {dtype} | {tape:,.0f} | {rerun:,.0f} | {snapshot:,.0f} | {snapshot / tape:.1f} |"


def page() -> str:
    """The whole page."""
    head = (
        "| layer | dtype | tape | rerun | snapshot | snapshot / tape |\n|---|---|---|---|---|---|"
    )
    large = large_costs()
    per_round = {s: LARGE_LAYERS * POSITIONS * b / 2**20 for s, b in large.items()}
    return f"""# What a tape costs

Written by `python docs/tape_cost.py`; a test holds it to the code. Bytes **per layer and
position** that each strategy remembers during a verify pass, from the sizes of the arrays it
really kept. `replay` remembers nothing and decodes the kept tokens again.

Every strategy also keeps the state from before the pass. It is not copied: the arrays stay
alive until the round is over, one state a layer whatever K is.

## Tiny models, measured over {POSITIONS} positions

{head}
{chr(10).join(tiny_rows())}

At these sizes a state is only a few times larger than its inputs. The point of a tape is the
next table.

## The 122B shape

64 value heads, 16 key heads, 128 x 128, convolution kernel 4, hidden size 3072, bfloat16
activations and a float32 recurrent state: one mlx-lm `GatedDeltaNet` layer of that shape, run
over {POSITIONS} positions.

{head}
{_row("GDN of the 122B shape", "bfloat16", large)}

A round with K = {POSITIONS - 1} over {LARGE_LAYERS} such layers remembers {per_round[Rewind.TAPE]:.1f} MiB of tape,
{per_round[Rewind.RERUN]:.1f} MiB of mixer inputs, or {per_round[Rewind.SNAPSHOT]:.0f} MiB of snapshots.

The tape holds the rows that enter the short convolution (q, k and v side by side, 12,288
numbers a position) and the two gates before activation (2 x 64). A snapshot holds the whole
recurrent state (64 x 128 x 128 float32, 4 MiB) and the convolution window (3 x 12,288).
"""


def main() -> None:
    """Write the page."""
    mx.set_default_device(mx.cpu)
    PAGE.write_text(page())
    print(f"wrote {PAGE.name}")


if __name__ == "__main__":
    main()
