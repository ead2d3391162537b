"""`python -m mtp_decoder generate | head`."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path


def test_a_closed_pipe(checkpoint: Callable[..., Path]) -> None:
    """When the reader goes, the command ends as a pipe's writer does, and says nothing."""
    model = ["--model", str(checkpoint("gdn")), "--prompt", "abc", "--max-tokens", "-1"]
    command = [sys.executable, "-m", "mtp_decoder", "generate", *model]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    ) as running:
        assert running.stdout is not None and running.stderr is not None
        running.stdout.read(1)
        running.stdout.close()
        assert (running.stderr.read(), running.wait()) == (b"", 141)
