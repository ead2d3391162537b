"""Sessions as files: one safetensors file, whole or not there.

A file holds everything of a session that decoding depends on: caches of target and head, the
hidden that waits for the next draft, the tokens so far, strategy and policies. Rows beyond the
frontier are left out, so no rejected draft is in a file. What is no data is not in it either:
model, sampler and logits processors are those of the session that restores.

| metadata | content |
|---|---|
| `format`, `version` | `mtp-decoder-session`, `1` |
| `session` | JSON: model, settings, caches with arrays by name, a checksum an array |
| `checksum` | of that JSON |
"""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import mlx.core as mx
from mlx_lm.models.cache import CacheList, KVCache, QuantizedKVCache

from mtp_decoder.errors import SessionFileError
from mtp_decoder.target import Head, Target
from mtp_decoder.window import forward

FORMAT, VERSION = "mtp-decoder-session", "1"
_PROBED_TOKENS = 8
_Json = dict[str, Any]


@dataclass(frozen=True)
class SavedSession:
    """What a file holds.

    Attributes:
        model: fingerprint of target and head.
        settings: strategy, policies and sizes, as JSON values.
        history: every token, the anchor last.
        caches: target's, head's and the frontier's, in the order of a prompt cache.
    """

    model: str
    settings: Mapping[str, Any]
    history: tuple[int, ...]
    caches: Sequence[Any]


def fingerprint(target: Target, head: Head | None) -> str:
    """What tells two models apart: the bits of a short pass through target and head.

    They differ between devices and versions of mlx too, where a session would not go on to the
    bit either.
    """
    tokens = mx.arange(min(_PROBED_TOKENS, target.vocab_size))[None]
    hidden = forward(target, tokens, target.make_cache())
    results = [target.logits(hidden)]
    if head is not None:
        results += head(hidden, tokens, head.make_cache())
    digest = hashlib.sha256()
    for array, content in zip(results, _bytes(results), strict=True):
        digest.update(f"{array.dtype}{array.shape}".encode())
        digest.update(content)
    return digest.hexdigest()


def write_session(file: Path, saved: SavedSession) -> None:
    """Write a file, or leave what was there before.

    Raises:
        SessionFileError: there is no such folder, or it cannot be written.
    """
    arrays = {"history": mx.array([len(saved.history), *saved.history], mx.int64)}
    caches = [_pack(cache, f"cache.{i}", arrays) for i, cache in enumerate(saved.caches)]
    arrays = {name: mx.contiguous(array) for name, array in arrays.items()}
    document = {
        "model": saved.model,
        "settings": dict(saved.settings),
        "caches": caches,
        "checksums": _checksums(arrays),
    }
    text = json.dumps(document)
    metadata = {"format": FORMAT, "version": VERSION, "session": text, "checksum": _sum(text)}
    # mlx adds the suffix where it is missing, so the name has it.
    part = file.with_name(f".{file.name}.{os.getpid()}.safetensors")
    try:
        mx.save_safetensors(str(part), arrays, metadata)
        with part.open("rb") as written:
            os.fsync(written.fileno())
        part.replace(file)
    except (OSError, RuntimeError) as error:
        raise SessionFileError(f"{file} cannot be written: {error}") from error
    finally:
        part.unlink(missing_ok=True)


def read_session(file: Path, empty: Sequence[Any]) -> SavedSession:
    """Read a file whole; the arrays share nothing with it.

    Args:
        file: where it is.
        empty: a fresh prompt cache of the model, and the same with its rows quantised for every
            entry that can be; classes are taken from here, never from the file.

    Raises:
        SessionFileError: no such file, no whole one, or none of this format and version.
    """
    document = _document(file)
    try:
        arrays = cast("dict[str, mx.array]", mx.load(str(file), format="safetensors"))
        mx.eval(list(arrays.values()))
    except (RuntimeError, ValueError) as error:
        raise SessionFileError(f"{file} is damaged: {error}") from error
    found = _checksums(arrays)
    try:
        if found != document["checksums"]:
            raise SessionFileError(f"{file} is damaged: its arrays are not those that were saved")
        history = cast("list[int]", arrays["history"].tolist())[1:]
        classes = {type(cache).__name__: type(cache) for cache in _with_parts(empty)}
        caches = [_unpack(packed, arrays, classes) for packed in document["caches"]]
        return SavedSession(document["model"], document["settings"], tuple(history), caches)
    except (KeyError, TypeError, AttributeError) as error:
        raise SessionFileError(f"{file} is no saved session of this format: {error!r}") from error


def _document(file: Path) -> _Json:
    """The session's JSON, once the file is known to be whole."""
    try:
        size = file.stat().st_size
        with file.open("rb") as opened:
            length = int.from_bytes(opened.read(8), "little")
            header = opened.read(length) if 8 + length <= size else b""
        tensors = cast("_Json", json.loads(header))
        metadata = tensors.pop("__metadata__", None) or {}
        end = max((tensor["data_offsets"][1] for tensor in tensors.values()), default=0)
    except OSError as error:
        raise SessionFileError(f"{file} cannot be read: {error}") from error
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise SessionFileError(f"{file} is no whole safetensors file: save it anew") from error
    if size != 8 + length + end:
        raise SessionFileError(
            f"{file} has {size} bytes of {8 + length + end}: it was cut off; save it anew"
        )
    if metadata.get("format") != FORMAT:
        raise SessionFileError(f"{file} is no saved session: it was not written by Session.save")
    if metadata.get("version") != VERSION:
        raise SessionFileError(
            f"{file} has format version {metadata.get('version')}, this decoder reads {VERSION}; "
            "save the session with the decoder that will restore it"
        )
    text = str(metadata.get("session"))
    if metadata.get("checksum") != _sum(text):
        raise SessionFileError(f"{file} is damaged: its description is not what was saved")
    return cast("_Json", json.loads(text))


def _with_parts(caches: Sequence[Any]) -> list[Any]:
    found = list(caches)
    for cache in caches:
        if isinstance(cache, CacheList):
            found += _with_parts(cache.caches)
    return found


def _pack(cache: Any, name: str, arrays: dict[str, mx.array]) -> _Json:
    """A cache as JSON, its arrays put beside it under names."""
    if isinstance(cache, CacheList):
        parts = [_pack(part, f"{name}.{i}", arrays) for i, part in enumerate(cache.caches)]
        return {"class": "CacheList", "parts": parts}
    values = dict(vars(cache))
    if isinstance(cache, KVCache | QuantizedKVCache):
        held = cache.offset > 0 and cache.keys is not None
        values["keys"], values["values"] = cache.keys_and_values() if held else (None, None)
    packed = {key: _packed(value, f"{name}.{key}", arrays) for key, value in values.items()}
    return {"class": type(cache).__name__, "values": packed}


def _packed(value: Any, name: str, arrays: dict[str, mx.array]) -> Any:
    if isinstance(value, mx.array):
        if not value.size:  # a file has no place for it
            return {"empty": list(value.shape), "dtype": _name_of(value.dtype)}
        arrays[name] = value
        return {"array": name}
    if isinstance(value, list | tuple):
        items = cast("Sequence[Any]", value)
        return {"list": [_packed(item, f"{name}.{i}", arrays) for i, item in enumerate(items)]}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise SessionFileError(f"cannot save {name}: a {type(value).__name__} has no place in a file")


def _unpack(packed: _Json, arrays: Mapping[str, mx.array], classes: Mapping[str, Any]) -> Any:
    if packed["class"] not in classes:
        raise SessionFileError(
            f"the file holds a {packed['class']}, which this model has none of; "
            "it is of another model, or of other kv_bits"
        )
    if packed["class"] == "CacheList":
        return CacheList(*(_unpack(part, arrays, classes) for part in packed["parts"]))
    cache = object.__new__(classes[packed["class"]])
    for name, value in packed["values"].items():
        setattr(cache, name, _unpacked(value, arrays))
    return cache


def _unpacked(value: Any, arrays: Mapping[str, mx.array]) -> Any:
    if not isinstance(value, dict):
        return value
    kept = cast("_Json", value)
    if "array" in kept:
        return arrays[kept["array"]]
    if "list" in kept:
        return [_unpacked(item, arrays) for item in kept["list"]]
    return mx.zeros(kept["empty"], getattr(mx, kept["dtype"]))


def _name_of(dtype: mx.Dtype) -> str:
    return str(dtype).removeprefix("mlx.core.")


def _sum(text: str) -> str:
    return str(zlib.crc32(text.encode()))


def _checksums(arrays: Mapping[str, mx.array]) -> dict[str, int]:
    return dict(zip(arrays, map(zlib.crc32, _bytes(list(arrays.values()))), strict=True))


def _bytes(arrays: Sequence[mx.array]) -> Iterator[bytes]:
    """The memory of one array after the other; all are evaluated first, as a mere read would do."""
    ready = [mx.contiguous(array) for array in arrays]
    mx.eval(ready)
    for array in ready:
        yield memoryview(cast("Any", array)).tobytes()
