"""Where each expert's weights lie, in any of three layouts.

| layout | tensors below `layers.I.mlp.` |
|---|---|
| fused (Hugging Face) | `experts.gate_up_proj` [E, 2F, H], gate first; `down_proj` [E, H, F] |
| one by one (Hugging Face) | `experts.N.gate_proj.weight` [F, H], `up_proj`, `down_proj` [H, F] |
| stacked (mlx-lm) | `switch_mlp.gate_proj.weight` [E, F, H], and `scales`, `biases` if quantised |

A layer of the head is one below `mtp.`. An expert of any layout is a few runs of bytes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import mlx.core as mx

from mtp_decoder.errors import CheckpointError
from mtp_decoder.experts.shards import DTYPES, Piece, Shards, Stored

_NAME = re.compile(
    r"(?P<before>.*?)layers\.(?P<layer>\d+)\.mlp\.(?P<rest>(experts|switch_mlp)\..*)"
)
_FUSED = {
    "gate_proj.weight": ("experts.gate_up_proj", 0),
    "up_proj.weight": ("experts.gate_up_proj", 1),
    "down_proj.weight": ("experts.down_proj", None),
}
"""Where parts lie in the fused layout, and which half of it they are."""


@dataclass(frozen=True)
class Part:
    """One array of an expert: its shape without the expert axis, and its dtype."""

    shape: tuple[int, ...]
    dtype: mx.Dtype

    @property
    def nbytes(self) -> int:
        """Bytes of one expert's array."""
        size = self.dtype.size
        for extent in self.shape:
            size *= extent
        return size


def expert_tensors(shards: Shards, *, head: bool) -> dict[int, dict[str, Stored]]:
    """The tensors of routed experts by layer, named from `experts.` or `switch_mlp.` on."""
    found: dict[int, dict[str, Stored]] = {}
    for name, stored in shards.tensors.items():
        match = _NAME.fullmatch(name)
        if match and ("mtp." in match["before"]) == head:
            found.setdefault(int(match["layer"]), {})[match["rest"]] = stored
    return found


def pieces_of(
    tensors: Mapping[str, Stored], parts: Mapping[str, Part], count: int, where: str
) -> list[dict[str, list[Piece]]]:
    """For each of `count` experts of a layer the bytes of every part.

    Args:
        tensors: the layer's, from `expert_tensors`.
        parts: `gate_up` and `down`, or mlx-lm's `gate_proj.weight` and the like.
        count: number of experts.
        where: names the layer in an error.

    Raises:
        CheckpointError: a tensor is missing, or has another dtype or size than the model's.
    """
    made = [{name: _pieces(tensors, name, e, where) for name in parts} for e in range(count)]
    for expert in made:
        for name, (pieces, dtypes) in expert.items():
            part = parts[name]
            stored = sum(piece.nbytes for piece in pieces)
            if stored != part.nbytes or any(DTYPES.get(d) != part.dtype for d in dtypes):
                kind = str(part.dtype).removeprefix("mlx.core.")
                raise CheckpointError(
                    f"{where}: {name} of an expert is {stored} bytes of {' and '.join(dtypes)}, "
                    f"the model computes with {part.nbytes} of {kind}; offload needs them as stored"
                )
    return [{name: pieces for name, (pieces, _) in expert.items()} for expert in made]


_Found = tuple[list[Piece], list[str]]


def _pieces(tensors: Mapping[str, Stored], part: str, expert: int, where: str) -> _Found:
    """The runs of bytes of a part, and their dtypes."""
    part = {"down": "down_proj.weight"}.get(part, part)
    if part == "gate_up":
        halves = (_pieces(tensors, f"{half}_proj.weight", expert, where) for half in ("gate", "up"))
        (gate, dtypes), (up, others) = halves
        return gate + up, list(dict.fromkeys(dtypes + others))
    stacked, single = f"switch_mlp.{part}", f"experts.{expert}.{part}"
    if stacked in tensors:
        return _slice(tensors[stacked], expert)
    if single in tensors:
        stored = tensors[single]
        return [Piece(stored.file, stored.start, stored.nbytes)], [stored.dtype]
    fused, half = _FUSED.get(part, ("", None))
    if fused not in tensors:
        raise CheckpointError(f"{where}: the checkpoint lacks {part} of expert {expert}")
    pieces, dtypes = _slice(tensors[fused], expert)
    return pieces if half is None else [_half(pieces[0], half)], dtypes


def _half(piece: Piece, which: int) -> Piece:
    size = piece.nbytes // 2
    return Piece(piece.file, piece.start + which * size, size)


def _slice(stored: Stored, expert: int) -> _Found:
    """One expert of a tensor [E, ...]; of none that has fewer, bytes of length 0."""
    each = stored.nbytes // stored.shape[0] if expert < stored.shape[0] else 0
    return [Piece(stored.file, stored.start + expert * each, each)], [stored.dtype]
