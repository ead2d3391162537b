"""What a wrong state is said to be."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import mlx.core as mx
import pytest

from mtp_conformance import Cell, Oracles
from mtp_conformance.adapters import builtin
from mtp_conformance.details import detailed
from mtp_conformance.diagnosis import Rerun, beyond, diagnose, told
from mtp_conformance.exactness import StateDiffers, require_equal, split_name
from mtp_conformance.minimise import minimise
from mtp_conformance.protocol import Options
from mtp_conformance.report import Failure, Minimal
from reference_models.layout import expected_state
from reference_models.zoo import ZOO
from tests.faults.registry import seeded

ONE = Minimal(5, 1, ((1, 0),))
SAID = [
    (
        "shift-recurrent-ahead",
        "window",
        ONE,
        "layer 1 convolution window is one token ahead of the K/V frontier; "
        "looks like a rewind to a+2 positions",
    ),
    (
        "skip-recurrent-of-one-layer",
        "gdn",
        ONE,
        "layer 4 recurrent state is four tokens ahead of the K/V frontier, at the end of the "
        "verify window: it was not rewound",
    ),
    (
        "restore-to-the-start",
        "window",
        Minimal(5, 2, ((2, 1),)),
        "layer 1 convolution window is two tokens behind the K/V frontier, where it was before "
        "the round: it was put back and the accepted tokens were not run again",
    ),
    (
        "ngram-reset-to-end-of-text",
        "ple",
        ONE,
        "layer 1 n-gram history is all end-of-text: reset, not rewound",
    ),
    (
        "trim-empties-the-recurrence",
        "window",
        ONE,
        "layer 1 convolution window is missing: reset to empty, not rewound",
    ),
    (
        "trim-zeroes-the-recurrence",
        "window",
        ONE,
        "layer 1 recurrent state is all zeros: wiped, not rewound",
    ),
    (
        "restore-rounds-to-half",
        "window",
        ONE,
        "layer 1 recurrent state is the right one rounded to float16: it went through a narrower "
        "type",
    ),
    (
        "rollback-length-never-consumed",
        "window",
        Minimal(5, 1, ((1, 0), (1, 1))),
        "layer 1 convolution window is one token behind the K/V frontier; looks like a rewind to "
        "a positions; one round does not show it, so something of the round before is still in use",
    ),
    (
        "ring-keeps-a-row-less",
        "window",
        Minimal(9, 1, ((1, 0),)),
        "layer 0 keys have one row too few",
    ),
    (
        "skip-head-trim",
        "window",
        ONE,
        "head layer 0 offset is three tokens ahead of the frontier, at the end of the verify "
        "window: it was not rewound",
    ),
]


def _oracles(folder: Path) -> Oracles:
    return Oracles(builtin.make_runtime(), builtin.zoo_materials(folder))


def _cell(model: str) -> Cell:
    return Cell(model, "tape", 1, 0, "float32", 5)


@pytest.mark.parametrize(("fault", "model", "minimal", "said"), SAID, ids=[s[0] for s in SAID])
def test_the_mistake_is_named(
    fault: str,
    model: str,
    minimal: Minimal,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The sentence says which state it is, in the words of the field."""
    seeded()[fault].apply(monkeypatch)
    assert diagnose(_oracles(tmp_path), _cell(model), minimal) == said


def test_nothing_is_wrong(tmp_path: Path) -> None:
    """A right decoder has nothing to be said of it, nor have rounds that were never found."""
    oracles = _oracles(tmp_path)
    assert diagnose(oracles, _cell("window"), ONE) is None
    assert diagnose(oracles, _cell("window"), Minimal(5, 1, ())) is None


def test_a_failure_carries_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The failure's message ends with what the wrong state is."""
    seeded()["shift-recurrent-ahead"].apply(monkeypatch)
    for name in ("_found", "_told"):
        monkeypatch.setattr(f"mtp_conformance.details.{name}", {})
    error, failure = AssertionError("differs"), Failure("differs", "command")
    found = detailed(failure, error, _oracles(tmp_path), _cell("window"))
    assert found.message == f"differs; {SAID[0][3]}"


def test_a_fault_of_two_rounds_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The smallest run may end in a step without drafts."""
    seeded()["plain-step-reads-slot-zero"].apply(monkeypatch)
    cell = Cell("window", "snapshot", 2, None, "float32", 5)
    found = minimise(_oracles(tmp_path), cell)
    assert found is not None
    assert found.rounds[1:] == ((0, 0),)


def _rerun(found: mx.array, due: mx.array, name: str = "layers.0.recurrent") -> Rerun:
    after = tuple({name: due + n} for n in (-2.0, -1.0, 0.0, 1.0))
    earlier = {1: {name: due - 7}}
    return Rerun({name: found}, {name: due}, after, earlier, k=2, kept=2, rounds=1)


DUE = mx.array([[1.25, 3.0]])


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (DUE - 7, "is the one of one token before the frontier: an older record was used"),
        (mx.array([[1.25, 3.0 + 2.0**-22]]), "is 1 ULP off: the right tokens, by other arithmetic"),
        (DUE + 100, "matches the state of no other token count"),
        (DUE.astype(mx.bfloat16), "is bfloat16, float32 is due: stored in another type on the way"),
    ],
)
def test_what_an_array_tells(found: mx.array, said: str) -> None:
    """An older record, other arithmetic and other types are told apart."""
    assert told(_rerun(found, DUE)) == f"layer 0 recurrent state {said}"


def test_an_array_that_should_not_be() -> None:
    """An array that is due to be empty is named."""
    rerun = _rerun(DUE, DUE)
    rerun.found["layers.0.pooled"] = DUE
    assert told(rerun) == "layer 0 pooled index keys are there although they are due to be empty"


def test_offsets_speak_for_themselves() -> None:
    """Where no round fails, an offset still says how far the caches are off."""
    with pytest.raises(StateDiffers) as caught:
        require_equal(
            {"layers.0.offset": mx.array(9)}, {"layers.0.offset": mx.array(6)}, what="a prefill"
        )
    assert beyond(caught.value) == "layer 0 holds 9 tokens, three tokens past 6"
    with pytest.raises(StateDiffers) as caught:
        require_equal({"layers.0.keys": DUE}, {"layers.0.keys": DUE + 1}, what="a prefill")
    assert beyond(caught.value) is None


NUMBERED = {
    "keys": "keys are",
    "values": "values are",
    "keys_scales": "scales of the keys are",
    "keys_biases": "biases of the keys are",
    "values_scales": "scales of the values are",
    "values_biases": "biases of the values are",
    "index_keys": "raw index keys are",
    "open_block": "raw index keys of the open block are",
    "pooled": "pooled index keys are",
    "offset": "offset is",
    "index_offset": "index offset is",
    "conv": "convolution window is",
    "recurrent": "recurrent state is",
    "ngram": "n-gram history is",
    "ple_conv": "PLE convolution window is",
    "hidden": "hidden state is",
}


@pytest.mark.parametrize(("component", "subject"), NUMBERED.items())
def test_the_verb_agrees(component: str, subject: str) -> None:
    """Of several the sentence speaks in the plural, of one in the singular."""
    rerun = _rerun(DUE, DUE, f"layers.0.{component}")
    del rerun.found[f"layers.0.{component}"]
    assert told(rerun) == f"layer 0 {subject} missing: reset to empty, not rewound"


def test_every_component_is_numbered(tmp_path: Path) -> None:
    """No component of any cache, quantised ones too, is left out of the test before this one."""
    shown = {name for config in ZOO.values() for name in expected_state(config, 9)}
    checkpoint = builtin.zoo_checkpoint("gdn-wide", "float32", tmp_path)
    packed = Options(kv_bits=8, kv_group_size=32)
    session = builtin.make_runtime().open("gdn-wide", checkpoint, packed)
    session.prefill([1, 2, 3])
    shown |= set(session.state())
    assert {split_name(name)[1] for name in shown} == set(NUMBERED)


@pytest.mark.parametrize(
    ("found", "kept", "said"),
    [
        (DUE - 7, 2, "are the ones of one token before the frontier: an older record was used"),
        (DUE + 100, 2, "match the state of no other token count"),
        (DUE * 0, 2, "are all zeros: wiped, not rewound"),
        (
            DUE.astype(mx.bfloat16),
            2,
            "are bfloat16, float32 is due: stored in another type on the way",
        ),
        (
            mx.array([[1.25, 3.0 + 2.0**-22]]),
            2,
            "are 1 ULP off: the right tokens, by other arithmetic",
        ),
        (
            DUE + 1,
            2,
            "are one token ahead of the frontier; look like a rewind to a+2 positions (the end of "
            "the verify window: perhaps they were not rewound)",
        ),
        (
            DUE + 1,
            1,
            "are two tokens ahead of the frontier, at the end of the verify window: they were not "
            "rewound",
        ),
        (
            DUE - 2,
            2,
            "are two tokens behind the frontier, where they were before the round: they were put "
            "back and the accepted tokens were not run again",
        ),
    ],
)
def test_what_several_rows_tell(found: mx.array, kept: int, said: str) -> None:
    """Whatever is said of keys is said in the plural."""
    name = "layers.0.keys"
    assert told(replace(_rerun(found, DUE, name), kept=kept)) == f"layer 0 keys {said}"


def test_several_rows_rounded() -> None:
    """So is what went through a narrower type, and what is wrong in other layers as well."""
    due = mx.array([[1.25, 3.0 + 2.0**-20]])
    rerun = _rerun(due.astype(mx.float16).astype(mx.float32), due, "layers.0.keys")
    rerun.found["layers.2.keys"] = DUE
    rerun.due["layers.2.keys"] = due
    assert told(rerun) == (
        "layer 0 keys are the right ones rounded to bfloat16: they went through a narrower type "
        "(so do those of layer 2)"
    )
