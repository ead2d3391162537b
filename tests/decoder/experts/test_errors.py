"""Experts that cannot be read: what is said, and that nothing else breaks."""

from __future__ import annotations

import gc
import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from mtp_conformance.exactness import require_equal
from mtp_conformance.interrupting import interrupted_read
from mtp_decoder import CheckpointError, DecoderError, Session
from mtp_decoder.errors import ExpertReadError
from mtp_decoder.experts import OffloadSettings, Shards, offload
from mtp_decoder.qwen.load import load
from reference_models.checkpoint import read
from tests.decoder.experts.conftest import Offloaded, open_offloaded
from tests.decoder.helpers import PROMPT

FILE = "model.safetensors"
Folder = Callable[..., Path]


def as_any(model: tuple[Any, Any]) -> tuple[Any, Any]:
    """Target and head, whose experts may be looked at."""
    return model


def descriptors() -> int:
    """How many files this process has open."""
    return len(list(Path("/dev/fd").iterdir()))


def test_a_missing_shard(folder: Folder) -> None:
    """A shard that the index lists and the folder lacks is named."""
    path = folder("gdn-moe")
    index = {"weight_map": {"a": FILE, "b": "model-00002-of-00002.safetensors"}}
    (path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(CheckpointError, match=r"lacks model-00002-of-00002\.safetensors, which"):
        load(path, OffloadSettings(10**6))


def test_several_shards(folder: Folder) -> None:
    """Experts are found in whichever shard holds them."""
    path = folder("gdn-moe")
    tensors: Any = mx.load(str(path / FILE))
    names = sorted(tensors)
    parts = {"model-00001-of-00002.safetensors": names[::2]}
    parts["model-00002-of-00002.safetensors"] = names[1::2]
    for file, kept in parts.items():
        mx.save_safetensors(str(path / file), {n: tensors[n] for n in kept}, {"format": "pt"})
    listed = {name: file for file, kept in parts.items() for name in kept}
    (path / FILE).unlink()
    (path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": listed}))
    target, head = load(path, OffloadSettings(10**5))
    Session(target, head).prefill(PROMPT)


def test_a_tensor_in_two_shards(folder: Folder) -> None:
    """A tensor that two files hold is refused: nobody knows which of them is the model's."""
    path = folder("gdn-moe")
    shutil.copy(path / FILE, path / "old.safetensors")
    with pytest.raises(CheckpointError, match=r"in model\.safetensors and in old\.safetensors"):
        load(path, OffloadSettings(10**6))


@pytest.mark.parametrize(
    ("size", "said"),
    [(4, "its header is cut short"), (2000, "its header is cut short"), (-1, "it was cut short")],
)
def test_a_truncated_shard(folder: Folder, size: int, said: str) -> None:
    """A shard that ends inside its header, or one byte too early, is named before any use."""
    path = folder("gdn-moe") / FILE
    os.truncate(path, size if size > 0 else path.stat().st_size + size)
    with pytest.raises(CheckpointError, match=said) as refusal:
        load(path.parent, OffloadSettings(10**6))
    assert str(path) in str(refusal.value)


@pytest.mark.parametrize("content", [b"\x02" + bytes(7) + b"[]", b"\x02" + bytes(7) + b"{]"])
def test_no_safetensors_file(tmp_path: Path, content: bytes) -> None:
    """A file with another content is no shard."""
    (tmp_path / FILE).write_bytes(content)
    with pytest.raises(CheckpointError, match="is no safetensors file"):
        Shards(tmp_path)


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"weight_map": 3}'])
def test_a_broken_index(tmp_path: Path, text: str) -> None:
    """An index without a weight map is named."""
    (tmp_path / "model.safetensors.index.json").write_text(text)
    with pytest.raises(CheckpointError, match="has no weight_map"):
        Shards(tmp_path)


def test_no_shard(tmp_path: Path) -> None:
    """A folder without safetensors has no experts to read."""
    with pytest.raises(CheckpointError, match=r"has no \*\.safetensors to read experts from"):
        Shards(tmp_path)


def test_a_shard_that_cannot_be_opened(tmp_path: Path) -> None:
    """What cannot be opened is named, with the system's reason."""
    (tmp_path / FILE).symlink_to(tmp_path / "nowhere")
    with pytest.raises(CheckpointError, match=r"cannot be opened: .*No such file"):
        Shards(tmp_path)


def test_a_dtype_the_model_does_not_compute_in(folder: Folder) -> None:
    """Experts in another dtype than the model's cannot be left on disk."""
    path = folder("gdn-moe")
    target, head = as_any(read(path))
    for layer in target.layers:
        experts = layer.mlp.experts
        experts.gate_up = experts.gate_up.astype(mx.float16)
    shards = Shards(path)
    with pytest.raises(CheckpointError, match=r"4096 bytes of F32, the model computes with 2048"):
        offload(target, head, shards, OffloadSettings(10**6))


def test_layers_that_differ(folder: Folder) -> None:
    """Layers whose experts are stored otherwise than the others' are named: slots are for all."""
    path = folder("gdn-moe")
    target, head = as_any(read(path))
    experts = target.layers[2].mlp.experts
    experts.down = experts.down.astype(mx.float16)
    with pytest.raises(CheckpointError, match="experts of layers 0 and 2 differ in down, as with"):
        offload(target, head, Shards(path), OffloadSettings(10**6))


def test_a_missing_expert(folder: Folder) -> None:
    """An expert that the checkpoint lacks is named with its layer."""
    path = folder("gdn-moe")
    target, head = as_any(read(path))
    shards = Shards(path)
    del shards.tensors["model.language_model.layers.3.mlp.experts.down_proj"]
    said = r"layer 3: the checkpoint lacks down_proj\.weight of expert 0"
    with pytest.raises(CheckpointError, match=said):
        offload(target, head, shards, OffloadSettings(10**6))


@pytest.mark.parametrize(("budget", "head_budget"), [(6143, None), (10**6, 6143), (0, None)])
def test_a_budget_for_no_expert(folder: Folder, budget: int, head_budget: int | None) -> None:
    """A budget below one expert is refused with the least that would do; nothing has changed."""
    path = folder("gdn-moe")
    target, head = as_any(read(path))
    experts = target.layers[0].mlp.experts
    with pytest.raises(DecoderError, match=r"budget of \d+ bytes holds no expert: one takes 6144"):
        offload(target, head, Shards(path), OffloadSettings(budget, head_budget))
    assert target.layers[0].mlp.experts is experts


def test_a_model_without_experts(folder: Folder) -> None:
    """A dense model has nothing to leave on disk."""
    with pytest.raises(DecoderError, match="no routed experts that could be left on disk"):
        load(folder("gdn"), OffloadSettings(10**6))


@pytest.mark.parametrize("during", ["prefill", "round", "extend"])
def test_a_short_read(folder: Folder, during: str) -> None:
    """A shard that has become shorter is an error; caches stay, and decoding can go on."""
    path = folder("gdn-moe") / FILE
    content = path.read_bytes()
    model = open_offloaded(path.parent, 2)
    session, twin = (Session(model.target, model.head) for _ in range(2))
    calls: dict[str, Callable[[Session], Any]] = {
        "prefill": lambda s: s.prefill(PROMPT),
        "round": lambda s: s.round(2),
        "extend": lambda s: s.extend([5, 6, 7]),
    }
    if during != "prefill":
        for one in (session, twin):
            one.prefill(PROMPT)
    before = session.state()
    os.truncate(path, 20_000)
    with pytest.raises(ExpertReadError, match=rf"{path} ends at byte \d+, inside an expert"):
        calls[during](session)
    path.write_bytes(content)
    if during != "prefill":
        require_equal(session.state(), before, what="the state before the call")
    calls[during](session)
    calls[during](twin)
    require_equal(session.state(), twin.state(), what="a session that met no error")


def test_an_unreadable_file(offloaded: Callable[..., Offloaded], monkeypatch: Any) -> None:
    """The system's error is passed on with the file's name."""

    def broken(*_: Any) -> int:
        raise OSError(5, "Input/output error")

    store = offloaded("gdn-moe", 2).store
    monkeypatch.setattr(os, "preadv", broken)
    with pytest.raises(ExpertReadError, match=r"model\.safetensors cannot be read: .*Input/output"):
        store.acquire(0, [1])


def test_reads_in_pieces(offloaded: Callable[..., Offloaded], monkeypatch: Any) -> None:
    """A read that gives less than was asked for is gone on with."""
    due = offloaded("gdn-moe", 2).store.acquire(1, [2])[0].stacks
    plain = os.preadv
    monkeypatch.setattr(os, "preadv", lambda f, b, at: plain(f, [b[0][:100]], at))
    store = offloaded("gdn-moe", 2).store
    require_equal(store.acquire(1, [2])[0].stacks, due, what="a read in one")
    assert store.counts.bytes_read == store.expert_bytes


@pytest.mark.parametrize("number", [1, 9])
def test_interrupted_while_reading(offloaded: Callable[..., Offloaded], number: int) -> None:
    """Ctrl-C while workers read: nobody writes afterwards, the round is undone, nothing leaks."""
    target, head, store, head_store = offloaded("gdn-moe", 2)
    session, twin = (Session(target, head) for _ in range(2))
    for one in (session, twin):
        one.prefill(PROMPT)
    before, opened = session.state(), descriptors()
    with pytest.raises(KeyboardInterrupt), interrupted_read(number) as reads:
        session.round(3)
    assert number in reads
    assert all(future.done() for s in (store, head_store) for future in s._reading)  # pyright: ignore[reportPrivateUsage]
    assert descriptors() == opened
    require_equal(session.state(), before, what="the state before the round")
    session.round(3)
    twin.round(3)
    require_equal(session.state(), twin.state(), what="a session that was not interrupted")
    assert len(store.resident) == 2


@pytest.mark.parametrize("during", ["prefill", "extend"])
@pytest.mark.parametrize("number", [2, 9, 38])
def test_a_prompt_interrupted_while_reading(
    offloaded: Callable[..., Offloaded], during: str, number: int
) -> None:
    """Ctrl-C while a layer's buffer is read, the head's too, leaves caches and slots as before."""
    target, head, store, head_store = offloaded("gdn-moe", 2)
    session, twin = (Session(target, head, prefill_step_size=4) for _ in range(2))
    if during == "extend":
        for one in (session, twin):
            one.prefill(PROMPT)
    calls: dict[str, Callable[[Session], Any]] = {
        "prefill": lambda s: s.prefill(PROMPT),
        "extend": lambda s: s.extend(PROMPT[:7]),
    }
    before, resident, opened = session.state(), store.resident, descriptors()
    with pytest.raises(KeyboardInterrupt), interrupted_read(number) as reads:
        calls[during](session)
    assert number in reads
    assert (session.target_length, store.resident, descriptors()) == (
        twin.target_length,
        resident,
        opened,
    )
    assert all(s.whole(0) is None for s in (store, head_store))
    if before:
        require_equal(session.state(), before, what="the state before the call")
    for one in (session, twin):
        calls[during](one)
    require_equal(session.state(), twin.state(), what="a session that was not interrupted")


def test_nobody_writes_after_an_interrupt(
    offloaded: Callable[..., Offloaded], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever was still being read when Ctrl-C came is waited for, or never begun."""
    store, plain = offloaded("gdn-moe", 6).store, os.preadv

    def slow(*arguments: Any) -> int:
        time.sleep(0.03)
        return plain(*arguments)

    monkeypatch.setattr(os, "preadv", slow)
    with pytest.raises(KeyboardInterrupt), interrupted_read(7):  # all are under way
        store.acquire(0, range(6))
    assert [future.done() for future in store._reading] == [True] * 6  # pyright: ignore[reportPrivateUsage]
    assert store.resident == frozenset()


def test_files_are_closed_with_the_model(offloaded: Callable[..., Offloaded]) -> None:
    """When a model goes, the descriptors of its shards go too."""
    gc.collect()
    before = descriptors()
    model = offloaded("gdn-moe", 2)
    assert descriptors() > before
    del model
    gc.collect()
    assert descriptors() == before
