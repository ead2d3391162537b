"""Merging: the machines of a CI matrix may differ in their processors."""

from collections.abc import Callable
from pathlib import Path

from mtp_conformance.reporting.merge import merge


def test_both_devices_are_named(write_shards: Callable[..., list[Path]], tmp_path: Path) -> None:
    """The merged header names every device that took part, and is of a whole run."""
    merged = merge(write_shards(device="cpu: other"), tmp_path / "merged.jsonl")
    assert merged.header.device == "cpu: test and cpu: other"
    assert merged.header.shard is None
    assert merged.seconds == 3.0
