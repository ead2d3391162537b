"""Error texts of goldens, as people read them."""

import re
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from mtp_conformance.golden.contents import GoldenError, Machine
from mtp_conformance.golden.explaining import (
    WHY_BFLOAT16_TOKENS_MAY_DIFFER,
    WHY_CHECKPOINTS_MAY_DIFFER,
    WHY_TOKENS_MAY_DIFFER,
    why_floats_may_differ,
)
from mtp_conformance.golden.reading import Golden
from tests.golden.damage import DAMAGES, Damage, Pin

HERE = Machine("cpu-linux-x86_64", "0.32.4", {"C library": "glibc 2.36", "processor": "one"})
OTHERS = {
    "same": HERE,
    "other-mlx": Machine(HERE.backend, "0.33.0", HERE.made_on),
    "other-backend": Machine("metal-macos-arm64", HERE.mlx, {"processor": "two"}),
    "other-processor": Machine(HERE.backend, HERE.mlx, {**HERE.made_on, "processor": "two"}),
    "other-c-library": Machine(HERE.backend, HERE.mlx, {**HERE.made_on, "C library": "musl"}),
}


@pytest.mark.parametrize("damage", [d for d, _ in DAMAGES.values()], ids=DAMAGES.keys())
def test_refusal(root: Path, pin: Pin, damage: Damage, snapshot: SnapshotAssertion) -> None:
    """A refusal reads as pinned; digests, sizes and versions are left out."""
    damage(root / "golden", pin)
    with pytest.raises(GoldenError) as caught:
        Golden(root / "golden").verify()
    text = str(caught.value).replace(str(root), "ROOT")
    text = re.sub(r"\b[0-9a-f]{12}\b", "DIGEST", text)
    text = re.sub(r"\d+ of \d+ bytes", "N of M bytes", text)
    text = re.sub(r"\d+ bytes, \d+ are due", "N bytes, M are due", text)
    text = re.sub(r"[0-9a-f]{64}", "SHA-256", text)
    text = re.sub(r"cpu-[a-z0-9_-]+-mlx-[0-9.]+", "KEY", text)
    # What a library says of it differs from version to version.
    assert re.sub(r"(no safetensors file|no whole JSON): .*;", r"\1: WHY;", text) == snapshot


@pytest.mark.parametrize("golden", OTHERS.values(), ids=OTHERS.keys())
def test_why_floats_may_differ(golden: Machine, snapshot: SnapshotAssertion) -> None:
    """What is not the same is named, and what is left where nothing is."""
    assert why_floats_may_differ(golden, HERE) == snapshot


def test_why_others_may_differ(snapshot: SnapshotAssertion) -> None:
    """Float32 tokens and checkpoints have no excuse, bfloat16 tokens one."""
    whys = (
        WHY_TOKENS_MAY_DIFFER,
        WHY_BFLOAT16_TOKENS_MAY_DIFFER,
        WHY_CHECKPOINTS_MAY_DIFFER,
    )
    assert "\n".join(whys) == snapshot
