"""A runtime process that misbehaves costs one error, with the tail of its stderr."""

import sys
from pathlib import Path

import pytest

from mtp_conformance.failure import RuntimeFailure
from mtp_conformance.process import MOST_TIMEOUTS, ProcessRuntime, TimeLimits
from mtp_conformance.protocol import Options

SAID = {
    "hangs": "no answer within 3 s",
    "dies": "the runtime died \\(exit code 3\\)",
    "prints": "no line of the protocol: 'loading weights...'",
    "half-line": "no line of the protocol",
    "wrong-number": "an answer to request 11, not 4",
    "no-object": "whose result is no object",
    "fills-stderr": "the runtime died \\(exit code 1\\)",
}


def _runtime(mode: str) -> ProcessRuntime:
    command = f"{sys.executable} -m tests.fakes.stdio_runtime {mode}"
    return ProcessRuntime(command, TimeLimits(open=60, call=3 if mode == "hangs" else 30))


@pytest.mark.parametrize("mode", list(SAID))
def test_misbehaviour_is_one_error(mode: str, tmp_path: Path) -> None:
    """The failing call says what happened; the next session works in a new process."""
    runtime = _runtime(mode)
    session = runtime.open("m", tmp_path, Options())
    session.prefill([1])
    with pytest.raises(RuntimeFailure, match=SAID[mode]):
        session.round([2])
    again = runtime.open("m", tmp_path, Options())
    assert (again.prefill([1]).tokens, runtime.generation) == ((1,), 2)
    runtime.close()


def test_model_that_hangs_is_given_up(tmp_path: Path) -> None:
    """After two time limits one model is not opened again; another model is."""
    command = f"{sys.executable} -m tests.fakes.stdio_runtime hangs"
    runtime = ProcessRuntime(command, TimeLimits(open=60, call=1))
    for _ in range(MOST_TIMEOUTS):
        session = runtime.open("m", tmp_path, Options())
        session.prefill([1])
        with pytest.raises(RuntimeFailure, match="no answer within 1 s \\(--time-limit"):
            session.round([2])
    with pytest.raises(RuntimeFailure, match="m let 2 time limits pass and is not asked again"):
        runtime.open("m", tmp_path, Options())
    assert runtime.open("another", tmp_path, Options()).prefill([1]).tokens == (1,)
    runtime.close()


def test_stderr_tail_is_kept(tmp_path: Path) -> None:
    """The last lines of stderr travel with the error, however much there was."""
    runtime = _runtime("fills-stderr")
    session = runtime.open("m", tmp_path, Options())
    with pytest.raises(RuntimeFailure) as caught:
        session.round([2])
    # Files are named from the current folder on: a report may be published.
    assert caught.value.stderr.endswith("at a.py\nlast words")
    assert len(caught.value.stderr) < 100_000
    runtime.close()


def test_sessions_of_a_dead_process_are_gone(tmp_path: Path) -> None:
    """A session that outlived its process says so."""
    runtime = _runtime("dies")
    session = runtime.open("m", tmp_path, Options())
    with pytest.raises(RuntimeFailure, match="died"):
        session.round([2])
    with pytest.raises(RuntimeFailure, match="gone since an earlier failure"):
        session.prefill([1])
    runtime.close()


def test_other_protocol_version_is_refused() -> None:
    """A handshake of another version names both."""
    with pytest.raises(RuntimeFailure, match="speaks protocol 0, this suite 1"):
        _runtime("old-protocol").describe()


def test_command_that_cannot_start_is_named() -> None:
    """A missing program is named."""
    with pytest.raises(RuntimeFailure, match="cannot start 'no-such-program-here'"):
        ProcessRuntime("no-such-program-here").describe()
