"""What is shipped of a finished run."""

import csv
import json
from pathlib import Path

import mlx.core as mx
import pytest

from reference_models.checkpoint import read
from reference_models.training import ship as shipping
from reference_models.training.loop import MEAN_OF, run
from reference_models.training.ship import CURVE, MANIFEST, digest, in_bfloat16, ship
from reference_models.weights import Fill
from reference_models.zoo import tensors_of
from tests.models.helpers import listed
from tests.models.training import ignore, tiny_training


def test_folder(tmp_path: Path) -> None:
    """A finished run becomes a checkpoint with a manifest of its files and a curve."""
    training = tiny_training(steps=MEAN_OF)
    run(training, tmp_path / "run.safetensors", ignore)
    folder = ship(training, tmp_path / "model")
    target, _ = read(folder)
    assert str(target.embed(mx.array([[1]])).dtype) == "mlx.core.bfloat16"
    manifest = json.loads((folder / MANIFEST).read_text())
    names = {file.name for file in folder.iterdir()} - {MANIFEST}
    assert manifest["files"] == {name: digest(folder / name) for name in names}
    rows = list(csv.DictReader((folder / CURVE).read_text().splitlines()))
    assert [row["step"] for row in rows] == ["10"]
    assert float(rows[0]["target"]) == pytest.approx(training.curve[0][2], abs=1e-4)


def test_unfinished(tmp_path: Path) -> None:
    """A run with steps left is not shipped."""
    with pytest.raises(ValueError, match="gdn has 4 steps left"):
        ship(tiny_training(), tmp_path / "model")


def test_whole_or_as_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failure while shipping leaves the folder that was there."""
    training, folder = tiny_training(steps=1), tmp_path / "model"
    training.step()
    folder.mkdir()
    (folder / "before").write_text("this")

    def fail(*arguments: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(shipping, "_write_curve", fail)
    with pytest.raises(OSError, match="no space"):
        ship(training, folder)
    assert [file.name for file in folder.iterdir()] == ["before"]


def test_norms_are_the_same_about_one() -> None:
    """A norm stored about zero has a 1 + w that bfloat16 holds, and so a w."""
    training = tiny_training("flash-next")
    for _ in range(3):
        training.step()
    kept = in_bfloat16(training.recipe, training.arrays)
    for name, tensor in tensors_of(training.recipe.config).items():
        if tensor.fill is Fill.NORM_ABOUT_ZERO:
            wide = kept[name].astype(mx.float32) + 1.0
            assert listed(wide.astype(mx.bfloat16).astype(mx.float32)) == listed(wide)
            assert listed(wide) != [1.0] * wide.size, name
