"""An interrupt that meets a read."""

import os
import signal
import threading
from pathlib import Path

import pytest

from mtp_conformance import Unsupported
from mtp_conformance.interrupting import interrupted_read


@pytest.fixture
def descriptor(tmp_path: Path) -> int:
    """An open file of four bytes."""
    file = tmp_path / "file"
    file.write_bytes(b"abcd")
    return os.open(file, os.O_RDONLY)


def test_the_read_of_that_number(descriptor: int) -> None:
    """The reads before it are as ever; afterwards everything is as it was."""
    plain, handler = os.pread, signal.getsignal(signal.SIGUSR1)
    found = list[bytes]()
    with pytest.raises(KeyboardInterrupt), interrupted_read(3) as seen:
        for at in range(4):
            found.append(os.pread(descriptor, 1, at))
    assert (found, seen) == ([b"a", b"b"], [1, 2, 3])
    assert (os.pread, signal.getsignal(signal.SIGUSR1)) == (plain, handler)


def test_a_worker_reads(descriptor: int) -> None:
    """The interrupt comes to the main thread, where it waits; the worker finishes its read."""
    found = list[bytes]()
    worker = threading.Thread(target=lambda: found.append(os.pread(descriptor, 4, 0)))
    with pytest.raises(KeyboardInterrupt), interrupted_read(1):
        worker.start()
        threading.Event().wait(5)
    worker.join()
    assert found == [b"abcd"]


def test_another_thread(descriptor: int) -> None:
    """Only the main thread can be interrupted."""
    said = list[str]()

    def run() -> None:
        try:
            with interrupted_read(1):
                os.pread(descriptor, 1, 0)
        except Unsupported as error:
            said.append(str(error))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert said == ["only the main thread can be interrupted"]
