"""Every runtime of the matrix has a lock that can be installed and an adapter that can be read."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LOCKS = sorted((ROOT / "conformance" / "peers").glob("*.txt"))
ADAPTERS = ROOT / "src" / "mtp_conformance" / "adapters"
SHARED = {"__init__", "builtin", "caches", "dead_rows", "generating", "slow_caches"}
PIN = re.compile(r"[A-Za-z0-9._-]+==[^\s;]+( ?; ?.+)?")


def test_runtimes_and_adapters_are_the_same() -> None:
    """No lock without an adapter, no adapter without a lock, and there are some."""
    modules = {path.stem for path in ADAPTERS.glob("*.py")} - SHARED
    assert {lock.stem.replace("-", "_") for lock in LOCKS} == modules
    assert len(LOCKS) == 13


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.stem)
def test_lock_pins_everything(lock: Path) -> None:
    """The first line says which Python, every other one pins a version from a registry."""
    first, *pins = lock.read_text().splitlines()
    assert re.fullmatch(r"# python 3\.1[0-9]", first)
    odd = [line for line in pins if not PIN.fullmatch(line)]
    assert odd == []
    assert any(line.startswith("mlx==") for line in pins)


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.stem)
def test_adapter_needs_the_author_side_alone(lock: Path) -> None:
    """Of this project an adapter imports what a runtime's environment has, and it serves."""
    source = (ADAPTERS / f"{lock.stem.replace('-', '_')}.py").read_text()
    ours = {
        node.module
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("mtp_")
    }
    allowed = {"protocol", "stdio", "adapters.generating", "adapters.caches"}
    assert ours <= {f"mtp_conformance.{name}" for name in allowed}
    assert "serve(make_runtime())" in source
