"""What all tests of ourselves share: pytest's own fixture for testing plugins, and a guard."""

import os

import pytest

pytest_plugins = ["pytester"]

PERMISSION = "MTP_CONFORMANCE_GOLDEN"
"""Set by `nox -s golden` alone."""


USUAL: dict[str, object] = {
    **dict.fromkeys(("keyword", "markexpr", "deselect", "ignore", "ignore_glob")),
    **dict.fromkeys(("lf", "failedfirst", "newfirst", "stepwise", "stepwise_skip")),
    **dict.fromkeys(("collectonly", "setuponly", "setupplan", "numprocesses", "inifilename")),
    **dict.fromkeys(("shard", "runtime_cmd", "strategies", "max_draft_tokens", "case", "seed")),
    "profile": "default",
    "runtime": "builtin",
    "device": "cpu",
    "mx_compile": "off",
}
"""Options of pytest, xdist and the suite that choose what runs and how, and their usual values;
without one they are empty."""


def pytest_configure(config: pytest.Config) -> None:
    """Refuse to write snapshots from anything but the whole, in one process."""
    option = config.option
    if not (option.update_snapshots or option.update_new_snapshots_only):
        return
    if not os.environ.get(PERMISSION):
        raise pytest.UsageError(
            "snapshots are written by `python3 noxfile.py -s golden` alone, whole and tested"
        )
    nothing = (None, "", [], (), False, 0)
    chosen = [
        name
        for name, usual in USUAL.items()
        if (value := getattr(option, name, usual)) != usual and value not in nothing
    ]
    if chosen:
        raise pytest.UsageError(
            f"snapshots are written whole and by one process, not with {', '.join(chosen)}: no "
            "option that leaves tests out, runs none, or runs cases otherwise"
        )
