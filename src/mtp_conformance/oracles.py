"""Where cases get their groups, and what decides how strictly a stream is compared."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import cast

import mlx.core as mx

from mtp_conformance.case import Cell, Witness
from mtp_conformance.checked import CheckedRuntime
from mtp_conformance.exactness import StateDiffers, bits_equal, is_packed, require_equal
from mtp_conformance.failure import RuntimeFailure
from mtp_conformance.group import ForkMovedOriginal, Group, GroupKey, State, target_arrays
from mtp_conformance.protocol import Capability, Options, Runtime
from mtp_conformance.tokens import CountDiffers, require_tokens
from mtp_conformance.verdict import Inconclusive, Unsupported

Groups = OrderedDict[GroupKey, Group]
TIE_FREE_GAP = 1e-3
"""Scores at the cut further apart than this are no tie in any of the data types used."""
MOST_ROUNDING = {"float32": 2.0**-8, "bfloat16": 2.0**-3, "float16": 2.0**-6}
"""How far apart rounding can bring logits or state of a model, in parts of the largest. A pass
further from one-row steps than that does not round otherwise, it computes something else."""
_TIE_FREE_TOKENS = 16
_DRAWS = (0, 19, 47)  # code, code, prose
_MORE_DRAWS = tuple(range(1, 88, 4))
_DRAW_LENGTH = 11


@dataclass(frozen=True)
class ExpertSizes:
    """Routed experts of a checkpoint: bytes of one, and how many the target and the head have."""

    nbytes: int
    count: int
    head_nbytes: int
    head_count: int


@dataclass(frozen=True)
class Materials:
    """What cases decode: the zoo's checkpoints and text.

    Attributes:
        checkpoint: from (model, data type) to its folder.
        prompt: tokens that prompts are stretches of.
        index_gap: from (checkpoint, prompt, new tokens) to the smallest distance between index
            scores at the selection cut; infinite for a model without such an index.
        expected_state: from (checkpoint, tokens) to names and shapes of all cache arrays.
        expected_drafts: from (checkpoint, tokens, K) to the drafts after these tokens of the head
            run alone, and how far each lies above the runner-up; made by the specification.
        expert_sizes: from a checkpoint to its routed experts.
        routing: from (checkpoint, tokens) to the experts that the specification chooses, by layer
            with experts and by token.
        seed: of all of this, and of what a case draws at random; 0 is the usual one.
    """

    checkpoint: Callable[[str, str], Path]
    prompt: Sequence[int]
    index_gap: Callable[[Path, Sequence[int], int], float]
    expected_state: Callable[[Path, int], dict[str, tuple[int, ...]]]
    expected_drafts: Callable[[Path, Sequence[int], int], list[tuple[int, float]]]
    expert_sizes: Callable[[Path], ExpertSizes]
    routing: Callable[[Path, Sequence[int]], list[list[tuple[int, ...]]]]
    seed: int = 0


class NotDeterministic(Exception):
    """K=0 run twice gave two results; no verdict on K>0 means anything."""


class Oracles:
    """Groups by model, data type and prompt; the last few are kept.

    With `row_exact` the runtime decodes row-exact, and bits are demanded on any backend.

    Raises:
        RuntimeFailure: the runtime's card is none, or it has no row-exact mode.
    """

    groups_kept = 4

    def __init__(self, runtime: Runtime, materials: Materials, *, row_exact: bool = False) -> None:
        self.runtime = CheckedRuntime(runtime, row_exact=row_exact)
        self.description = self.runtime.description
        if row_exact and not self.runtime.offers(Capability.ROW_EXACT):
            raise RuntimeFailure(
                f"{self.description.name} has no row-exact mode; judge it without --row-exact"
            )
        self._materials = materials
        self._groups: Groups = OrderedDict()
        self._drawn: Groups = OrderedDict()
        self._generation = self.runtime.generation
        self._deterministic: set[GroupKey] = set()
        self._tie_free: dict[GroupKey, int] = {}
        self._exact: dict[tuple[GroupKey, int, str, int], bool] = {}

    @property
    def seed(self) -> int:
        """Of models, text, and of what a case draws at random."""
        return self._materials.seed

    def need(self, *capabilities: Capability) -> None:
        """Refuse a case the runtime does not offer enough for.

        Raises:
            Unsupported: names what is missing.
        """
        missing = [c.value for c in capabilities if c not in self.description.capabilities]
        if missing:
            raise Unsupported(f"{self.description.name} does not offer {', '.join(missing)}")

    def need_depth(self, k: int) -> None:
        """Refuse a case with more drafts than the runtime takes.

        Raises:
            Unsupported: names the largest K.
        """
        if k > self.description.max_draft_tokens:
            most = self.description.max_draft_tokens
            raise Unsupported(f"{self.description.name} drafts at most {most} tokens, not {k}")

    def held_after_stop(self, emitted: int) -> int:
        """How many of the emitted tokens the target's caches hold once `generate` ended.

        Raises:
            Unsupported: the runtime leaves them anywhere in the last block, or its note on the
                topic `after stop` says what keeps them from being looked at.
        """
        if self.description.after_stop == "block":
            why = self.description.notes.get("after stop", "")
            left = why or "the caches are left anywhere in the last block when it stops"
            raise Unsupported(f"{self.description.name}: {left}")
        return emitted if self.description.after_stop == "emitted" else emitted - 1

    def options(self, cell: Cell, *, head_rows: str = "") -> Options:
        """How the sessions of a cell decode.

        Raises:
            Unsupported: the runtime has no such strategy.
        """
        strategy = cell.strategy or ""
        if strategy and strategy not in self.description.strategies:
            raise Unsupported(f"{self.description.name} has no strategy {strategy}")
        head_rows = head_rows or self.description.head_rows[0]
        if head_rows not in self.description.head_rows:
            raise Unsupported(f"{self.description.name} makes no head rows from {head_rows}")
        return Options(strategy=strategy, head_rows=head_rows)

    def with_policy(self, cell: Cell) -> Options:
        """How the sessions of a cell decode whose depth a policy chooses.

        Raises:
            Unsupported: the runtime has no such policy, or no such strategy.
        """
        policy = str(cell.params["policy"])
        if policy not in self.description.depth_policies:
            raise Unsupported(f"{self.description.name} has no depth policy {policy}")
        return replace(self.options(cell), depth_policy=policy)

    def prefill_like(
        self, cell: Cell, *, stopped: bool = False
    ) -> tuple[Options, Callable[[State], State]]:
        """Options under which a state is that of a prefill over the same tokens, and its part.

        With head rows from target residuals that is the whole state; for a runtime that makes
        them otherwise, the target's arrays. So it is of one that has `stopped` with all emitted
        tokens cached, as the head's rows end with a token that is not known then.
        """
        if stopped and self.description.after_stop == "emitted":
            return self.options(cell), target_arrays
        if "target" in self.description.head_rows:
            return self.options(cell, head_rows="target"), lambda state: state
        return self.options(cell), target_arrays

    def group(self, cell: Cell, *, tie_free: bool = False) -> Group:
        """The group of a cell; the model's determinism control comes first.

        Args:
            cell: model, data type and prompt length.
            tie_free: take a stretch of text in which no index score comes close to another
                at the selection cut, so that no verdict hangs on how ties are broken.

        Raises:
            Unsupported: the runtime cannot open the model, or decode as the cell says.
            NotDeterministic: K=0 twice gave two results.
        """
        self.options(cell)
        self.need_depth(cell.k or 0)
        control = self.key(cell)._replace(prompt_length=0, quantized_kv_start=0)
        if control not in self._deterministic:
            try:
                self.check_determinism(cell)
            except ForkMovedOriginal:
                raise
            except AssertionError as error:
                raise NotDeterministic(f"K=0 run twice gives two results: {error}") from error
            self._deterministic.add(control)
        key = self.key(cell)
        return self._find(key._replace(start=self._tie_free_start(key)) if tie_free else key)

    def _find(self, key: GroupKey, groups: Groups | None = None) -> Group:
        groups = self._groups if groups is None else groups
        if self.runtime.generation != self._generation:
            self.forget()  # sessions of a process that is gone
        if key not in groups:
            groups[key] = self.fresh_group(key)
            self._generation = self.runtime.generation
        groups.move_to_end(key)
        while len(groups) > self.groups_kept:
            groups.popitem(last=False)
        return groups[key]

    def key(self, cell: Cell) -> GroupKey:
        """What the group of a cell is found by."""
        return key_of(cell)

    def forget(self) -> None:
        """Drop every group: what they hold may be broken."""
        self._groups.clear()
        self._drawn.clear()
        self._generation = self.runtime.generation

    def fresh_group(self, key: GroupKey) -> Group:
        """A group that shares nothing with any other."""
        prompt = self._materials.prompt[key.start : key.start + key.prompt_length]
        return Group(self.runtime, self._checkpoint(key), key, prompt)

    def _checkpoint(self, key: GroupKey) -> Path:
        return self._materials.checkpoint(key.model, key.dtype)

    def expected_state(self, group: Group, tokens: int) -> dict[str, tuple[int, ...]]:
        """Names and shapes a group's state has after that many target tokens.

        The head's are left out for a runtime that does not show it.
        """
        due = self._materials.expected_state(group.checkpoint, tokens)
        if self.runtime.offers(Capability.HEAD_STATE):
            return due
        return {name: shape for name, shape in due.items() if not name.startswith("head.")}

    def expected_drafts(
        self, group: Group, tokens: Sequence[int], k: int
    ) -> list[tuple[int, float]]:
        """The head's K drafts after these tokens, and their margins, by the specification."""
        return self._materials.expected_drafts(group.checkpoint, tokens, k)

    def expert_sizes(self, group: Group) -> ExpertSizes:
        """The routed experts of a group's checkpoint."""
        return self._materials.expert_sizes(group.checkpoint)

    def routing(self, group: Group, tokens: Sequence[int]) -> list[list[tuple[int, ...]]]:
        """The experts chosen for every token, by layer with experts; by the specification."""
        return self._materials.routing(group.checkpoint, tokens)

    def _tie_free_start(self, key: GroupKey) -> int:
        if key not in self._tie_free:
            starts = range(len(self._materials.prompt) - key.prompt_length)
            found = (s for s in starts if self._gap(key, s) > TIE_FREE_GAP)
            start = next(found, None)
            if start is None:
                raise Inconclusive(f"no stretch of {key.prompt_length} tokens is free of ties")
            self._tie_free[key] = start
        return self._tie_free[key]

    def _gap(self, key: GroupKey, start: int) -> float:
        prompt = self._materials.prompt[start : start + key.prompt_length]
        return self._materials.index_gap(self._checkpoint(key), prompt, _TIE_FREE_TOKENS)

    def exact(self, key: GroupKey, k: int, strategy: str = "") -> bool:
        """Whether a verify pass of K+1 rows gives the loaded model the bits of one-row steps.

        Three draws of prompt and drafts; one row that differs in one of them is enough for no.
        A runtime that shows no logits is taken to be exact, and so is one whose logits are apart
        by more than rounding can be: nothing may be loosened for either. One that decodes
        row-exact has promised it.
        """
        if self.runtime.row_exact:
            return True
        if not self.runtime.offers(Capability.LOGITS, Capability.DRAFTS) or k == 0:
            return True
        return self.found_exact(key, k, strategy)

    def found_exact(self, key: GroupKey, k: int, strategy: str = "") -> bool:
        """As `exact`, found out whatever is promised."""
        return self._exact_over(key, k, strategy, _DRAWS)

    def _exact_over(self, key: GroupKey, k: int, strategy: str, draws: Sequence[int]) -> bool:
        name = (_drawn(key, 0), k, strategy, len(draws))
        if name not in self._exact:
            exact = (self._draw_is_exact(key, start, k, strategy) for start in draws)
            self._exact[name] = all(exact)
        return self._exact[name]

    def prefill_exact(self, key: GroupKey) -> bool:
        """Whether one pass over many tokens gives the loaded model the bits of one-row steps.

        Of three draws. As in `exact` a runtime that shows no state is taken to be, and so is one
        whose states are apart by more than rounding can be.
        """
        if not self.runtime.offers(Capability.STATE, Capability.DRAFTS):
            return True
        name = (_drawn(key, 0), 0, "prefill", len(_DRAWS))
        if name not in self._exact:
            groups = (self._draw(key, start) for start in _DRAWS)
            self._exact[name] = all(_prefill_is_exact(group) for group in groups)
        return self._exact[name]

    def _prefill_excuses(self, key: GroupKey, error: AssertionError) -> bool:
        """Whether a difference can be one between passes over prompt tokens and one-row steps.

        Passes of a prompt come in any width, and for most values kernels agree: three draws that
        do tell little where the device's products round by the number of rows. What rounding is
        there is for the device to say, and not for the runtime that may be wrong.
        """
        if not may_round(error):
            return False
        from mtp_conformance.probe import products_are_row_exact  # numpy, which authors may lack

        return not self.prefill_exact(key) or not products_are_row_exact()

    def condemns(
        self,
        key: GroupKey,
        depths: Iterable[int],
        error: AssertionError,
        strategy: str = "",
        *,
        prefill: bool = False,
    ) -> bool:
        """Whether a difference from one-row steps is a fault: nothing but exactness explains it.

        Some kernels differ for some values only, so a difference is held against more draws than
        the probe's before it counts; whole numbers, shapes, types and NaN never differ by rounding.
        With `prefill` what was compared came from passes over prompt tokens, of which row-exact
        decoding promises nothing.
        """
        if prefill and self._prefill_excuses(key, error):
            return False
        if self.runtime.row_exact:
            return True
        used = [k for k in set(depths) if k]
        if not all(self.exact(key, k, strategy) for k in used):
            return False
        if not may_round(error) or not self.runtime.offers(Capability.LOGITS, Capability.DRAFTS):
            return True
        try:
            return all(self._exact_over(key, k, strategy, _MORE_DRAWS) for k in used)
        except RuntimeFailure:
            return True  # a runtime that breaks when looked at closely excuses nothing

    def draws(self, cell: Cell) -> Iterator[Group]:
        """Three groups of a cell's model and data type, for what one input would not prove."""
        self.group(cell)
        for start in _DRAWS:
            yield self._draw(self.key(cell), start)

    def until_seen(
        self,
        cell: Cell,
        witness: Witness,
        lengths: Sequence[int],
        seen: Sequence[str] = ("accepted", "rejected"),
    ) -> Iterator[tuple[Group, int]]:
        """Groups and how many tokens to decode, until a case saw what it is about.

        The cell's own prompt comes first, for one length after the other. The text may have run
        into a loop by then that the head always predicts, or never, or no two tokens nearly tie in
        it; more of it would tell nothing. So the draws follow, which lie apart in the text. Every
        group is held to the case's claim in full before the next is asked for, and the case demands
        the same of its witness in the end: where the draws do not bring it either, it proves
        nothing.

        Args:
            cell: model, data type and prompt.
            witness: told of each group before the next is asked for.
            lengths: of the cell's own prompt; draws take the last.
            seen: what the witness has to count.
        """
        own = ((self.group(cell), length) for length in lengths)
        drawn = ((group, lengths[-1]) for group in self.draws(cell))
        for group, length in chain(own, drawn):
            yield group, length
            counts = witness.as_dict()
            if all(counts.get(name, 0) for name in seen):
                return

    def _draw(self, key: GroupKey, start: int) -> Group:
        """A drawn group; these are kept apart, so that they push no cell's group out."""
        return self._find(_drawn(key, start), self._drawn)

    def _draw_is_exact(self, key: GroupKey, start: int, k: int, strategy: str) -> bool:
        group = self._draw(key, start)
        session = group.prefilled(Options(strategy))
        block = session.round(group.drafts(1, k, k)).logits
        assert block is not None
        rows = {f"row {i}": block[i : i + 1] for i in range(k + 1)}
        steps = {f"row {i}": group.plain_logits(i + 1) for i in range(k + 1)}
        if self.runtime.offers(Capability.STATE):  # logits of a narrow type hide much of it
            steps |= group.plain_state(k + 1)
            rows |= {n: a for n, a in target_arrays(session.state()).items() if n in steps}
        return not _apart_by_rounding(rows, steps, key)

    @contextmanager
    def bits_against_prefill(self, group: Group, k: int, strategy: str = "") -> Generator[None]:
        """Enclose a claim of bits against a pass over many tokens; see `bits_against_steps`."""
        with self.bits_against_steps(group, k, strategy, prefill=True):
            yield

    @contextmanager
    def bits_against_steps(
        self, group: Group, k: int, strategy: str = "", *, prefill: bool = False
    ) -> Generator[None]:
        """Enclose a claim of bits against one-row steps.

        Where it fails and the runtime turns out to round a pass of K+1 rows otherwise than
        steps, nothing is known of the claim.

        Raises:
            Inconclusive: says which width; else whatever the claim raised.
        """
        try:
            yield
        except AssertionError as error:
            # Equal tokens that end too late or too early are no matter of rounding.
            if isinstance(error, CountDiffers):
                raise
            if self.condemns(group.key, [k], error, strategy, prefill=prefill):
                raise
            if prefill and self._prefill_excuses(group.key, error):
                raise Inconclusive(
                    "one pass over many tokens rounds otherwise than one-token steps do here; bits "
                    "against a prefill need a device on which it does not"
                ) from error
            raise Inconclusive(
                f"a verify pass of {k + 1} rows rounds otherwise than {k + 1} steps do here; "
                "bits against steps need row-exact verification"
            ) from error

    def check_determinism(self, cell: Cell, rounds: int = 4, tokens: int = 0) -> int:
        """Run K=0 twice and demand the same bits; returns the number of values compared.

        Args:
            cell: model, data type and prompt length.
            rounds: whose logits and states are compared, too.
            tokens: compared, if these are more.

        Raises:
            AssertionError: names the first token or array that differs.
        """
        first, second = self._find(self.key(cell)), self.fresh_group(self.key(cell))
        second.require_forks_apart()
        what = "a second K=0 run from the same prompt"
        streams = (group.stream(max(rounds + 1, tokens)) for group in (second, first))
        compared = require_tokens(*streams, what=what)
        for n in range(rounds + 1):
            if self.runtime.offers(Capability.STATE, Capability.DRAFTS):
                compared += require_equal(second.plain_state(n), first.plain_state(n), what=what)
            if self.runtime.offers(Capability.LOGITS, Capability.DRAFTS):
                pair = ({"logits": group.plain_logits(n)} for group in (second, first))
                compared += require_equal(*pair, what=what)
        return compared


def _alike(row: mx.array, step: mx.array, rounding: float) -> bool:
    """Whether two arrays are no further apart than that part of the larger one's largest."""
    if row.shape != step.shape or row.dtype != step.dtype:
        return False
    if not mx.issubdtype(row.dtype, mx.floating):
        return bits_equal(row, step) is None
    wide, other = (x.astype(mx.float32) for x in (row, step))
    largest = mx.abs(other).max() * rounding
    return cast("bool", (mx.abs(wide - other).max() <= largest).item())


def _prefill_is_exact(group: Group) -> bool:
    direct, steps = (target_arrays(s) for s in (group.direct_state(3), group.plain_state(3)))
    if set(direct) != set(steps):
        return True  # no rounding leaves out an array
    return not _apart_by_rounding(direct, steps, group.key)


def may_round(error: AssertionError) -> bool:
    """Whether what differs are values: nothing else differs by rounding."""
    return not isinstance(error, StateDiffers) or error.rounding


def _apart_by_rounding(state: State, steps: State, key: GroupKey) -> bool:
    """Whether arrays of a state differ from those of steps, and by no more than rounding can."""
    if all(bits_equal(array, steps[name]) is None for name, array in state.items()):
        return False
    rounding = MOST_ROUNDING[key.dtype]
    return all(
        _rows_alike(name, state, steps, key)
        if key.kv_bits and is_packed(name, state)
        else _alike(array, steps[name], rounding)
        for name, array in state.items()
    )


def _rows_alike(name: str, state: State, steps: State, key: GroupKey) -> bool:
    """As `_alike`, of quantised rows: rounding may also bring a value to the next step."""
    parts = packed, scales, biases = name, f"{name}_scales", f"{name}_biases"
    if any(state[part].shape != steps[part].shape for part in parts):
        return False
    size, bits = key.kv_group_size, key.kv_bits
    rows, other = (
        mx.dequantize(s[packed], s[scales], s[biases], group_size=size, bits=bits)
        for s in (state, steps)
    )
    step = mx.abs(steps[scales]).max().astype(mx.float32)
    apart = mx.abs(rows.astype(mx.float32) - other.astype(mx.float32)).max()
    largest = mx.abs(other).max().astype(mx.float32)
    return cast("bool", (apart <= largest * MOST_ROUNDING[key.dtype] + step).item())


def _drawn(key: GroupKey, start: int) -> GroupKey:
    # Its rounds may not reach over a place where the caches become quantised.
    return key._replace(prompt_length=_DRAW_LENGTH, start=start, quantized_kv_start=0)


def key_of(cell: Cell) -> GroupKey:
    """The group a cell belongs to."""
    assert cell.model is not None and cell.dtype is not None
    assert cell.prompt_length is not None
    extra = dict(cell.extra)
    names = ("kv_bits", "kv_group_size", "quantized_kv_start", "start")
    bits, size, quantised_from, start = (int(extra.get(name, 0)) for name in names)
    key = GroupKey(cell.model, cell.dtype, cell.prompt_length, start)
    if not bits:
        return key
    return key._replace(kv_bits=bits, kv_group_size=size, quantized_kv_start=quantised_from)


def logits_of(outcome_logits: mx.array | None) -> dict[str, mx.array]:
    """Logits as a state of one array.

    Raises:
        RuntimeFailure: there are none.
    """
    if outcome_logits is None:
        raise RuntimeFailure("claims to give logits and gave none")
    return {"logits": outcome_logits}
