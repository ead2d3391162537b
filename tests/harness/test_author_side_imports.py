"""The side a runtime author imports needs the standard library and mlx alone."""

import subprocess
import sys

BLOCK = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"numpy", "mlx_lm", "pytest", "rich", "jinja2", "xdist",
                                      "mtp_decoder", "reference_models", "transformers"}:
            raise ImportError(f"{name} is not for the author's side")

sys.meta_path.insert(0, Blocked())
import mtp_conformance.protocol
import mtp_conformance.stdio
import mtp_conformance
print("imported")
"""


def test_protocol_and_stdio_import_alone() -> None:
    """Protocol and server import where every other dependency of the suite is missing."""
    done = subprocess.run(
        [sys.executable, "-c", BLOCK], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("imported\n", "")
