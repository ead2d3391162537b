"""Holding a golden against what a decoder does now. Nothing is ever written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from mtp_conformance.checked import CheckedRuntime
from mtp_conformance.golden.comparing import Change, compare_arrays, compare_tokens
from mtp_conformance.golden.contents import Arrays, GoldenError, Machine
from mtp_conformance.golden.explaining import nearest
from mtp_conformance.golden.files import WEIGHTS
from mtp_conformance.golden.making import OPTIONS, replay
from mtp_conformance.golden.reading import Golden
from mtp_conformance.golden.safetensors_file import read_arrays
from mtp_conformance.protocol import Capability
from mtp_conformance.verdict import Unsupported


@dataclass(frozen=True)
class Checked:
    """What a check found.

    Attributes:
        here: the machine it ran on.
        golden: the machine that the float goldens compared with are of.
        judged: whether that is the same backend and version of mlx. If not, float changes are
            for information, and so are changes of bfloat16 tokens.
        tokens: changes of tokens that are judged.
        tokens_elsewhere: changes of bfloat16 tokens where they are not judged.
        checkpoints: changes of checkpoint folders.
        floats: changes of arrays.
        stale: files of the folder that the manifest does not list.
        left_out: what was not compared, and why.
        lists: lists of tokens that the runtime emitted and that were compared: streams and rounds.
        arrays: arrays compared.
    """

    here: Machine
    golden: Machine
    judged: bool
    tokens: tuple[Change, ...]
    tokens_elsewhere: tuple[Change, ...]
    checkpoints: tuple[Change, ...]
    floats: tuple[Change, ...]
    stale: tuple[str, ...]
    left_out: tuple[str, ...]
    lists: int
    arrays: int

    @property
    def differs(self) -> bool:
        """Whether anything is not as it is pinned."""
        return bool(self.tokens or self.checkpoints or self.stale or (self.judged and self.floats))


def check(
    golden: Golden,
    runtime: CheckedRuntime,
    here: Machine,
    *,
    names: Sequence[str] = (),
    zoo: Sequence[str] = (),
    drawn: Callable[[str, str], Path] | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Checked:
    """Decode a golden's prompts and rounds, and compare.

    Args:
        golden: what is pinned.
        runtime: the decoder; it sees the golden's checkpoints and drafts, no expected value.
        here: the machine the runtime is on.
        names: checkpoints to look at; all of them if empty.
        zoo: the checkpoints that there are to be, where that is known; empty to leave that out.
        drawn: from model and data type to a checkpoint folder made now, to compare the golden's
            with; None to leave that out.
        progress: told each checkpoint's name.

    Raises:
        GoldenError: a file is refused, there is no such checkpoint, or nothing was compared.
        RuntimeFailure: the runtime broke.
    """
    for name in names:
        if name not in golden.names:
            raise GoldenError(f"no checkpoint {name}; there are {', '.join(golden.names)}")
    found = _Findings(golden, runtime, here)
    for name in names or golden.names:
        progress(name)
        found.decode(name)
        if drawn is not None:
            found.draw(name, drawn)
    if zoo:
        found.compare_names(zoo)
    if not found.lists:
        raise GoldenError(f"nothing was compared: {'; '.join(found.left_out)}")
    return Checked(
        here,
        found.machine,
        found.judged,
        tuple(found.tokens),
        tuple(found.tokens_elsewhere),
        tuple(found.checkpoints),
        tuple(found.floats),
        golden.stale,
        tuple(dict.fromkeys(found.left_out)),
        found.lists,
        found.arrays,
    )


class _Findings:
    """Everything found so far."""

    def __init__(self, golden: Golden, runtime: CheckedRuntime, here: Machine) -> None:
        self.machine = golden.machine(here.key) or nearest(golden.machines, here)
        self.judged = self.machine.key == here.key
        self.tokens: list[Change] = []
        self.tokens_elsewhere: list[Change] = []
        self.checkpoints: list[Change] = []
        self.floats: list[Change] = []
        self.left_out: list[str] = []
        self.lists = self.arrays = 0
        self._golden, self._runtime = golden, runtime

    def decode(self, name: str) -> None:
        """Decode again with the golden's own checkpoint."""
        due, folder = self._golden.tokens(name), self._golden.checkpoint(name)
        floats = self._golden.floats(self.machine.key, name)
        models = self._runtime.description.models
        if models and due.model not in models:
            self.left_out.append(f"{due.model}: {self._runtime.description.name} has no such model")
            return
        try:
            made, arrays = replay(self._runtime, folder, due)
        except Unsupported as error:
            self.left_out.append(f"{name}: {error.reason}")
            return
        expected = self._shown(floats.arrays)
        # A bfloat16 token hangs on where values are rounded, which is the backend's own matter.
        judged = self.judged or due.dtype == "float32"
        (self.tokens if judged else self.tokens_elsewhere).extend(compare_tokens(name, due, made))
        self.floats += compare_arrays(name, expected, arrays)
        self.lists += len(due.vectors)
        if self._runtime.offers(Capability.DRAFTS):  # else rounds are not run
            self.lists += sum(len(s.rounds) for v in due.vectors for s in v.scripts)
        self.arrays += len(expected)

    def _shown(self, arrays: Arrays) -> Arrays:
        """The arrays that this runtime can be asked for."""
        description = self._runtime.description
        if not self._runtime.offers(Capability.DRAFTS):
            self.left_out.append("rounds, logits and states: it takes no drafts")
            return {}
        logits = self._runtime.offers(Capability.LOGITS)
        state = self._runtime.offers(Capability.STATE)
        same_rows = OPTIONS.head_rows in description.head_rows
        heads = self._runtime.offers(Capability.HEAD_STATE) and same_rows
        missing = {"logits": logits, "states of the target": state, "states of the head": heads}
        self.left_out += [
            f"{what}: it does not show them" for what, ok in missing.items() if not ok
        ]
        return {n: a for n, a in arrays.items() if _is_shown(n, logits, state, heads)}

    def compare_names(self, zoo: Sequence[str]) -> None:
        """Compare the names of checkpoints with those that there are to be."""
        have = self._golden.names
        gone = [(name, "is gone") for name in zoo if name not in have]
        new = [(name, "is of no model of the zoo") for name in have if name not in zoo]
        for name, what in (*gone, *new):
            self.checkpoints.append(Change(name, "checkpoint", "all of it", what, None, 1))

    def draw(self, name: str, drawn: Callable[[str, str], Path]) -> None:
        """Compare the golden's checkpoint with one made now."""
        tokens, folder = self._golden.tokens(name), self._golden.checkpoint(name)
        self.checkpoints += compare_checkpoints(name, folder, drawn(tokens.model, tokens.dtype))


def _is_shown(name: str, logits: bool, state: bool, heads: bool) -> bool:
    last = name.rpartition("/")[2]
    if last == "logits":
        return logits
    return state and (heads or not last.startswith("head."))


def compare_checkpoints(name: str, old: Path, new: Path) -> list[Change]:
    """Two checkpoint folders: tensors by their bits, metadata, other files by their bytes."""
    (before, said), (after, says) = (read_arrays(at / WEIGHTS) for at in (old, new))
    changes = list(compare_arrays(name, before, after, "checkpoint"))
    for key in sorted({*said, *says}):
        if said.get(key) != says.get(key):
            what = f"{said.get(key)!r} became {says.get(key)!r}"
            changes.append(Change(name, "checkpoint", f"metadata {key}", what, 1, 1))
    files = sorted({p.name for folder in (old, new) for p in folder.iterdir()})
    for file in files:
        if file == WEIGHTS:
            continue
        texts = [
            (folder / file).read_bytes() if (folder / file).is_file() else None
            for folder in (old, new)
        ]
        if texts[0] != texts[1]:
            what = "is new" if texts[0] is None else "is gone" if texts[1] is None else "differs"
            changes.append(Change(name, "checkpoint", file, what, None, len(texts[1] or b"")))
    return changes
