"""Import contracts leave out no part of the tests."""

from pathlib import Path
from typing import Any

import pytest
import tomllib

ROOT = Path(__file__).parents[2]
ORACLE = "tests.oracle"
PARTS = {f"tests.{file.parent.name}" for file in (ROOT / "tests").glob("*/__init__.py")}


def _contract(id: str) -> dict[str, Any]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return next(c for c in settings["tool"]["importlinter"]["contracts"] if c["id"] == id)


@pytest.mark.parametrize(
    ("id", "side"),
    [
        ("pytorch-in-the-oracle-alone", "source_modules"),
        ("the-oracle-judges-models-alone", "forbidden_modules"),
    ],
)
def test_every_part_of_the_tests_is_in_a_contract(id: str, side: str) -> None:
    """A new folder of tests has to be named where all but the oracle are."""
    named = {module for module in _contract(id)[side] if module.startswith("tests.")}
    assert named == PARTS - {ORACLE}
    assert ORACLE in PARTS
