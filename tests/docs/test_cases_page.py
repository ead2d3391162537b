"""The page of the cases has a line for every folder of them."""

from pathlib import Path

CASES = Path(__file__).parents[2] / "conformance"


def test_every_folder_has_its_line() -> None:
    """What each folder is about stands in `conformance/README.md`."""
    page = (CASES / "README.md").read_text()
    folders = {file.parent.name for file in CASES.glob("*/test_*.py")}
    assert folders
    assert [name for name in sorted(folders) if f"| `{name}/` |" not in page] == []
