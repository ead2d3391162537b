"""The gate opens every kind of checkpoint people have, and a right decoder is lossless on it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.gate.conftest import Gated

BESIDE = "MTP head in mtp.safetensors, its norms about"
FOLDERS = {
    "plain": "qwen3_5, 1 file, not quantised, norms about zero, MTP head in model.safetensors",
    "sharded": "3 files, not quantised, norms about zero, MTP head in model-00001-of-00003.safe",
    "mlx-layout": "norms about one, MTP head in model.safetensors, its norms about one",
    "4-bit": f"4 bits in groups of 64, norms about one, {BESIDE} zero",
    "8-bit": f"8 bits in groups of 64, norms about one, {BESIDE} one",
    "4-bit-sharded": f"3 files, 4 bits in groups of 64, norms about one, {BESIDE} one",
    "qwen3_5_moe": "qwen3_5_moe, 1 file, not quantised, norms about zero",
    "qwen3_next": "qwen3_next, 1 file, not quantised, norms about zero",
}
"""What is opened, and what is said of it."""


@pytest.mark.parametrize("name", FOLDERS)
def test_lossless(folders: Callable[[str], Path], gated: Callable[..., Gated], name: str) -> None:
    """Every claim holds, and the first lines say what was opened."""
    done = gated(folders(name), k=1)
    assert done.code == 0, done.out
    assert done.answer.startswith("LOSSLESS: ")
    assert FOLDERS[name] in done.out
    assert done.report.counts.keys() == {"pass"}
