"""Fixtures of the gate's tests: checkpoint folders made once, and the command in this process."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import mlx.core as mx
import pytest

from mtp_conformance import probe
from mtp_conformance.commands import gate
from mtp_conformance.report import Report, read_report
from reference_models.checkpoint import write_zoo
from tests.gate.folders import QWEN, copied, in_mlx_layout, quantised, sharded
from tests.harness.command_line import run

SHORT = [100, 101, 102, 32, 114, 101, 97, 100, 40, 115, 101]
"""`def read(se` in bytes: a prompt that is prefilled quickly."""


class Gated(NamedTuple):
    """Exit code, output, error output and report folder of one run."""

    code: int
    out: str
    err: str
    folder: Path

    @property
    def report(self) -> Report:
        """The report, which has to be complete."""
        return read_report(self.folder / "report.jsonl")

    @property
    def answer(self) -> str:
        """The line that says what came out."""
        lines = self.out.splitlines()
        return next(line for line in lines if line.split(":")[0].isupper())


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return a function from a name to a checkpoint folder, made once; not to be changed."""
    root = tmp_path_factory.mktemp("folders")
    make: dict[str, Callable[[Path], Path]] = {
        "plain": lambda _: QWEN,
        "sharded": lambda folder: sharded(copied(QWEN, folder)),
        "mlx-layout": partial(in_mlx_layout, QWEN),
        "4-bit": lambda folder: quantised(QWEN, folder, 4),
        "8-bit": lambda folder: quantised(QWEN, folder, 8, head_bits=8),
        "4-bit-sharded": lambda folder: sharded(quantised(QWEN, folder, 4, head_bits=4)),
        "qwen3_5_moe": partial(write_zoo, "gdn-moe"),
        "qwen3_next": partial(write_zoo, "gdn-next"),
    }
    return cache(lambda name: make[name](root / name))


@pytest.fixture
def gated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Gated]:
    """Return a function that runs `mtp-conformance gate` on a folder, after one short prompt.

    The probe of the device is cut to one operation: its own tests are elsewhere.
    """
    few = {"softmax": probe.OPERATIONS["softmax"]}
    monkeypatch.setattr("mtp_conformance.probe.run_probe", partial(probe.run_probe, few))
    for memo in ("_found", "_told"):  # of another test's failures on a folder of this name
        monkeypatch.setattr(f"mtp_conformance.details.{memo}", {})
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text(json.dumps({"tokens": SHORT}) + "\n")

    def start(folder: Path, *options: str, **usual: Any) -> Gated:
        out = tmp_path / "out"
        given = {"k": "2", "max-tokens": "12", "prompts": str(prompts), **usual}
        words = [word for name, value in given.items() for word in (f"--{name}", str(value))]
        capsys.readouterr()
        code = run(
            gate, "gate", "--model", str(folder), "--device", "cpu", "--out", str(out), *words,
            *options,
        )  # fmt: skip
        printed = capsys.readouterr()
        mx.set_default_device(mx.cpu)
        return Gated(code, printed.out, printed.err, out)

    return start
