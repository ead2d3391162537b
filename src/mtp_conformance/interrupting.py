"""A Ctrl-C while a runtime in this process reads from a file.

Reads are those through `os.pread` and `os.preadv`, in whatever thread; what is mapped into memory
is not reached. The interrupt comes to the main thread, as the real one does, while the read is
under way. Needs the standard library alone.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from mtp_conformance.verdict import Unsupported

_READS = ("pread", "preadv")
_PATIENCE, _MOMENT = 5.0, 0.01


@contextmanager
def interrupted_read(number: int) -> Generator[list[int]]:
    """Raise KeyboardInterrupt in the main thread during that read from now on, counted from 1.

    Yields:
        A list of the numbers of reads so far; that of the interrupted one is among them.

    Raises:
        Unsupported: this is not the main thread, which alone can be interrupted.
    """
    main = threading.main_thread().ident
    if main is None or threading.get_ident() != main:
        raise Unsupported("only the main thread can be interrupted")
    seen, lock, arrived = list[int](), threading.Lock(), threading.Event()

    def interrupt(*_: Any) -> None:
        if not arrived.is_set():
            arrived.set()
            raise KeyboardInterrupt

    def tell() -> None:
        """Interrupt, again while nothing came of it: a wait that just begins misses a signal."""
        end = time.monotonic() + _PATIENCE
        while not arrived.is_set() and time.monotonic() < end:
            signal.pthread_kill(main, signal.SIGUSR1)
            arrived.wait(_MOMENT)

    def watched(read: Any) -> Any:
        def call(*arguments: Any) -> Any:
            with lock:
                seen.append(len(seen) + 1)
                due = len(seen) == number
            if due:
                tell()
            return read(*arguments)

        return call

    before = signal.signal(signal.SIGUSR1, interrupt)
    plain = {name: getattr(os, name) for name in _READS if hasattr(os, name)}
    try:
        for name, read in plain.items():
            setattr(os, name, watched(read))
        yield seen
    finally:
        for name, read in plain.items():
            setattr(os, name, read)
        signal.signal(signal.SIGUSR1, before)
