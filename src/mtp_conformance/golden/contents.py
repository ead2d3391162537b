"""What a golden folder holds, as values: prompts, streams, rounds, arrays.

`golden/README.md` says what each one means; the names of fields are those of the files.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import mlx.core as mx

VERSION = 1
"""Of the format: of the files' fields and of what they mean."""

STORED_BYTES = 256
"""An array of at most so many bytes is stored in full anywhere."""

STORED_WHOLE = ("code/prefill/", "code/mixed/7/")
"""Where arrays of any size are stored in full: at the beginning, and after many rewinds."""

DTYPES = ("float32", "bfloat16")


class GoldenError(Exception):
    """A golden that is refused; the message names the file and says what to do."""


class OtherFormat(GoldenError):
    """A golden of another version of the format than this one reads."""


@dataclass(frozen=True)
class Round:
    """One verify pass with given drafts.

    Attributes:
        drafts: the K token ids that are verified.
        accepted: a, how many of them stand.
        emitted: the a+1 token ids that the round emits.
        target_tokens: tokens in the target's caches after it.
        head_pairs: pairs in the head's cache after it.
    """

    drafts: tuple[int, ...]
    accepted: int
    emitted: tuple[int, ...]
    target_tokens: int
    head_pairs: int


@dataclass(frozen=True)
class Script:
    """Rounds one after the other, from the prefilled prompt on."""

    id: str
    rounds: tuple[Round, ...]


@dataclass(frozen=True)
class Vector:
    """A prompt and what is decoded from it.

    Attributes:
        id: its name within the model.
        prompt: token ids.
        stream: what K=0 emits, the prefill's token first.
        clear_by: at each of its rows the chosen token's logit lies at least this far above every
            logit that is not equal to it.
        scripts: rounds from this prompt.
    """

    id: str
    prompt: tuple[int, ...]
    stream: tuple[int, ...]
    clear_by: float
    scripts: tuple[Script, ...]


@dataclass(frozen=True)
class Tokens:
    """The token golden of a checkpoint: float32 anywhere, bfloat16 where MLX rounds."""

    model: str
    dtype: str
    vectors: tuple[Vector, ...]

    @property
    def name(self) -> str:
        """Name of the checkpoint: `gdn-float32`."""
        return f"{self.model}-{self.dtype}"


@dataclass(frozen=True)
class Array:
    """An array by its bytes: row-major, little-endian, without padding.

    Attributes:
        dtype: mlx's name of it, `bfloat16`.
        shape: empty for a scalar.
        sha256: of the bytes, in hexadecimal digits.
        data: the bytes; None where only the hash is known.
    """

    dtype: str
    shape: tuple[int, ...]
    sha256: str
    data: bytes | None = field(default=None, repr=False)

    @property
    def same(self) -> tuple[str, tuple[int, ...], str]:
        """What two equal arrays have in common."""
        return self.dtype, self.shape, self.sha256

    @property
    def elements(self) -> int:
        """How many there are."""
        count = 1
        for extent in self.shape:
            count *= extent
        return count


Arrays = Mapping[str, Array]
"""Arrays by name: `code/logits`, `code/prefill/layers.0.conv`, `code/mixed/2/layers.0.conv`."""


@dataclass(frozen=True)
class Machine:
    """What float values depend on.

    Attributes:
        backend: device, system and processor family: `cpu-linux-x86_64`.
        mlx: version.
        made_on: what else may matter, by name: the C library, the processor.
    """

    backend: str
    mlx: str
    made_on: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def key(self) -> str:
        """What float goldens are kept by: `cpu-linux-x86_64-mlx-0.32.4`."""
        return f"{self.backend}-mlx-{self.mlx}"


@dataclass(frozen=True)
class Floats:
    """The float golden of a checkpoint on one backend and version of mlx."""

    model: str
    dtype: str
    machine: Machine
    arrays: Arrays


def array_of(array: mx.array) -> Array:
    """An array of mlx by its bytes."""
    data = bytes(memoryview(cast("Any", array)))
    dtype = str(array.dtype).removeprefix("mlx.core.")
    return Array(dtype, tuple(array.shape), hashlib.sha256(data).hexdigest(), data)


def component_of(name: str) -> str:
    """What kind of array a name is of: `recurrent`, `head keys`, `logits`."""
    last = name.rpartition("/")[2]
    component = last.rpartition(".")[2]
    return f"head {component}" if last.startswith("head.") else component
