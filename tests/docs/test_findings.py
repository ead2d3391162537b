"""The page of findings, its scripts, and the lists of known failures agree."""

import ast
import re
from pathlib import Path

import tomllib

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "findings.md").read_text()
SCRIPTS = sorted((ROOT / "docs" / "findings").glob("*.py"))
KNOWN = sorted((ROOT / "conformance" / "known").glob("*.toml"))
ROWS = re.findall(r"^\| \[([a-z-]+-\d+)\]\(#([a-z-]+-\d+)\) \| ([a-z-]+) \|", PAGE, re.MULTILINE)


def test_table_and_sections_are_the_same() -> None:
    """Every finding of the table has a section, and every section a row."""
    sections = re.findall(r"^### ([a-z-]+-\d+)$", PAGE, re.MULTILINE)
    assert [name for name, _, _ in ROWS] == sections
    assert all(name == anchor for name, anchor, _ in ROWS)
    assert len(sections) > 20


def test_every_script_is_named() -> None:
    """No script without a finding."""
    named = set(re.findall(r"[a-z0-9_]+\.py", PAGE))
    assert {script.name for script in SCRIPTS} <= named


def test_scripts_import_nothing_of_this_project() -> None:
    """A finding counts once it is shown outside the suite."""
    for script in SCRIPTS:
        for node in ast.walk(ast.parse(script.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not [n for n in names if n.startswith(("mtp_", "reference_models"))], script


def test_known_failures_name_a_finding() -> None:
    """What is known to fail in a runtime says which finding it is."""
    findings = {name for name, _, _ in ROWS}
    for file in KNOWN:
        for entry in tomllib.loads(file.read_text()).get("known", []):
            named = re.findall(r"docs/findings\.md#([a-z-]+-\d+)", entry["reason"])
            assert named, f"{file.name}: {entry['case']} names no finding"
            assert set(named) <= findings
