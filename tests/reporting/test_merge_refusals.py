"""Merging: what is not exactly one run is refused."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from mtp_conformance.report import GitState, Report, ReportError, Result, Shard, manifest_hash
from mtp_conformance.reporting.merge import MergeError, merge

WriteShards = Callable[..., list[Path]]

OTHERS: dict[str, object] = {
    "suite_version": "0.2.0",
    "git": GitState("abc", dirty=False),
    "runtime": {"name": "other"},
    "mlx": "0.33.0",
    "mlx_lm": "0.33.0",
    "python": "3.12.0",
    "platform": "darwin-arm64",
    "profile": "full",
    "seed": 1,
    "probe": {"fingerprint": "ab"},
}


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """Return a place for the merged report that holds something already."""
    path = tmp_path / "merged.jsonl"
    path.write_text("an earlier one")
    return path


@pytest.mark.parametrize(("name", "value"), OTHERS.items(), ids=OTHERS.keys())
def test_another_run_is_refused(
    write_shards: WriteShards, out: Path, name: str, value: object
) -> None:
    """Shards whose headers differ are of two runs; what differs is named, nothing is written."""
    with pytest.raises(MergeError, match=rf"are of two runs: {name} is .* in one and .* in the"):
        merge(write_shards(**{name: value}), out)
    assert out.read_text() == "an earlier one"


def test_another_manifest_is_refused(
    write_shards: WriteShards,
    write_report: Callable[[Report], Path],
    make_report: Callable[..., Report],
    results: Sequence[Result],
    out: Path,
) -> None:
    """Shards of other cases are of two runs."""
    other = make_report(*results[3:], shard=Shard(2, 2, len(results)))
    cases = (replace(other.cases[0], clause="another"), other.cases[1])
    header = replace(other.header, manifest=manifest_hash(cases))
    path = write_report(replace(other, cases=cases, header=header))
    with pytest.raises(MergeError, match="are of two runs: manifest is"):
        merge([write_shards()[0], path], out)


@pytest.mark.parametrize(
    ("shard", "reason"),
    [
        (None, "is no shard: it was written without --shard I/N"),
        (Shard(2, 3, 8), "are of two runs: one is of 2 shards of 8 cells, the other of 3 shards"),
        (Shard(2, 2, 9), "are of two runs: one is of 2 shards of 8 cells, the other of 2 shards"),
        (Shard(1, 2, 8), "shard 1 is there twice"),
        (Shard(3, 2, 8), "says it is shard 3 of 2"),
        (Shard(0, 2, 8), "says it is shard 0 of 2"),
    ],
)
def test_another_shard_is_refused(
    write_shards: WriteShards, out: Path, shard: Shard | None, reason: str
) -> None:
    """Every shard is there exactly once."""
    with pytest.raises(MergeError, match=reason):
        merge(write_shards(shard=shard), out)


def test_a_missing_shard_is_refused(write_shards: WriteShards, out: Path) -> None:
    """One shard alone is not the run."""
    with pytest.raises(MergeError, match=r"^shard 2 of 2 is missing"):
        merge(write_shards()[:1], out)


def test_one_file_twice_is_refused(write_shards: WriteShards, out: Path) -> None:
    """A file given twice is its shard twice."""
    with pytest.raises(MergeError, match="shard 1 is there twice"):
        merge(write_shards()[:1] * 2, out)


def test_nothing_is_refused(out: Path) -> None:
    """There is something to merge."""
    with pytest.raises(MergeError, match="no shard to merge"):
        merge([], out)


def test_an_overlap_is_refused(
    write_shards: WriteShards, results: Sequence[Result], out: Path
) -> None:
    """A result of two shards is named."""
    with pytest.raises(MergeError, match=r"overlap: rewind\.recurrent\.reject-all\[gdn-k3\]"):
        merge(write_shards(results[2:7]), out)


def test_a_hole_is_refused(write_shards: WriteShards, results: Sequence[Result], out: Path) -> None:
    """Shards hold as many results as the run selected."""
    with pytest.raises(MergeError, match="hold 7 results of 8 cells that were selected"):
        merge(write_shards(results[4:]), out)


def test_an_edited_shard_is_refused(write_shards: WriteShards, out: Path) -> None:
    """A shard that cannot be trusted is named with the reason."""
    paths = write_shards()
    paths[1].write_text(paths[1].read_text().replace("0.5", "0.4", 1))
    with pytest.raises(ReportError, match=r"report-1.report\.jsonl: line \d+: the digest is not"):
        merge(paths, out)


def test_a_shard_is_not_overwritten(write_shards: WriteShards) -> None:
    """The merged report is another file than any of the shards."""
    paths = write_shards()
    with pytest.raises(MergeError, match="is one of the shards"):
        merge(paths, paths[0])
    assert paths[0].exists()
