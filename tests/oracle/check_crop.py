"""The findings on transformers' caches still print what `docs/findings.md` says."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("model", ["gdn", "flash-next"])
def test_crop(folder: Callable[[str], Path], model: str) -> None:
    """The script's output stands on the page, line by line."""
    script = ROOT / "docs" / "findings" / "transformers_crop.py"
    command = [sys.executable, str(script), str(folder(model))]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "crop" in printed
    assert f"```text\n{printed}```" in (ROOT / "docs" / "findings.md").read_text()
