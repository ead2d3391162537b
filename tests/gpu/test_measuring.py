"""What `nox -s gpu` runs, tried on the CPU: claims, ties, raw rows, refusals."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from tests.fakes.uneven import uneven
from tests.gpu import exact, near
from tests.gpu.__main__ import main
from tests.gpu.agreement import agreement
from tests.gpu.models import Subject, zoo
from tests.gpu.rows import read

K, TOKENS = 3, 12
Made = tuple[Subject, tuple[Any, Any]]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """A zoo model and its head."""
    subject = zoo(tmp_path_factory.mktemp("zoo"), quick=True)[-2]
    return subject, subject.make()


@pytest.mark.parametrize("k", range(1, 9))
def test_every_accepted_count_comes(k: int) -> None:
    """A claim over K+1 rounds and more has met all of them."""
    assert set(islice(exact.accepts(k), 2 * (k + 1))) == set(range(k + 1))


def test_claims_hold_for_a_right_decoder(made: Made) -> None:
    """And say how much they compared."""
    for row in (
        exact.stream_claim(*made, K, TOKENS),
        exact.state_claim(*made, K, TOKENS, row_exact=True),
    ):
        assert row["ok"], row
        assert row["compared"] > 0
        assert row["rejected"] > 0


def test_claims_hold_where_rows_differ(made: Made) -> None:
    """Row-exact mode keeps both on models that round by rows; the fast mode is seen to differ."""
    subject, pair = made[0], uneven(made[1])
    assert exact.stream_claim(subject, pair, K, TOKENS)["ok"]
    assert exact.state_claim(subject, pair, K, TOKENS)["ok"]
    found = near.near_ties(subject, pair, K, TOKENS)
    assert found["blocks_differing"] == found["blocks"] > 0


def test_a_wrong_rewind_is_named(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tape a row late fails the stream claim, in the layer it breaks."""
    from mtp_decoder.rewind.tape import TapeUndo

    rewind = TapeUndo.rewind
    monkeypatch.setattr(TapeUndo, "rewind", lambda self, keep: rewind(self, max(0, keep - 1)))
    row = exact.stream_claim(*made, K, TOKENS)
    assert not row["ok"]
    assert row["differing"].startswith("layers.")


def test_nothing_compared_is_no_claim(made: Made) -> None:
    """A run without tokens fails."""
    assert not exact.stream_claim(*made, K, 0)["ok"]


def test_margins_are_in_units_of_the_last_place() -> None:
    """Two bfloat16 logits in 16..32 are 0.125 apart at the least."""
    steps = mx.array([[17.375, 17.25, 0.0]], mx.bfloat16)
    block = mx.array([[17.25, 17.375, 0.0]], mx.bfloat16)
    assert vars(near)["_margins"](block, steps) == [1.0]
    assert vars(near)["_margins"](steps, steps) == []


def test_the_probe_is_held_to_what_was_seen() -> None:
    """Promised bits that are not there are a lie; a stricter probe is none."""
    names = ("scaled_dot_product_attention", "rope", "rms_norm", "softmax", "sigmoid", "exp")
    table = {f"{n}/float32": {"2": True} for n in (*names, "depthwise conv1d", "matmul")}
    row = {"model": "gdn", "dtype": "float32", "bits": 0, "k": 1, "blocks_differing": 1}
    assert agreement({"operations": table}, row)["lied"]
    table["matmul/float32"]["2"] = False
    found = agreement({"operations": table}, {**row, "blocks_differing": 0})
    assert (found["lied"], found["says_exact"], found["inexact"]) == (False, False, ["matmul"])


def test_the_script_writes_rows(tmp_path: Path) -> None:
    """A header first, then rows; 0 says that every bit claimed was there."""
    arguments = ["--device", "cpu", "--quick", "--models", "zoo", "--only", "ple", "--k", "1"]
    assert main([*arguments, "--shard", "1/2", "--parts", "exact", "--out", str(tmp_path)]) == 0
    rows = list(read(tmp_path / "cpu.jsonl"))
    assert {row["part"] for row in rows[1:]} == {"stream", "state"}
    assert not list(tmp_path.glob("*.partial.jsonl"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--k", "0"], "give depths such as 1,2,3"),
        (["--k", "x"], "give depths such as 1,2,3"),
        (["--parts", "all"], "there are probe, recurrence, exact"),
        (["--shard", "3/2"], "give a part and how many"),
    ],
)
def test_bad_arguments_are_refused(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """With what could be given instead."""
    with pytest.raises(SystemExit) as refused:
        main(words)
    assert refused.value.code == 2
    assert said in capsys.readouterr().err


def test_without_a_gpu_it_says_what_to_install(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Instead of a run on whatever there is."""
    for backend in (mx.metal, mx.cuda):
        monkeypatch.setattr(backend, "is_available", lambda: False)
    assert main([]) == 2
    assert "mlx[cuda13]" in capsys.readouterr().err
