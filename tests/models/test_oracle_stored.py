"""The reference models, and mlx-lm's classes, compute what transformers did, as stored.

No PyTorch takes part: `golden/oracle/` holds transformers' values, made by `nox -s oracle`.
"""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from reference_models import checkpoint
from reference_models.config import LINEAR
from tests.oracle import mlx_lm_classes, reference
from tests.oracle.compare import TIE, cut_gaps, distances, other_choices, tied_rows
from tests.oracle.models import MODELS, config_for, write_model
from tests.oracle.stored import Entry, read, read_manifest
from tests.oracle.trajectory import LOGITS, Trajectory

Folder = Callable[[str], Path]
ONE_WORKER_EACH = [pytest.param(m, marks=pytest.mark.xdist_group(f"oracle-{m}")) for m in MODELS]
ONE_PASS_ALONE = (
    *("hidden", "logits.parts", "logits.steps", ".conv", ".recurrent", ".keys", ".values"),
    *("head.logits", "head.chain"),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """Return a function from a model's name to its checkpoint folder."""
    root = tmp_path_factory.mktemp("oracle")
    return cache(lambda model: write_model(model, root / model))


@pytest.fixture(scope="module")
def own(folder: Folder) -> Callable[[str], tuple[Entry, Trajectory, Trajectory]]:
    """Return a function from a model's name to what is stored, and what the reference computes."""

    @cache
    def run(model: str) -> tuple[Entry, Trajectory, Trajectory]:
        entry, due = read(model)
        target, head = checkpoint.read(folder(model))
        return entry, due, reference.trajectory(target, head, entry.tokens, entry.drafts)

    return run


Own = Callable[[str], tuple[Entry, Trajectory, Trajectory]]


def test_every_model_is_stored() -> None:
    """The oracle was asked about every model of the zoo."""
    assert tuple(read_manifest()["models"]) == MODELS


@pytest.mark.parametrize("model", ONE_WORKER_EACH)
def test_every_quantity_is_near(own: Own, model: str) -> None:
    """Logits, states after every token, PLE and index rows, and the head are transformers'."""
    entry, due, found = own(model)
    assert [str(d) for d in distances(found, due, entry.sensitivity) if not d.within] == []


@pytest.mark.parametrize("model", ONE_WORKER_EACH)
def test_the_likeliest_tokens_are_the_same(own: Own, model: str) -> None:
    """So is the likeliest token of every row, except where two tie."""
    entry, due, found = own(model)
    others = {n: other_choices(found[n], due[n], entry.ties[n]) for n in LOGITS}
    assert {name: rows for name, rows in others.items() if rows} == {}


@pytest.mark.parametrize("model", MODELS)
def test_rows_left_out_are_tied(model: str) -> None:
    """No row is left out that has no tie, and but for the model made of ties it is one in all."""
    entry, due = read(model)
    assert {n: tied_rows(due[n]) for n in LOGITS} == entry.ties
    assert model == "attn-ties" or len(entry.ties["logits"]) <= 1


@pytest.mark.parametrize("model", MODELS)
def test_nothing_ties_at_a_cut(model: str) -> None:
    """No selection is decided by how ties are broken."""
    _, due = read(model)
    config = config_for(model)
    gaps = cut_gaps(due, config.indexer_budget // config.indexer_compress_ratio)
    assert all(gap > TIE for gap in gaps.values())
    assert bool(gaps) == (config.indexer_n_heads > 0)


@pytest.mark.parametrize("model", [m for m in MODELS if config_for(m).model_type[:5] == "qwen3"])
def test_mlx_lm_is_near(folder: Folder, model: str) -> None:
    """mlx-lm's own classes, and the head its loader drops, compute the same, and choose so, too."""
    entry, due = read(model)
    lacking = () if LINEAR in config_for(model).layer_types else ONE_PASS_ALONE
    found = mlx_lm_classes.trajectory(folder(model), entry.tokens, entry.drafts)
    apart = distances(found, due, entry.sensitivity, lacking=lacking)
    assert [str(d) for d in apart if not d.within] == []
    assert len(apart) > 10 or lacking
    names = [name for name in LOGITS if name in found]
    others = {name: other_choices(found[name], due[name], entry.ties[name]) for name in names}
    assert {name: rows for name, rows in others.items() if rows} == {}
    assert names == (["logits"] if lacking else list(LOGITS))
