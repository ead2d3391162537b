"""Checkpoints that are not whole, and budgets for nothing."""

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

from mtp_conformance import Capability, Cell, Oracles, Witness, case, require_equal
from mtp_conformance.failure import RuntimeFailure
from mtp_conformance.grid import spread
from mtp_conformance.recording import alone, require_recorded

MODELS = ("gdn-moe", "gdn-moe+mlx-lm", "flash-next")
MISSING = "model-00002-of-00002.safetensors"
SCRIPT = ((2, 1), (3, 3))
"""Rounds as (K, accepted)."""


@case(
    "experts.files.refused",
    clause="expert-files",
    needs=("experts",),
    oracle="the name of the file, or the bytes of an expert, in the error",
    witness="checkpoints and budgets refused",
    since="0.1.0",
    cells=spread(models=MODELS, strategies=("tape",), only_in_full=("flash-next",)),
)
def test_refused(oracles: Oracles, cell: Cell, witness: Witness, tmp_path: Path) -> None:
    """A shard that is missing or cut short is named when a session opens; so is a least budget."""
    oracles.need(Capability.EXPERTS)
    group, options = oracles.group(cell), oracles.options(cell)
    sizes = oracles.expert_sizes(group)
    short = shutil.copytree(group.checkpoint, tmp_path / "short")
    file = _shard(short)
    os.truncate(file, file.stat().st_size - 1)
    lacking = shutil.copytree(group.checkpoint, tmp_path / "lacking")
    index = {"weight_map": {"one": _shard(lacking).name, "other": MISSING}}
    (lacking / "model.safetensors.index.json").write_text(json.dumps(index))
    enough, least = sizes.nbytes, str(sizes.nbytes)
    for folder, budget, head, named in (
        (short, enough, enough, file.name),
        (lacking, enough, enough, MISSING),
        (group.checkpoint, enough - 1, enough, least),
        (group.checkpoint, enough, sizes.head_nbytes - 1, str(sizes.head_nbytes)),
    ):
        chosen = replace(options, expert_budget=budget, head_expert_budget=head)
        error = _error(lambda f=folder, o=chosen: group.runtime.open(group.key.model, f, o))
        what = f"{folder.name} with budgets of {budget} and {head} bytes"
        assert error, f"{what} was opened"
        assert named in error, f"{what}: the error does not name {named}: {error}"
        witness.add(compared=1)


@case(
    "experts.files.short-read",
    clause="expert-files",
    needs=("experts", "state", "drafts"),
    oracle="the state before the call; the same rounds with experts in memory",
    witness="a round that failed, and rounds after the file was whole again",
    since="0.1.0",
    cells=spread(models=MODELS, only_in_full=("gdn-moe+mlx-lm",)),
)
def test_short_read(oracles: Oracles, cell: Cell, witness: Witness, tmp_path: Path) -> None:
    """A file that becomes shorter is an error that names it; caches stay, and decoding goes on."""
    oracles.need(Capability.EXPERTS, Capability.STATE, Capability.DRAFTS)
    group, options = oracles.group(cell), oracles.options(cell)
    rounds, sizes = alone(group, options, SCRIPT), oracles.expert_sizes(group)
    folder = shutil.copytree(group.checkpoint, tmp_path / "checkpoint")
    file = _shard(folder)
    content = file.read_bytes()
    budget = {"expert_budget": sizes.nbytes, "head_expert_budget": sizes.head_nbytes}
    session = group.runtime.open(group.key.model, folder, replace(options, **budget))
    session.prefill(group.prompt)
    frontier = session.state()
    for drafts in ((), rounds[0].drafts):
        os.truncate(file, 8 + int.from_bytes(content[:8], "little"))
        error = _error(lambda d=drafts: session.round(d))
        file.write_bytes(content)
        assert error, "a round read experts from a file that had ended"
        assert file.name in error, f"the error does not name {file.name}: {error}"
        what = "the state before the round that failed"
        witness.add(compared=require_equal(session.state(), frontier, what=what), failed=1)
    require_recorded(session, rounds, witness, what="experts in memory")
    witness.require(failed=2, rejected=1)


def _shard(folder: Path) -> Path:
    (file,) = folder.glob("*.safetensors")
    return file


def _error(call: object) -> str:
    """What a call that has to fail says; empty if it does not fail."""
    assert callable(call)
    try:
        call()
    except RuntimeFailure as error:
        return str(error)
    return ""
