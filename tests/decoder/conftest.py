"""Fixtures of the decoder's tests: zoo models from checkpoints of theirs, sessions and streams."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import mlx.core as mx
import pytest

from mtp_decoder import Session, make_prompt_cache
from mtp_decoder.qwen.load import Loaded, load
from reference_models.checkpoint import read, write_zoo
from reference_models.hybrid import HybridModel
from reference_models.mtp import MTPHead
from tests.decoder.command_line import CommandLine
from tests.decoder.helpers import PROMPT, Plain

mx.set_default_device(mx.cpu)

Zoo = Callable[..., tuple[HybridModel, MTPHead]]


class Decoding(NamedTuple):
    """A session after its prompt, and the prompt cache it works in."""

    session: Session
    cache: list[Any]
    target: HybridModel
    head: MTPHead


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Return a function from a zoo model's name and dtype to its checkpoint folder."""
    root = tmp_path_factory.mktemp("checkpoints")

    @cache
    def folder(name: str, dtype: mx.Dtype = mx.float32) -> Path:
        return write_zoo(name, root / f"{name}-{dtype}", dtype)

    return folder


@pytest.fixture(scope="session")
def zoo(checkpoint: Callable[..., Path]) -> Zoo:
    """Return a function from a zoo model's name and dtype to its target and head."""

    @cache
    def models(name: str, dtype: mx.Dtype = mx.float32) -> tuple[HybridModel, MTPHead]:
        return read(checkpoint(name, dtype))

    return models


@pytest.fixture(scope="session")
def qwen(checkpoint: Callable[..., Path]) -> Callable[[str], Loaded]:
    """Return a function from a zoo model's name to mlx-lm's model of it, and the head."""

    @cache
    def models(name: str) -> Loaded:
        return load(checkpoint(name))

    return models


@pytest.fixture(scope="session")
def plain(zoo: Zoo) -> Callable[..., Plain]:
    """Return a function from a zoo model's name to its run without drafts."""

    @cache
    def run(name: str, dtype: mx.Dtype = mx.float32) -> Plain:
        return Plain(zoo(name, dtype)[0])

    return run


@pytest.fixture
def decoding(zoo: Zoo) -> Callable[..., Decoding]:
    """Return a function that prefills a zoo model in a prompt cache of its own."""

    def start(name: str, **options: Any) -> Decoding:
        target, head = zoo(name)
        caches = make_prompt_cache(target, head)
        session = Session(target, head, prompt_cache=caches, **options)
        session.prefill(PROMPT)
        return Decoding(session, caches, target, head)

    return start


@pytest.fixture(scope="session")
def fork(zoo: Zoo) -> Callable[..., Session]:
    """Return a function that forks a prefilled session of a zoo model: cheaper than a prefill."""

    @cache
    def prefilled(name: str) -> Session:
        session = Session(*zoo(name))
        session.prefill(PROMPT)
        return session

    def make(name: str, rewind: str = "tape", head_rows: str = "draft") -> Session:
        session = prefilled(name).fork()
        session.decode_with(rewind=rewind, head_rows=head_rows)
        return session

    return make


@pytest.fixture
def generate(capsys: pytest.CaptureFixture[str]) -> CommandLine:
    """Return a function that runs `python -m mtp_decoder generate` on a folder."""
    return CommandLine(capsys)


@pytest.fixture
def folder(tmp_path: Path, checkpoint: Callable[..., Path]) -> Callable[..., Path]:
    """Return a function that copies a zoo model's checkpoint, to be taken apart."""

    def copy(name: str, dtype: mx.Dtype = mx.float32) -> Path:
        return Path(shutil.copytree(checkpoint(name, dtype), tmp_path / name))

    return copy
