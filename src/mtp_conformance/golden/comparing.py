"""What differs between two goldens, said in terms of models, quantities, elements and ULPs.

One comparison stands behind `golden check` (stored and decoded again), `golden update` (old and
new) and `golden diff` (two git revisions).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mtp_conformance.golden.contents import Array, Arrays, Tokens, component_of
from mtp_conformance.tokens import first_difference

_SIGN_BITS = {"float32": 31, "bfloat16": 15, "float16": 15}
_WORDS = {1: "<u1", 2: "<u2", 4: "<u4", 8: "<u8"}


@dataclass(frozen=True)
class Change:
    """One quantity that is not the same on both sides.

    Attributes:
        name: of the checkpoint, `gdn-float32`.
        quantity: what is compared: `tokens`, `checkpoint`, or a component of the state.
        where: which one of them: `code/mixed/2/layers.0.recurrent`.
        what: how it differs, in words.
        elements: how many of it do; None where only hashes are known.
        of: how many there are.
        ulp: the largest distance in representable values; None for anything but floats that are
            stored in full on both sides.
        files: of the golden folder, that the change is in; a folder's name ends with a slash.
    """

    name: str
    quantity: str
    where: str
    what: str
    elements: int | None
    of: int
    ulp: int | None = None
    files: tuple[str, ...] = ()


def compare_tokens(name: str, old: Tokens, new: Tokens) -> Iterator[Change]:
    """Prompts, streams and rounds, and how clear they are said to be."""
    clear = {vector.id: vector.clear_by for vector in old.vectors}
    for vector in new.vectors:
        was = clear.get(vector.id, vector.clear_by)
        if was != vector.clear_by:
            what = f"{was} became {vector.clear_by}"
            yield Change(name, "tokens", f"{vector.id}/clear_by", what, 1, 1)
    before, after = dict(_lists_of(old)), dict(_lists_of(new))
    for where in (*before, *(where for where in after if where not in before)):
        a, b = before.get(where), after.get(where)
        if a is None or b is None:
            count = len(a or b or ())
            what = "is new" if a is None else "is gone"
            yield Change(name, "tokens", where, what, count, count)
        elif a != b:
            at = first_difference(b, a)
            pairs = zip(a, b, strict=False)
            count = sum(x != y for x, y in pairs) + abs(len(a) - len(b))
            what = f"{_at(a, at)} became {_at(b, at)} at index {at}"
            yield Change(name, "tokens", where, what, count, max(len(a), len(b)))


def _at(tokens: Sequence[int], index: int | None) -> str:
    inside = index is not None and index < len(tokens)
    return str(tokens[index]) if inside and index is not None else "nothing"


def _lists_of(tokens: Tokens) -> Iterator[tuple[str, Sequence[int]]]:
    for vector in tokens.vectors:
        yield f"{vector.id}/prompt", vector.prompt
        yield f"{vector.id}/stream", vector.stream
        for script in vector.scripts:
            for number, played in enumerate(script.rounds, start=1):
                at = f"{vector.id}/{script.id}/{number}"
                yield f"{at}/drafts", played.drafts
                yield f"{at}/emitted", played.emitted
                yield f"{at}/accepted", (played.accepted,)
                yield f"{at}/held", (played.target_tokens, played.head_pairs)


def compare_arrays(name: str, old: Arrays, new: Arrays, quantity: str = "") -> Iterator[Change]:
    """Arrays by name; `quantity` stands for their components' names if it is given."""
    for where in (*old, *(where for where in new if where not in old)):
        kind = quantity or component_of(where)
        if where not in new:
            count = old[where].elements
            yield Change(name, kind, where, "is gone", count, count)
        elif where not in old:
            count = new[where].elements
            yield Change(name, kind, where, "is new", count, count)
        elif old[where].same != new[where].same:
            yield _array_change(name, kind, where, old[where], new[where])


def _array_change(name: str, kind: str, where: str, old: Array, new: Array) -> Change:
    size = new.elements
    if (old.dtype, old.shape) != (new.dtype, new.shape):
        what = f"{_header(old)} became {_header(new)}"
        return Change(name, kind, where, what, size, size)
    if old.data is None or new.data is None:
        return Change(name, kind, where, "has another hash; not stored in full", None, size)
    a, b = _words(old), _words(new)
    differing = np.flatnonzero(a != b)
    first = tuple(int(i) for i in np.unravel_index(differing[0], old.shape)) if old.shape else ()
    bits = [f"0x{int(words[differing[0]]):0{2 * words.itemsize}x}" for words in (a, b)]
    what = f"{bits[0]} became {bits[1]} at {first}"
    return Change(name, kind, where, what, len(differing), size, _most_ulps(a, b, old.dtype))


def _header(array: Array) -> str:
    return f"{array.dtype}{list(array.shape)}"


def _words(array: Array) -> NDArray[np.unsignedinteger]:
    assert array.data is not None
    return np.frombuffer(array.data, dtype=_WORDS[len(array.data) // array.elements])


def _most_ulps(
    old: NDArray[np.unsignedinteger], new: NDArray[np.unsignedinteger], dtype: str
) -> int | None:
    """Largest distance, counted in representable values; None for what is no float."""
    if dtype not in _SIGN_BITS:
        return None
    a, b = (_ordered(words, _SIGN_BITS[dtype]) for words in (old, new))
    return int(np.abs(a - b).max())


def _ordered(words: NDArray[np.unsignedinteger], sign_bit: int) -> NDArray[np.int64]:
    """Bits of floats as integers that grow with the value; both zeros are 0."""
    sign = np.int64(1) << sign_bit
    wide = words.astype(np.int64)
    return np.where(wide & sign, -(wide ^ sign), wide)


def in_words(changes: Iterable[Change], *, every: bool = False) -> list[str]:
    """Lines to review: per checkpoint and quantity how many differ, and the first of them.

    Args:
        changes: what was found.
        every: a line for each change instead.
    """
    groups: dict[tuple[str, str], list[Change]] = {}
    for change in changes:
        groups.setdefault((change.name, change.quantity), []).append(change)
    lines: list[str] = []
    for (name, quantity), members in groups.items():
        if every:
            lines += [f"{name}: {quantity}: {_one(member)}" for member in members]
        else:
            lines.append(f"{name}: {quantity}: {_together(members)}")
    return lines


def _one(change: Change) -> str:
    return f"{change.where} {change.what}{_count(change.elements, change.of, change.ulp)}"


def _together(changes: Sequence[Change]) -> str:
    if len(changes) == 1:
        return _one(changes[0])
    known = [c for c in changes if c.elements is not None]
    ulps = [c.ulp for c in known if c.ulp is not None]
    elements = sum(c.elements or 0 for c in known) if known else None
    total = sum(c.of for c in known or changes)
    count = _count(elements, total, max(ulps, default=None), hashed=len(changes) - len(known))
    first = changes[0]
    return f"{len(changes)} differ{count}; first: {first.where} {first.what}"


def _count(elements: int | None, of: int, ulp: int | None, *, hashed: int = 0) -> str:
    parts = [f"{elements} of {of} elements" if elements is not None else f"{of} elements"]
    if ulp is not None:
        parts.append(f"at most {ulp} ULP")
    if hashed and elements is not None:
        parts.append(f"{hashed} more known by hash alone")
    return f" ({', '.join(parts)})"


def as_records(changes: Iterable[Change]) -> list[Mapping[str, object]]:
    """The changes for JSON."""
    return [vars(change) for change in changes]
