"""Known failures: which lists a run reads."""

from collections.abc import Callable
from pathlib import Path

import pytest

from mtp_conformance.known import known_files, read_known, runtime_file
from tests.harness.known_failures import FAILS, Run, entry

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("runtime", "name"),
    [
        ("builtin", "builtin.toml"),
        ("mlx_vlm:make", "mlx-vlm.toml"),
        ("some.adapters.mlx_vlm:make", "mlx-vlm.toml"),
        ("python -m some.adapters.mlx_vlm --fast", "mlx-vlm.toml"),
        ("env/bin/python adapters/mlx_vlm.py", "mlx-vlm.toml"),
        ("env/bin/mlx_vlm", "mlx-vlm.toml"),
    ],
)
def test_name_of_a_runtime(runtime: str, name: str) -> None:
    """A runtime's list is named after the module, script or program of its adapter."""
    assert runtime_file(runtime) == name


def test_lists_of_the_suite() -> None:
    """The suite has a list of its own bugs, one for the builtin decoder, and one of waivers."""
    names = [file.name for file in known_files(ROOT, "builtin")]
    assert names == ["suite-bugs.toml", "builtin.toml", "hardware-waivers.toml"]


def test_builtin_has_no_known_failure() -> None:
    """The decoder in this repository has no known failure."""
    assert not read_known([ROOT / "conformance" / "known" / "builtin.toml"])


@pytest.mark.parametrize(
    ("option", "runtime", "xfailed"),
    [("--runtime", "builtin", 2), ("--runtime", "other", 0), ("--runtime-cmd", "other", 0)],
)
def test_default_lists(
    pytester: pytest.Pytester,
    run_cases: Callable[..., pytest.RunResult],
    option: str,
    runtime: str,
    xfailed: int,
) -> None:
    """Without --known the lists under the run's root apply: those of the runtime chosen."""
    folder = pytester.mkdir("conformance") / "known"
    folder.mkdir()
    (folder / "builtin.toml").write_text(entry(message="AssertionError"))
    result = run_cases(FAILS.replace("FIXED", "0"), option, runtime)
    result.assert_outcomes(xfailed=xfailed, failed=2 - xfailed)


def test_unreadable_list(known_run: Run) -> None:
    """A list that cannot be read ends the run before any case, and says what is wrong."""
    result = known_run(entry(owner=None))
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        ["*known failures: known.toml: known 1 (rewind.*`owner` is missing*"]
    )


def test_missing_list(run_cases: Callable[..., pytest.RunResult]) -> None:
    """A list that was asked for and is not there is an error."""
    result = run_cases(FAILS, "--known", "nowhere.toml")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*known failures: nowhere.toml: *"])
