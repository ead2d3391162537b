"""Safetensors files by their format alone: arrays by their bytes, and the metadata.

The format is a little-endian uint64, a JSON header of that many bytes, and the data. Reading it so
takes types that mlx has no arrays of (`golden/oracle` is in float64), and loses nothing.
"""

from __future__ import annotations

import hashlib
import json
import struct
from pathlib import Path
from typing import Any

from mtp_conformance.golden.contents import Array, GoldenError

_DTYPES = {
    "BOOL": "bool",
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "I64": "int64",
    "I32": "int32",
    "U32": "uint32",
    "U8": "uint8",
}


def read_arrays(file: Path) -> tuple[dict[str, Array], dict[str, str]]:
    """Arrays by name, and the metadata.

    Raises:
        GoldenError: it is no safetensors file.
    """
    content = file.read_bytes()
    try:
        (size,) = struct.unpack("<Q", content[:8])
        header: dict[str, Any] = json.loads(content[8 : 8 + size])
        metadata: dict[str, str] = header.pop("__metadata__", {})
        data = content[8 + size :]
        return {name: _array(entry, data) for name, entry in header.items()}, metadata
    except (ValueError, KeyError, TypeError, AttributeError, struct.error) as error:
        raise GoldenError(f"{file}: it is no safetensors file: {error}") from error


def _array(entry: dict[str, Any], data: bytes) -> Array:
    start, end = entry["data_offsets"]
    if not 0 <= start <= end <= len(data):
        raise ValueError(f"it ends before byte {end} of its data")
    part = data[start:end]
    digest = hashlib.sha256(part).hexdigest()
    return Array(_DTYPES[entry["dtype"]], tuple(entry["shape"]), digest, part)
