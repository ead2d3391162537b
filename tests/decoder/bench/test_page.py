"""Page, plot and table: made from raw rows, nothing else."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from mtp_decoder import DecoderError
from mtp_decoder.bench.page import page, write_page
from mtp_decoder.bench.plan import Arm
from mtp_decoder.bench.plot import panels_of, points
from mtp_decoder.bench.rows import Header, Rows
from mtp_decoder.bench.summary import cells_of
from mtp_decoder.bench.table import table
from mtp_decoder.bench.targets import TRAINED, WIDE
from tests.decoder.bench.made import DEEP, MACHINE, PLAIN, STOCK, rows_of, run

READ = {
    **{"requests": 100, "hits": 60, "reads": 40, "bytes_read": 4096, "slots": 3},
    **{"expert_bytes": 1024, "evictions": 9},
}
DISK = Arm(k=2, experts="disk")
RUNS = [
    run(arm, turn, seconds, experts_read=READ if arm == DISK else {})
    for turn in (0, 1)
    for arm, seconds in ((STOCK, 1.0), (PLAIN, 1.01), (DEEP, 0.8), (DISK, 1.6), (Arm(k=3), 0.7))
]


@pytest.fixture
def rows() -> Rows:
    """Return rows of five arms."""
    return rows_of(RUNS)


def test_computer_and_versions(rows: Rows) -> None:
    """The page names processor, system, backend and versions."""
    text = page(rows, "p.svg")
    for part in ("Abacus, 2 cores", "Linux x86_64, Python 3.11.7", "MLX's CPU", "mlx 0.32.4"):
        assert part in text
    assert "![Speed-up against K, beside the limit](p.svg)" in text


def test_arms_that_shared_a_process(rows: Rows) -> None:
    """The page says which they are, and says nothing of their memory."""
    shared = [
        run(arm, turn, block="c", bytes={"remembered": 300})
        for turn in (0, 1)
        for arm in (STOCK, PLAIN)
    ]
    text = page(rows_of([*shared, *RUNS]), "p.svg")
    assert " In “c” all arms of a turn\nshare the process" in text
    assert "| c | code | 0 | mlx-lm |" in text
    assert "| m | 0 | tape | 300 B | 300 B | 1.0 MiB | 2.0 MiB |" in text
    assert "share the process" not in page(rows, "p.svg")


@pytest.mark.parametrize(
    "line",
    [
        "| K=0, speed beside mlx-lm's `generate_step` | m, code | 99.0% | ≥ 98% | **met** |",
        "| b | code | 0 | mlx-lm | 100 | 99 | 0.99 |  | yes |",
        "| 2 | tape | 125 | 1.26 | 1.68 | 75.0% |",
        "| 0 | tape | 99 |  |  |  |",
        "| 2 | tape | 2.00 | 10.00 | 0.40 | 0.60 | 3.00 | 30.00 | 9000.00 | 6.0% |",
        "| code | 3 | 80% | 20% | 8% | 2.08 |",
        "| m | code | 2 | tape | 3 x 1.0 KiB | 100 | 60% | 40 | 4.0 KiB | 41 B |",
        "| m | 2 | tape | 300 B | 100 B | 1.0 MiB | 2.0 MiB |",
    ],
)
def test_figures(rows: Rows, line: str) -> None:
    """Targets, runtimes side by side, speed, phases, acceptance, experts and memory are shown."""
    assert line in page(rows, "p.svg").splitlines()


def test_the_least_and_the_largest() -> None:
    """A figure whose runs differ is shown with both ends."""
    text = page(rows_of([*RUNS, run(STOCK, 2, 1.04), run(PLAIN, 2, 1.01)]), "p.svg")
    assert "99.0% (99.0%–103.0%)" in text


def test_withheld() -> None:
    """What is withheld is a dash, and the reason stands below and in the terminal."""
    never = [run(Arm(k=1), turn, accepted_by_depth=[50]) for turn in (0, 1)]
    rows = rows_of([*RUNS, *never])
    assert "| 1 | tape | – | – | – | – |" in page(rows, "p.svg").splitlines()
    reason = "b, mtp-decoder K=1 tape, code: tokens/s: no draft was ever rejected"
    assert f"- {reason}." in page(rows, "p.svg").splitlines()
    assert f"withheld: {reason}" in table(rows).splitlines()


def test_every_reason() -> None:
    """Whatever is a dash has its reason: a ratio of two cells, a time by phase, a target."""
    late = {"prefill": 9.0, "draft": 0.1, "verify": 0.5, "accept": 0.02, "rewind": 0.1}
    peer, spreads = Arm("abacus-lm", 0, ""), "the middle half of its runs spreads over"
    runs = [run(arm, 0, 0.87) for arm in (STOCK, peer)] + [run(arm, 1) for arm in (STOCK, peer)]
    runs += [run(PLAIN), run(PLAIN, 1, 0.87), run(DEEP, 0, 0.8)]
    rows = rows_of([*runs, replace(run(DEEP, 1, 0.8), seconds=late)])
    text = page(rows, "")
    for reason in (
        f"- b, mtp-decoder K=0 tape, code: speed beside abacus-lm K=0: {spreads} 14%.",
        f"- b, mtp-decoder K=2 tape, code: rewind/verify: {spreads} 54%.",
        f"- b, mtp-decoder K=2 tape, code: rewind ms, rewinds a request, ms: {spreads} 54%.",
    ):
        assert reason in text.splitlines()
    assert f"| ≥ 98% | **withheld**: {spreads} 14% |" in text
    assert f"≥ 98%: withheld ({spreads} 14%)" in table(rows)


def test_what_is_not_there(rows: Rows) -> None:
    """Runtimes that could not be run are named, with the reason."""
    absent = replace(rows, header=Header("p", MACHINE, {"abacus-lm": "not installed"}))
    assert "- abacus-lm: not installed." in page(absent, "p.svg").splitlines()


def test_a_target_that_is_missed(rows: Rows) -> None:
    """The page says so, and of the project's own models why."""
    own = replace(rows, runs=[replace(one, model=TRAINED[0]) for one in rows.runs])
    assert "this is why" not in page(replace(own, runs=own.runs[:4]), "p.svg")
    text = page(own, "p.svg")
    assert "| ≥ 90% | **missed** |" in text
    assert "Where a target is missed, this is why." in text
    assert "this is why" not in page(rows, "p.svg")


@pytest.mark.parametrize("model", [*TRAINED, WIDE])
def test_of_models(rows: Rows, model: str) -> None:
    """What is said of the project's own models stands on no page without them."""
    said = {WIDE: "The random model's drafts"}.get(model, "The trained models have")
    own = replace(rows, runs=[replace(one, model=model) for one in rows.runs])
    for words in (said, "noxfile.py -s bench -- --ship --fresh"):
        assert words in page(own, "")
        assert words not in page(rows, "")


def test_of_a_gpu(rows: Rows) -> None:
    """What is said of the CPU backend is not said of another."""
    header = Header("p", {**MACHINE, "device": "gpu"})
    assert "CPU backend runs a recurrence" in page(rows, "")
    assert "backend runs a recurrence" not in page(replace(rows, header=header), "")


def test_tokens_that_differ(rows: Rows) -> None:
    """The page says where this decoder's runs emitted different tokens."""
    assert "emitted the same tokens" in page(rows, "p.svg")
    rows.runs.append(run(DEEP, 2, 0.8, tokens_digest="other"))
    assert "emitted different tokens on: m, code" in page(rows, "p.svg")


def test_prompts_of_two_lengths(rows: Rows) -> None:
    """Tokens after another prompt are no other tokens of the same."""
    rows.runs.append(run(DEEP, 2, 0.8, tokens_digest="other", prompt_tokens=5))
    assert "emitted the same tokens" in page(rows, "p.svg")


def test_quick(rows: Rows) -> None:
    """Rows of a quick run say so."""
    assert "Of a quick run" not in page(rows, "p.svg")
    assert "Of a quick run" in page(replace(rows, header=Header("p", MACHINE, quick=True)), "")


def test_blocks_that_were_not_run(rows: Rows) -> None:
    """So do rows of a part of a plan."""
    header = Header("p", MACHINE, left_out=["one", "two"])
    assert "**Not run this time**: one; two." in page(replace(rows, header=header), "")
    assert "Not run this time" not in page(rows, "")


def test_table(rows: Rows) -> None:
    """The terminal shows every arm with speed, speed-up, limit, accepts and rewinds."""
    (line,) = (one for one in table(rows).splitlines() if "K=3" in one and "code " in one)
    assert line.split()[-7:] == ["143", "1.44", "1.75", "80%", "20%", "8%", "6.0%"]
    unfinished = replace(rows, complete=False)
    assert table(unfinished).endswith("these rows are of a run that is not finished")


def test_points_of_the_plot(rows: Rows) -> None:
    """A line goes through the medians, the limit's beside it; what is withheld is no point."""
    cells = cells_of(rows)
    (found,) = panels_of(cells).values()
    assert {k: round(f.median, 3) for k, f in points(found, cells).items()} == {2: 1.262, 3: 1.443}
    bound = points(found, cells, of_limit=True)
    assert {k: round(f.median, 2) for k, f in bound.items()} == {2: 1.68, 3: 1.75}
    spread = [run(Arm(k=4), turn, seconds) for turn, seconds in ((0, 1.0), (1, 3.0))]
    cells = cells_of(rows_of([*RUNS, *spread]))
    assert list(points(panels_of(cells)["m", "memory", "code"], cells)) == [2, 3]


def test_files(rows: Rows, tmp_path: Path) -> None:
    """Page and plot are written beside each other, where matplotlib is installed."""
    pytest.importorskip("matplotlib", reason="the plot's library is in the extra `train`")
    written = write_page(rows, tmp_path / "docs" / "b.md")
    assert [path.name for path in written] == ["b.md", "b.svg"]
    assert sorted(path.name for path in (tmp_path / "docs").iterdir()) == ["b.md", "b.svg"]
    assert "(b.svg)" in written[0].read_text()
    first = written[1].read_bytes()
    write_page(rows, tmp_path / "docs" / "b.md")
    assert written[1].read_bytes() == first


def test_a_page_without_a_plot(tmp_path: Path) -> None:
    """Too few depths are no plot, and the page says so."""
    rows = rows_of([one for one in RUNS if one.k in (0, 2)])
    assert [path.name for path in write_page(rows, tmp_path / "b.md")] == ["b.md"]
    assert "Too few depths for a plot." in (tmp_path / "b.md").read_text()


def test_refuses(rows: Rows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No page of a run that goes on, and none without matplotlib; nothing is left behind."""
    with pytest.raises(DecoderError, match="not finished; --resume goes on"):
        write_page(replace(rows, complete=False), tmp_path / "b.md")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(DecoderError, match="needs matplotlib: pip install"):
        write_page(rows, tmp_path / "b.md")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("")
    with pytest.raises(DecoderError, match=r"cannot write .*file"):
        write_page(rows_of(RUNS[:2] + RUNS[5:7]), tmp_path / "file" / "b.md")
    with pytest.raises(DecoderError, match="nothing was measured"):
        write_page(rows_of([]), tmp_path / "b.md")
