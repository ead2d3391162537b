"""The gate opens every kind of checkpoint people have, and a right decoder is lossless on it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.gate.conftest import Gated

PLAIN = "not quantised, norms about zero head in model.safetensors, its norms about zero"
BESIDE = "norms about one head in mtp.safetensors, its norms about"
FOLDERS = {
    "plain": f"qwen3_5, logits in bfloat16 weights 1 file, {PLAIN}",
    "sharded": "3 files, not quantised, norms about zero head in model-00001-of-00003.safe",
    "mlx-layout": "norms about one head in model.safetensors, its norms about one",
    "4-bit": f"4 bits in groups of 64, {BESIDE} zero",
    "8-bit": f"8 bits in groups of 64, {BESIDE} one",
    "4-bit-sharded": f"3 files, 4 bits in groups of 64, {BESIDE} one",
    "qwen3_5_moe": f"qwen3_5_moe, logits in float32 weights 1 file, {PLAIN}",
    "qwen3_next": f"qwen3_next, logits in float32 weights 1 file, {PLAIN}",
    "qwen3_next-fused": f"qwen3_next, logits in float32 weights 1 file, {PLAIN}",
}
"""What is opened, and what is said of it."""


@pytest.mark.parametrize("name", FOLDERS)
def test_lossless(folders: Callable[[str], Path], gated: Callable[..., Gated], name: str) -> None:
    """Every claim holds, and the first lines say what was opened."""
    done = gated(folders(name), k=1)
    assert done.code == 0, done.out
    assert done.answer.startswith("LOSSLESS: ")
    assert FOLDERS[name] in " ".join(done.out.split())
    assert done.report.counts.keys() == {"pass"}
