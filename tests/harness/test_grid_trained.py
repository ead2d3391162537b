"""Trained checkpoints run in the profiles that have time for them, and in no other."""

import pytest

from conformance.experts.test_bits import cells as expert_cells
from conformance.head.test_drafts import test_drafts as drafts
from conformance.rewind.test_logits import test_next_logits as logits
from conformance.rewind.test_own_drafts import test_own_drafts as state_of_own_drafts
from conformance.rewind.test_state import test_one_round as state
from conformance.sample.test_stream import test_own_drafts as sampled_own_drafts
from conformance.stream.test_greedy import test_guessed_drafts as stream
from conformance.stream.test_own_drafts import test_own_drafts as stream_of_own_drafts
from mtp_conformance.adapters.builtin import make_runtime
from mtp_conformance.case import registration_of
from mtp_conformance.grid import DTYPES, STRATEGIES, TRAINED_MODELS, TRAINED_STARTS
from reference_models.shipped import shipped

CASES = {
    "state": state,
    "logits": logits,
    "state of own drafts": state_of_own_drafts,
    "stream": stream,
    "stream of own drafts": stream_of_own_drafts,
    "sampled": sampled_own_drafts,
    "drafts": drafts,
}


def test_every_checkpoint_is_a_model() -> None:
    """Both checkpoints run as reference models, and qwen3_5's in mlx-lm's class besides."""
    assert {model.partition("+")[0] for model in TRAINED_MODELS} == set(shipped())
    assert "qwen3_5-bytes+mlx-lm" in TRAINED_MODELS
    assert set(TRAINED_MODELS) <= set(make_runtime().describe().models)


@pytest.mark.parametrize("profile", ["nightly", "full"])
@pytest.mark.parametrize("case", CASES)
def test_state_and_stream_claims(case: str, profile: str) -> None:
    """Every trained model has cells of every claim, those of streams after code and prose."""
    registration = registration_of(CASES[case])
    assert registration is not None
    assert registration.cells is not None
    cells = [cell for cell in registration.cells(profile) if cell.model in TRAINED_MODELS]
    assert {cell.model for cell in cells} == set(TRAINED_MODELS)
    assert {cell.dtype for cell in cells} == {DTYPES[0] if case == "drafts" else DTYPES[1]}
    starts = {dict(cell.extra).get("start") for cell in cells}
    assert starts == ({None} if case in ("state", "logits") else set(TRAINED_STARTS))
    if case != "drafts":
        assert {cell.strategy for cell in cells} == set(STRATEGIES)


@pytest.mark.parametrize("profile", ["default", "gate", "smoke", "peers"])
def test_not_where_a_person_waits(profile: str) -> None:
    """By default, in a gate and among other runtimes they are left out."""
    for case in CASES.values():
        registration = registration_of(case)
        assert registration is not None
        assert registration.cells is not None
        assert not [c for c in registration.cells(profile) if c.model in TRAINED_MODELS]


def test_experts_on_disk() -> None:
    """The trained model with experts has them on disk, too."""
    assert "flash-next-bytes" in {cell.model for cell in expert_cells("nightly")}
