"""The semantic difference: which model, which quantity, how many elements, how many ULPs."""

from dataclasses import replace

import mlx.core as mx
import numpy as np
import pytest

from mtp_conformance.golden.comparing import (
    Change,
    compare_arrays,
    compare_tokens,
    in_words,
)
from mtp_conformance.golden.contents import Array, Round, Script, Tokens, Vector, array_of

STREAM = Vector(
    "code", (1, 2), (3, 4, 5), 0.01, (Script("mixed", (Round((4,), 1, (4, 5), 4, 3),)),)
)
TOKENS = Tokens("gdn", "float32", (STREAM,))


def _bits(*words: int) -> Array:
    return array_of(mx.array(np.array(words, np.uint32)).view(mx.float32))


def _one(old: Array, new: Array) -> Change:
    (change,) = compare_arrays("gdn-float32", {"code/logits": old}, {"code/logits": new})
    return change


@pytest.mark.parametrize(
    ("old", "new", "elements", "ulp"),
    [
        ((0x3F800000, 0x40000000), (0x3F800001, 0x40000000), 1, 1),
        ((0x3F800000, 0x40000000), (0x3F7FFFFF, 0x40000003), 2, 3),
        ((0x00000001,), (0x80000001,), 1, 2),  # from the least positive to the least negative
        ((0x00000000,), (0x80000000,), 1, 0),  # both zeros: another bit, no distance
    ],
)
def test_ulps(old: tuple[int, ...], new: tuple[int, ...], elements: int, ulp: int) -> None:
    """Elements that differ are counted, and the farthest is measured in representable values."""
    change = _one(_bits(*old), _bits(*new))
    assert (change.elements, change.of, change.ulp) == (elements, len(old), ulp)


def test_bfloat16_has_its_own_ulp() -> None:
    """One step of bfloat16 is one ULP."""
    words = [mx.array([bits], mx.uint16).view(mx.bfloat16) for bits in (0x3F80, 0x3F81)]
    assert _one(*map(array_of, words)).ulp == 1


def test_equal_arrays_are_no_change() -> None:
    """The same bits are no difference, and equal values in other bits are."""
    assert not list(compare_arrays("x", {"a/logits": _bits(5)}, {"a/logits": _bits(5)}))
    assert _one(_bits(0), _bits(0x80000000)).what == "0x00000000 became 0x80000000 at (0,)"


def test_integers_have_no_ulp() -> None:
    """An offset differs by elements alone."""
    pair = (array_of(mx.array(n, mx.int32)) for n in (3, 4))
    change = _one(*pair)
    assert (change.elements, change.ulp) == (1, None)
    assert change.what == "0x00000003 became 0x00000004 at ()"


def test_shape_and_type() -> None:
    """Arrays of other shapes or types are said to be that."""
    one, other = array_of(mx.zeros((2, 3))), array_of(mx.zeros((3, 2), mx.bfloat16))
    assert _one(one, other).what == "float32[2, 3] became bfloat16[3, 2]"


def test_hash_alone() -> None:
    """Where only hashes are known, no count is made up."""
    change = _one(replace(_bits(1), data=None), _bits(2))
    assert (change.elements, change.of, change.ulp) == (None, 1, None)
    assert change.what == "has another hash; not stored in full"


def test_arrays_that_come_and_go() -> None:
    """A name that one side lacks is a change."""
    changes = list(
        compare_arrays("x", {"a/prefill/layers.0.conv": _bits(1)}, {"a/logits": _bits(1)})
    )
    assert [(c.quantity, c.what) for c in changes] == [("conv", "is gone"), ("logits", "is new")]


def test_tokens_by_index() -> None:
    """Streams and rounds name the first index, and what became of it."""
    other = replace(STREAM, stream=(3, 9, 5), scripts=(Script("mixed", ()),))
    changes = list(compare_tokens("gdn-float32", TOKENS, replace(TOKENS, vectors=(other,))))
    assert [(c.where, c.what, c.elements, c.of) for c in changes] == [
        ("code/stream", "4 became 9 at index 1", 1, 3),
        ("code/mixed/1/drafts", "is gone", 1, 1),
        ("code/mixed/1/emitted", "is gone", 2, 2),
        ("code/mixed/1/accepted", "is gone", 1, 1),
        ("code/mixed/1/held", "is gone", 2, 2),
    ]


def test_shorter_stream() -> None:
    """A stream that ends early differs where it ends."""
    other = replace(TOKENS, vectors=(replace(STREAM, stream=(3, 4)),))
    (change,) = compare_tokens("gdn-float32", TOKENS, other)
    assert (change.what, change.elements) == ("5 became nothing at index 2", 1)


@pytest.mark.parametrize(
    "changed",
    [
        {"prompt": (1, 3)},
        {"stream": (3, 4, 6)},
        {"scripts": (Script("mixed", (Round((9,), 1, (4, 5), 4, 3),)),)},
        {"scripts": (Script("mixed", (Round((4,), 0, (4, 5), 4, 3),)),)},
        {"scripts": (Script("mixed", (Round((4,), 1, (4, 6), 4, 3),)),)},
        {"scripts": (Script("mixed", (Round((4,), 1, (4, 5), 5, 3),)),)},
        {"scripts": (Script("mixed", (Round((4,), 1, (4, 5), 4, 2),)),)},
    ],
)
def test_every_field_is_compared(changed: dict[str, object]) -> None:
    """No list or count of a token golden can change unseen."""
    other = replace(TOKENS, vectors=(replace(STREAM, **changed),))
    assert len(list(compare_tokens("gdn-float32", TOKENS, other))) == 1


def test_words() -> None:
    """Many changes of a quantity are one line, with totals and the first of them."""
    names = [f"code/mixed/{n}/layers.0.recurrent" for n in (1, 2, 3)]
    old = dict.fromkeys(names, _bits(1, 2))
    new = {names[0]: _bits(1, 4), names[1]: _bits(1, 3), names[2]: replace(_bits(9), data=None)}
    new[names[2]] = replace(new[names[2]], shape=(2,))
    changes = list(compare_arrays("gdn-float32", old, new))
    assert in_words(changes) == [
        "gdn-float32: recurrent: 3 differ (2 of 4 elements, at most 2 ULP, 1 more known by hash "
        "alone); first: code/mixed/1/layers.0.recurrent 0x00000002 became 0x00000004 at (1,)"
    ]
    assert len(in_words(changes, every=True)) == 3
