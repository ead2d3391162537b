"""Known failures: waivers for one device."""

from pathlib import Path

import pytest

from mtp_conformance.known import HARDWARE_WAIVERS, on_device, read_known
from mtp_conformance.toml_table import TomlError
from tests.harness.known_failures import Run, entry


def test_other_devices(known_run: Run) -> None:
    """On another device a waiver does not exist: it excuses nothing and is not stale."""
    waiver = entry(case="rewind.state.renamed", device="gpu: Nobody's")
    result = known_run(waiver, name=HARDWARE_WAIVERS)
    result.assert_outcomes(failed=2)
    result.stdout.no_fnmatch_line("*no cell of the suite*")


def test_this_device(known_run: Run) -> None:
    """A waiver counts where the device begins as it says."""
    result = known_run(entry(device="cpu", params={"k": 1}), name=HARDWARE_WAIVERS)
    result.assert_outcomes(xfailed=1, failed=1)


@pytest.mark.parametrize(
    ("name", "device", "message"),
    [
        (HARDWARE_WAIVERS, None, "field `device` is missing"),
        ("suite-bugs.toml", "cpu", "unknown field `device`"),
    ],
)
def test_only_in_waivers(tmp_path: Path, name: str, device: str | None, message: str) -> None:
    """The field stands in every waiver and in no other list."""
    (tmp_path / name).write_text(entry(device=device))
    with pytest.raises(TomlError, match=message):
        read_known([tmp_path / name])


def test_entries_of_a_device(tmp_path: Path) -> None:
    """Entries without a device exist everywhere."""
    (tmp_path / HARDWARE_WAIVERS).write_text(entry(device="gpu: Apple M5"))
    (tmp_path / "builtin.toml").write_text(entry(case="a.b.c"))
    entries = read_known(sorted(tmp_path.iterdir()))
    assert len(on_device(entries, "gpu: Apple M5 Max")) == 2
    assert [e.case for e in on_device(entries, "cpu: x86_64")] == ["a.b.c"]
