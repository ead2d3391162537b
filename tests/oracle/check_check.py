"""`python -m tests.oracle` passes when all is as due and fails when anything is not."""

import sys
from collections.abc import Callable
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

from reference_models import gated_delta, pooled
from reference_models.norms import rms_norm
from tests.oracle import stored, working
from tests.oracle.__main__ import main

Folder = Callable[[str], Path]


def test_all_is_as_due(folder: Folder) -> None:
    """Nothing is wrong with an unchanged model."""
    assert working.check_one("qsa", folder("qsa")) == []


def test_a_wrong_reference_is_named(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reference model with one wrong norm is named, with the quantity it spoils."""
    monkeypatch.setattr(
        pooled, "rms_norm", lambda x, w, eps: rms_norm(x, w, eps) * (1.001 if x.ndim == 3 else 1)
    )
    lines = working.check_one("qsa", folder("qsa"))
    assert any("reference_models: layers.1.pooled" in line for line in lines)
    assert not [line for line in lines if "mlx-lm" in line or "float32" in line]


def test_the_exit_code(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is 1, and the last line says how many quantities are off."""
    monkeypatch.setattr(
        gated_delta, "l2_norm", lambda x: x * mx.rsqrt(x.square().sum(-1, keepdims=True) + 8e-6)
    )
    assert main(["gdn-small-keys"]) == 1
    printed = capsys.readouterr()
    assert printed.out.startswith("FAIL  gdn-small-keys")
    assert "oracle: FAIL" in printed.out
    assert "reference_models: layers.0.recurrent" in printed.err


def test_stored_values_that_transformers_no_longer_computes(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A release that computes otherwise is noticed."""
    entry, before = stored.read("attn")
    other = {**before, "layers.0.keys": before["layers.0.keys"] + 1e-6}
    monkeypatch.setattr(stored, "read", lambda model: (entry, other))
    lines = working.check_one("attn", folder("attn"))
    assert [line for line in lines if "from what is stored" in line]
    assert len(lines) == 1


def test_everybody_is_held_to_the_likeliest_token(folder: Folder) -> None:
    """Another likeliest token of whoever computes the model is named, with who it is."""
    entry, _ = stored.read("gdn")
    at = folder("gdn")
    golden = working.run_golden(working.read_config(at), at, entry.tokens, entry.drafts)
    found = working.computed(at, golden)
    assert working.other_tokens("gdn", golden, found, entry.ties) == []
    assert set(found) == {"reference_models", "transformers, float32", "mlx-lm"}
    for name, trajectory in found.items():
        turned = {**trajectory, "logits": np.roll(trajectory["logits"], 1, axis=-1)}
        lines = working.other_tokens("gdn", golden, {**found, name: turned}, entry.ties)
        assert lines[0] == f"gdn: {name}: logits: another likeliest token in row 0"
        assert len(lines) == len(entry.tokens)


@pytest.mark.parametrize("off", [0.0, 0.1])
def test_a_failing_run_stores_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, off: float
) -> None:
    """Everything is stored of a run that passes, and nothing when anything is too far off."""
    stored_of: list[str] = []
    plain = working.reference.numbers
    monkeypatch.setattr(working, "MODELS", ["attn"])
    monkeypatch.setattr(working, "NUDGES", 1)
    monkeypatch.setattr(working.reference, "numbers", lambda a: plain(a) + np.float32(off))
    monkeypatch.setattr(
        stored, "write_trajectory", lambda model, array: (stored_of.append(model), "", "")[1:]
    )
    monkeypatch.setattr(stored, "write_manifest", lambda *args: Path())
    monkeypatch.setattr(working.page, "write", lambda manifest: Path())
    assert working.write(tmp_path, {}) == (1 if off else 0)
    assert stored_of == ([] if off else ["attn"])


def test_without_pytorch(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where there is no PyTorch the message says what to run."""
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(SystemExit, match="2"):
        main(["attn"])
    assert "noxfile.py -s oracle" in capsys.readouterr().err


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    """`--help` shows how it is used."""
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    assert "python -m tests.oracle --write" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["gnd"], "the oracle has no gnd"), (["--write", "gdn"], "name none")],
)
def test_usage(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A wrong name, and a part of what has to be stored whole, are usage errors."""
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    assert message in capsys.readouterr().err
