"""What the kill matrix concludes from judgements."""

from dataclasses import replace
from pathlib import Path

import pytest

from mtp_conformance import Verdict
from tests.faults.cases import Judgement
from tests.faults.fault import Claim, Fault, Shot, shot
from tests.faults.matrix import Examined, Matrix, run
from tests.faults.registry import not_seeded, seeded
from tests.faults.showing import as_record, as_text

STATE = seeded()["skip-kv-trim-first"]
HEAD = seeded()["head-row-too-many"]
STREAM = shot("stream.greedy.guessed-drafts", "attn", k=2)


def _judged(fault: Fault, *verdicts: tuple[Shot, Verdict, str, str]) -> Examined:
    said = [Judgement(s, verdict, 1.0, "why", layer, part) for s, verdict, layer, part in verdicts]
    return Examined(fault, said)


def _matrix(*examined: Examined, control: tuple[Judgement, ...] = ()) -> Matrix:
    return Matrix(examined, control, 1.0)


def _place(fault: Fault) -> tuple[str, str]:
    return sorted(fault.breaks)[0]


def test_a_fault_is_killed_by_its_state_case() -> None:
    """A state that differs where the edit is kills a state fault, and the matrix holds."""
    examined = _judged(STATE, (STATE.shots[0], Verdict.FAIL, *_place(STATE)))
    assert examined.seconds == 1.0
    assert examined.clauses == ["rewound-state"]
    assert _matrix(examined).holds


def test_a_survivor() -> None:
    """A fault that passes everything survives."""
    examined = _judged(STATE, (STATE.shots[0], Verdict.PASS, "", ""))
    matrix = _matrix(examined)
    assert (matrix.survivors, examined.seconds, matrix.holds) == ([STATE.id], None, False)


@pytest.mark.parametrize("fault", [STATE, HEAD], ids=lambda fault: fault.id)
def test_tokens_alone_kill_no_state_fault(fault: Fault) -> None:
    """What only tokens noticed was not noticed by a case of what it breaks."""
    tokens = (STREAM, Verdict.FAIL, "", "")
    matrix = _matrix(_judged(fault, tokens))
    assert (matrix.survivors, matrix.unclaimed, matrix.holds) == ([], [fault.id], False)


def test_a_target_state_kills_no_head_fault() -> None:
    """A fault of the head is to be found in the head."""
    matrix = _matrix(_judged(HEAD, (HEAD.shots[0], Verdict.FAIL, "layers.0", "keys")))
    assert matrix.unclaimed == [HEAD.id]


def test_a_named_cell_that_lets_pass() -> None:
    """A cell named as a killer has to kill, whatever other cells do."""
    examined = _judged(
        STATE,
        (STATE.shots[0], Verdict.PASS, "", ""),
        (STREAM, Verdict.FAIL, *_place(STATE)),
    )
    assert _matrix(examined).weak == [f"{STATE.id}: {STATE.shots[0].id}"]
    assert not _matrix(examined).holds


def test_kills_in_the_wrong_place() -> None:
    """At least 95 in 100 kills with a layer and component name the edited ones."""
    right = _judged(STATE, *[(STATE.shots[0], Verdict.FAIL, *_place(STATE))] * 95)
    wrong = (STATE.shots[0], Verdict.FAIL, "layers.2", "conv")
    right.judgements += _judged(STATE, *[wrong] * 5).judgements
    assert _matrix(right).holds
    right.judgements += _judged(STATE, wrong).judgements
    assert _matrix(right).located == (101, 95)
    assert not _matrix(right).holds


def test_a_false_alarm() -> None:
    """A cell on which the unedited decoder fails is no proof against an edited one."""
    examined = _judged(STATE, (STATE.shots[0], Verdict.FAIL, *_place(STATE)))
    alarm = Judgement(STATE.shots[0], Verdict.FAIL, 1.0, "why")
    matrix = _matrix(examined, control=(alarm,))
    assert (matrix.false_alarms, matrix.holds) == ([alarm], False)


def test_a_void_run_kills_where_that_is_the_sign() -> None:
    """Only for a fault that makes nothing happen is `inconclusive` a kill."""
    void = (STATE.shots[0], Verdict.INCONCLUSIVE, "", "")
    loose = replace(STATE, claim=Claim.ANY)
    assert not _judged(loose, void).killed
    assert _judged(replace(loose, may_void=True), void).killed


def test_the_record_and_the_text_say_the_same() -> None:
    """Both name fault, case, place and survivors, and why others are not seeded."""
    killed = _judged(STATE, (STATE.shots[0], Verdict.FAIL, *_place(STATE)))
    survivor = _judged(HEAD, (HEAD.shots[0], Verdict.PASS, "", ""))
    matrix = _matrix(killed, survivor)
    record = as_record(matrix, not_seeded(), seeded())
    first = record["faults"][0]
    assert first["by"] == ["rewind.state.one-round"]
    assert (first["layer"], first["component"]) == _place(STATE)
    assert record["survivors"] == [HEAD.id]
    assert set(record["public"]) | {n["id"] for n in record["not_seeded"]} >= {"R1", "R9"}
    text = as_text(matrix, not_seeded())
    assert f"survivor: {HEAD.id}" in text
    assert "rewind.state.one-round" in text
    assert not_seeded()["R9"] in text


def test_a_process_that_dies(tmp_path: Path) -> None:
    """A fault that takes its process along is an error of the decoder, and the rest goes on."""
    nobody = replace(STATE, id="no-such-fault")
    matrix = run([nobody, STATE], tmp_path, workers=1, first_kill=True)
    died, fine = matrix.examined
    assert [j.verdict for j in died.judgements] == [Verdict.ERROR]
    assert "died" in died.judgements[0].message
    assert fine.noticed_by_its_claim
