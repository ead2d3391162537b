"""Fixtures of the gate's tests: checkpoint folders made once, and the command in this process."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Callable
from functools import cache, partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from mtp_conformance import probe
from mtp_conformance.commands import gate
from mtp_conformance.report import Report, read_report
from reference_models.checkpoint import write_zoo
from tests.gate.folders import QWEN, converted, copied, in_mlx_layout, sharded, with_fused_experts
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
        "4-bit": lambda folder: converted(QWEN, folder, 4),
        "8-bit": lambda folder: converted(QWEN, folder, 8, head_bits=8),
        "4-bit-sharded": lambda folder: sharded(converted(QWEN, folder, 4, head_bits=4)),
        "qwen3_5_moe": partial(write_zoo, "gdn-moe"),
        "qwen3_next": partial(write_zoo, "gdn-next"),
        "qwen3_next-fused": lambda folder: with_fused_experts(write_zoo("gdn-next", folder)),
    }
    return cache(lambda name: make[name](root / name))


def gate_on(folder: Path, below: Path, *options: str, **usual: Any) -> Gated:
    """Run `mtp-conformance gate` on a folder, after one short prompt, reporting below another.

    The probe of the device is cut to one operation: its own tests are elsewhere. An option that
    is None is left out.
    """
    prompts, out, err = below / "prompts.jsonl", io.StringIO(), io.StringIO()
    prompts.write_text(json.dumps({"tokens": SHORT}) + "\n")
    given = {"k": "2", "max-tokens": "12", "prompts": prompts, "out": below / "out", **usual}
    words = [[f"--{name}", str(value)] for name, value in given.items() if value is not None]
    few = {"softmax": probe.OPERATIONS["softmax"]}
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        patch.setattr("mtp_conformance.probe.run_probe", partial(probe.run_probe, few))
        for memo in ("_found", "_told"):  # of another test's failures on a folder of this name
            patch.setattr(f"mtp_conformance.details.{memo}", {})
        named = ("gate", "--model", str(folder), "--device", "cpu")
        code = run(gate, *named, *chain(*words), *options)
    return Gated(code, out.getvalue(), err.getvalue(), below / "out")


@pytest.fixture
def gated(tmp_path: Path) -> Callable[..., Gated]:
    """Return a function that runs `mtp-conformance gate` on a folder, as `gate_on`."""
    return lambda folder, *options, **usual: gate_on(folder, tmp_path, *options, **usual)


@pytest.fixture(scope="session")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Gated:
    """Return one whole run on a good checkpoint, K=1 and 2, for tests that look at it."""
    return gate_on(QWEN, tmp_path_factory.mktemp("plain"), k="1,2")
