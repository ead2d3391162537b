"""The page of the trained models was written for the weights that are shipped."""

import json
from pathlib import Path

import pytest

from reference_models.training.recipe import RECIPES
from reference_models.training.ship import MANIFEST, TRAINED

PAGE = (Path(__file__).parents[2] / "docs" / "trained.md").read_text()


@pytest.mark.parametrize("name", RECIPES)
def test_page_is_of_these_weights(name: str) -> None:
    """The page names a model's weights by their digest, and shows its curve."""
    manifest = json.loads((TRAINED / name / MANIFEST).read_text())
    assert f"sha256 `{manifest['files']['model.safetensors'][:16]}`" in PAGE
    assert f"../reference_models/trained/{name}/curve.svg" in PAGE
    assert (TRAINED / name / "curve.svg").is_file()
