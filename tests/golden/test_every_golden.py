"""Every float32 golden is what the decoder does now; the gate checks the others, too."""

from collections.abc import Callable
from pathlib import Path

import pytest

from mtp_conformance.checked import CheckedRuntime
from mtp_conformance.golden.checking import check
from mtp_conformance.golden.comparing import in_words
from mtp_conformance.golden.machine import this_machine
from mtp_conformance.golden.reading import Golden
from reference_models.zoo import ZOO
from tests.golden.conftest import ROOT

FOLDER = ROOT / "golden"
MOST_BYTES = 20_000_000


@pytest.mark.parametrize("model", ZOO)
def test_decodes_as_pinned(model: str, checked: Callable[[], CheckedRuntime]) -> None:
    """Tokens are those pinned; states and logits, too, where backend and mlx are the golden's."""
    found = check(Golden(FOLDER), checked(), this_machine(), names=[f"{model}-float32"])
    assert found.lists == 18
    assert in_words(found.tokens) == []
    if found.judged:
        assert in_words(found.floats) == []


def test_whole() -> None:
    """Every file passes its size, hash, schema and manifest, and there is no other."""
    golden = Golden(FOLDER)
    assert golden.verify() == len(golden.files)
    assert golden.stale == ()
    assert set(golden.names) == {f"{m}-{d}" for m in ZOO for d in ("float32", "bfloat16")}


def test_small() -> None:
    """All of it is under 20 MB."""
    sizes = [path.stat().st_size for path in Path(FOLDER).rglob("*") if path.is_file()]
    assert sum(sizes) < MOST_BYTES
