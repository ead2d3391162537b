"""Ties at a selection cut are found, by both sides, and no prompt with one is used."""

from collections.abc import Callable
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

from reference_models import checkpoint
from reference_models.checkpoint import read_config
from reference_models.prompts import prompt_tokens
from reference_models.ties import smallest_cut_gap
from tests.oracle import reference, working
from tests.oracle.compare import TIE, cut_gaps
from tests.oracle.models import weights_of

Folder = Callable[[str], Path]


def test_a_tie_in_a_prompt(folder: Folder) -> None:
    """`qsa` has an exact tie in `code`; transformers' scores and the reference's both say so."""
    config, tokens = read_config(folder("qsa")), prompt_tokens(24, "code")
    found = working.run_golden(config, folder("qsa"), tokens)
    assert found.cuts["selection"] == 0
    assert min(cut_gaps(found.trajectory, 2).values()) == 0
    assert smallest_cut_gap(checkpoint.read(folder("qsa"))[0], tokens, 0) == 0


def test_such_a_prompt_is_not_used(folder: Folder) -> None:
    """The next prompt is taken, in which nothing ties."""
    golden = working.without_tie(read_config(folder("qsa")), folder("qsa"))
    assert golden.tokens == prompt_tokens(24, "prose")
    assert min(golden.cuts.values()) > TIE


def test_without_another_prompt_nothing_is_computed(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If every prompt has a tie, the message names them."""
    monkeypatch.setattr(working, "PROMPTS", ["code"])
    with pytest.raises(ValueError, match="every prompt has a tie"):
        working.without_tie(read_config(folder("qsa")), folder("qsa"))


def test_when_all_scores_tie_the_lowest_index_wins_here(folder: Folder, tmp_path: Path) -> None:
    """With an index projection of zeros the reference selects the first blocks."""
    config = read_config(folder("qsa"))
    weights = {
        name: mx.zeros_like(array) if name.endswith("index_qk_proj.weight") else array
        for name, array in weights_of("qsa").items()
    }
    spoilt = checkpoint.write(config, weights, tmp_path)
    golden = working.run_golden(config, spoilt, prompt_tokens(24, "prose"))
    own = reference.trajectory(*checkpoint.read(spoilt), golden.tokens, golden.drafts)
    assert golden.cuts["selection"] == 0
    selected = own["layers.1.selected"]
    assert selected[-1].tolist() == [True] * 8 + [False] * 16
    assert selected.sum() == golden.trajectory["layers.1.selected"].sum()
    assert np.array_equal(own["layers.1.scores"], golden.trajectory["layers.1.scores"])
