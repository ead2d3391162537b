"""The adapter on the page "Test your runtime in ten minutes" works as it stands there."""

import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from mtp_conformance import Oracles
from mtp_conformance.adapters.builtin import zoo_materials
from mtp_conformance.smoke import Status, smoke
from mtp_decoder import Session, emit
from reference_models.checkpoint import read

PAGE = Path(__file__).parents[2] / "docs" / "test-your-runtime.md"


class Theirs(ModuleType):
    """A runtime of one generator, as the page's author has it."""

    drafted = 0

    def load(self, folder: Path) -> Any:
        """Open a checkpoint."""
        return read(folder)

    def generate(
        self, loaded: Any, prompt: Sequence[int], k: int, max_tokens: int, ends: Sequence[int]
    ) -> Iterator[tuple[int, bool]]:
        """Tokens, and whether each was a draft."""
        session, stops = Session(*loaded), [(token,) for token in ends]
        emitted = emit(session, prompt, num_draft_tokens=k, max_tokens=max_tokens, stops=stops)
        for token, _, was_draft in emitted:
            self.drafted = session.counters.drafted
            yield token, was_draft


def test_adapter_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It passes smoke, and its drafts are counted."""
    found = re.search(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None
    code = found.group(1)
    assert code.count("# yours") == 5
    theirs = Theirs("my_runtime")
    monkeypatch.setitem(sys.modules, "my_runtime", theirs)
    names: dict[str, Any] = {"my_runtime": theirs, "__name__": "adapter"}
    monkeypatch.setattr("mtp_conformance.stdio.serve", lambda runtime: names.update(made=runtime))
    exec(compile(code, str(PAGE), "exec"), names)
    checks = {c.name: c for c in smoke(Oracles(names["made"], zoo_materials(tmp_path)), "gdn")}
    assert {c.name for c in checks.values() if c.status is Status.WRONG} == set()
    assert checks["generate drafts"].status is Status.OK
    assert theirs.drafted > 0
