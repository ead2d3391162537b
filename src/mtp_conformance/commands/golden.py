"""`mtp-conformance golden`: check, make, compare and show golden vectors."""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from mtp_conformance.commands import Subparsers
from mtp_conformance.commands.common import add_runtime_options, opened, say
from mtp_conformance.failure import UsageError
from mtp_conformance.suite import suite_root

if TYPE_CHECKING:
    from mtp_conformance.golden.checking import Checked
    from mtp_conformance.golden.reading import Golden
    from mtp_conformance.oracles import Materials

_EXAMPLES = """examples:
  mtp-conformance golden check
      decode every golden prompt again: what differs, and why it may
  mtp-conformance golden check --only gdn-float32 --runtime-cmd "python -m their.adapter"
      hold another runtime against them
  mtp-conformance golden diff main
      what a change does to the goldens, for review
  mtp-conformance golden show gdn-float32
      one model's prompts and rounds, to read
  python3 noxfile.py -s golden
      make all of them again

exit codes: 0 nothing differs; 1 something does; 2 a golden that is refused, or a wrong argument
"""


def add_parser(subparsers: Subparsers) -> None:
    """Add the command and what it can do."""
    parser = subparsers.add_parser(
        "golden",
        help="golden vectors: check, update, diff, show",
        description="Golden vectors: prompts, tokens, logits and states that are pinned.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    for add in (_add_check, _add_update, _add_diff, _add_show):
        add(actions)


def _add(actions: Subparsers, name: str, summary: str, example: str) -> argparse.ArgumentParser:
    return actions.add_parser(
        name,
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.",
        epilog=f"example:\n  mtp-conformance golden {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def _add_check(actions: Subparsers) -> None:
    summary = "decode every golden again and say what differs; writes nothing"
    parser = _add(actions, "check", summary, "check --only gdn-float32 --only attn-bfloat16")
    add_runtime_options(parser)
    parser.add_argument(
        "--only", metavar="NAME", action="append", default=[], help="a checkpoint; may be repeated"
    )
    parser.add_argument("--every", action="store_true", help="a line for each array that differs")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    _add_device(parser)
    parser.set_defaults(run=_check)


def _add_update(actions: Subparsers) -> None:
    summary = "make every golden again; `python3 noxfile.py -s golden` tests them, too"
    parser = _add(actions, "update", summary, "update --prune")
    parser.add_argument(
        "--prune", action="store_true", help="remove files that belong to no golden any more"
    )
    _add_device(parser)
    parser.set_defaults(run=_update, runtime="builtin", runtime_cmd=None, time_limit=60.0)


def _add_device(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", choices=("cpu", "gpu"), default="cpu", help="mlx's (cpu)")
    parser.add_argument("--quiet", action="store_true", help="no progress")


def _add_diff(actions: Subparsers) -> None:
    summary = "what differs between the goldens of two git revisions"
    parser = _add(actions, "diff", summary, "diff main HEAD")
    parser.add_argument("old", metavar="REVISION", nargs="?", help="of git, to compare with")
    parser.add_argument("new", metavar="REVISION", nargs="?", help="of git (the working tree)")
    parser.add_argument("--folder", type=Path, help="a golden folder to compare with instead")
    parser.add_argument("--every", action="store_true", help="a line for each array that differs")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.set_defaults(run=_diff)


def _add_show(actions: Subparsers) -> None:
    parser = _add(
        actions, "show", "one checkpoint's prompts and rounds, to read", "show qsa-float32"
    )
    parser.add_argument("name", metavar="NAME", help="a checkpoint, such as gdn-float32")
    parser.set_defaults(run=_show)


def _golden(root: Path) -> Golden:
    from mtp_conformance.golden.files import FOLDER
    from mtp_conformance.golden.reading import Golden

    return Golden(root / FOLDER)


def _refusing(action: Callable[[argparse.Namespace], int]) -> Callable[[argparse.Namespace], int]:
    """An action that ends with 2 where a golden is refused."""

    def run(arguments: argparse.Namespace) -> int:
        from mtp_conformance.golden.contents import GoldenError

        try:
            return action(arguments)
        except GoldenError as error:
            say(f"error: {error}")
            return 2

    return run


def _choose_device(name: str) -> None:
    import mlx.core as mx

    if name == "gpu" and not mx.is_available(mx.gpu):
        raise UsageError("--device gpu: this mlx has no GPU backend; use --device cpu")
    mx.set_default_device(mx.gpu if name == "gpu" else mx.cpu)
    mx.disable_compile()  # as the suite runs: compiled and eager results may round differently


@_refusing
def _check(arguments: argparse.Namespace) -> int:
    from mtp_conformance.golden.checking import check
    from mtp_conformance.golden.machine import UNKNOWN, this_machine

    _choose_device(arguments.device)
    golden = _golden(suite_root())
    golden.verify()
    builtin = arguments.runtime == "builtin" and arguments.runtime_cmd is None
    quiet = arguments.quiet or arguments.json
    with opened(arguments) as oracles, _materials() as materials:
        version = "" if builtin else oracles.description.versions.get("mlx", UNKNOWN)
        found = check(
            golden,
            oracles.runtime,
            this_machine(version),
            names=arguments.only,
            zoo=() if arguments.only or not builtin else _names_of_the_zoo(),
            drawn=materials.checkpoint if builtin else None,
            progress=lambda name: say(f"checking {name}", quiet=quiet),
        )
    print(_as_json(found) if arguments.json else "\n".join(_report(found, arguments.every)))
    return 1 if found.differs else 0


def _names_of_the_zoo() -> list[str]:
    from mtp_conformance.adapters.builtin import ZOO
    from mtp_conformance.golden.contents import DTYPES

    return [f"{model}-{dtype}" for model in ZOO for dtype in DTYPES]


@contextmanager
def _materials() -> Generator[Materials]:
    """The zoo, drawn now."""
    from mtp_conformance.adapters.builtin import zoo_materials

    with tempfile.TemporaryDirectory(prefix="mtp-zoo-") as folder:
        yield zoo_materials(Path(folder))


def _as_json(found: Checked) -> str:
    from mtp_conformance.golden.comparing import as_records

    names = ("tokens", "tokens_elsewhere", "checkpoints", "floats")
    kinds = {name: as_records(getattr(found, name)) for name in names}
    sides = {"here": vars(found.here), "golden": vars(found.golden), "judged": found.judged}
    counts = {"lists": found.lists, "arrays": found.arrays, "differs": found.differs}
    rest = {"stale": list(found.stale), "left_out": list(found.left_out)}
    return json.dumps({**sides, **counts, **kinds, **rest}, indent=2, default=dict)


def _report(found: Checked, every: bool) -> list[str]:
    from mtp_conformance.golden import explaining
    from mtp_conformance.golden.comparing import in_words

    lines: list[str] = []
    for what, changes, why in (
        ("tokens", found.tokens, explaining.WHY_TOKENS_MAY_DIFFER),
        (
            "bfloat16 tokens",
            found.tokens_elsewhere,
            explaining.WHY_BFLOAT16_TOKENS_MAY_DIFFER,
        ),
        ("checkpoints", found.checkpoints, explaining.WHY_CHECKPOINTS_MAY_DIFFER),
        ("floats", found.floats, explaining.why_floats_may_differ(found.golden, found.here)),
    ):
        if changes:
            lines += [f"{what}:", *(f"  {line}" for line in in_words(changes, every=every))]
            lines.append(f"  why: {why}")
    if found.stale:
        lines += ["stale, in no manifest:", *(f"  {file}" for file in found.stale)]
        lines.append("  remove them with `python3 noxfile.py -s golden -- --prune`")
    lines += [f"not compared: {what}" for what in found.left_out]
    if not found.judged:
        lines.append(
            f"floats and bfloat16 tokens are not judged: there is no golden for {found.here.key}; "
            f"those of {found.golden.key} were looked at ({_alike(found)})"
        )
    verdict = "differs" if found.differs else "nothing differs"
    lines.append(f"{verdict}: {found.lists} lists of tokens, {found.arrays} arrays compared")
    return lines


def _alike(found: Checked) -> str:
    return f"{found.arrays - len(found.floats)} of {found.arrays} arrays have the same bits"


@_refusing
def _update(arguments: argparse.Namespace) -> int:
    from mtp_conformance.golden.files import FOLDER
    from mtp_conformance.golden.machine import this_machine
    from mtp_conformance.golden.updating import recover, update

    root = suite_root()
    if not (root / "noxfile.py").is_file():
        raise UsageError(f"{root} is an installed copy; goldens are made in a checkout")
    _choose_device(arguments.device)
    recover(root)
    with tempfile.TemporaryDirectory(prefix="golden-old-") as folder:
        before = shutil.copytree(root / FOLDER, Path(folder) / FOLDER)
        with opened(arguments) as oracles, _materials() as materials:
            from mtp_conformance.adapters.builtin import ZOO

            done = update(
                root,
                tuple(ZOO),
                oracles.runtime,
                materials,
                this_machine(),
                prune=arguments.prune,
                progress=lambda name: say(f"making {name}", quiet=arguments.quiet),
            )
        print("\n".join(_changes_since(before, root / FOLDER)))
    for key in done.kept:
        print(f"still holds: floats of {key}")
    for file in done.stale:
        print(f"pruned: {file}" if done.pruned else f"stale, kept until it is pruned: {file}")
    return 0


def _changes_since(before: Path, now: Path) -> list[str]:
    from mtp_conformance.golden.comparing import in_words
    from mtp_conformance.golden.contents import GoldenError
    from mtp_conformance.golden.revisions import compare_folders

    try:
        changes = compare_folders(before, now)
    except GoldenError as error:
        return [f"all of it is new; the old one cannot be compared with: {error}"]
    return in_words(changes) or ["nothing changed"]


@_refusing
def _diff(arguments: argparse.Namespace) -> int:
    from mtp_conformance.golden.comparing import as_records, in_words
    from mtp_conformance.golden.files import FOLDER
    from mtp_conformance.golden.revisions import compare_folders, unpack

    if (arguments.old is None) == (arguments.folder is None):
        raise UsageError("golden diff: give a revision of git, or --folder")
    root = suite_root()
    with tempfile.TemporaryDirectory(prefix="golden-diff-") as scratch:
        old, new = arguments.folder, root / FOLDER
        if arguments.old is not None:
            old = unpack(root, arguments.old, Path(scratch) / "old")
        if arguments.new is not None:
            new = unpack(root, arguments.new, Path(scratch) / "new")
        if old is None or new is None:
            missing = arguments.old if old is None else arguments.new
            print(f"{missing} has no golden: all of it is {'new' if old is None else 'gone'}")
            return 1
        changes = compare_folders(old, new)
    if arguments.json:
        print(json.dumps({"changes": as_records(changes)}, indent=2))
    else:
        lines = in_words(changes, every=arguments.every)
        print("\n".join(lines or ["no golden value differs"]))
    return 1 if changes else 0


@_refusing
def _show(arguments: argparse.Namespace) -> int:
    from mtp_conformance.golden.contents import GoldenError
    from mtp_conformance.golden.showing import trace

    golden = _golden(suite_root())
    if arguments.name not in golden.names:
        raise GoldenError(f"no checkpoint {arguments.name}; there are {', '.join(golden.names)}")
    floats = golden.floats(golden.machines[0].key, arguments.name)
    print("\n".join(trace(golden.tokens(arguments.name), floats.arrays)))
    return 0
