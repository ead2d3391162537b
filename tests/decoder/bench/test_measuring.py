"""Arms of other runtimes: what they print, by an arm of a runtime that is made up."""

import shutil
import sys
from pathlib import Path

import pytest

from mtp_decoder.bench.peers import measuring
from mtp_decoder.bench.plan import Arm, Job, Plan, jobs_of
from mtp_decoder.bench.rows import Run
from mtp_decoder.bench.running import LaunchError, launch, records_of
from tests.decoder.bench.made import plan_of

PACKAGE = """
def says(prompt, tokens):
    yield from range(prompt[0], prompt[0] + tokens)
"""
ARM = """
from measuring import serve


class Loop:
    def __init__(self, folder, k):
        if k > 2:
            raise SystemExit("two drafts a round at most")
        self._k = k

    def decode(self, prompt, tokens):
        from made_up import says

        yield from says(prompt, tokens)

    def rounds(self):
        return [(2, 2), (2, 0), (1, 0)] if self._k else []


serve(("mlx",), Loop)
"""


@pytest.fixture
def job(tmp_path: Path) -> tuple[Plan, Job]:
    """A turn of the runtime `made_up`, whose arm is a file of the same name."""
    arms, packages = tmp_path / "arms", tmp_path / "packages"
    arms.mkdir()
    packages.mkdir()
    shutil.copy(str(measuring.__file__), arms)
    (arms / "made_up.py").write_text(ARM)
    (packages / "made_up.py").write_text(PACKAGE)
    command = f"env PYTHONPATH={packages} {sys.executable} {arms / 'made_up.py'}"
    made = plan_of(Arm("made-up", 2, ""), repeats=2, tokens=5, warm_up=3)
    plan = Plan(made.models, made.prompts, made.blocks, {"made-up": command}, device="cpu")
    return plan, jobs_of(plan.blocks[0])[1]


def test_rows(job: tuple[Plan, Job]) -> None:
    """An arm imports the runtime and not itself; its rows are what a table is made of."""
    rows = records_of(*job, launch)
    assert all(isinstance(row, Run) for row in rows)
    first, second = (row for row in rows if isinstance(row, Run))
    assert (first.prompt_tokens, first.tokens, first.repeat, second.repeat) == (3, 5, 0, 1)
    assert (first.rounds, first.rewinds, first.rejected) == (3, 2, 3)
    assert (first.drafted_by_depth, first.accepted_by_depth) == ([3, 2], [1, 1])
    assert first.tokens_digest == second.tokens_digest
    assert first.bytes["resident"] > 0


def test_what_cannot_be_done(job: tuple[Plan, Job]) -> None:
    """A runtime that cannot draft so deep says so, and that is its failure."""
    plan, turn = job
    deeper = Job(turn.block, Arm("made-up", 3, ""), 0)
    with pytest.raises(LaunchError, match=r"^two drafts a round at most$"):
        launch(plan, deeper)
