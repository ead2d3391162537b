"""The axes, and which of their cells a profile runs.

The default profile has every model x strategy x K x accepted once; data type and prompt
length go along such that every pair of values of any two axes occurs together somewhere.
`full` has the whole product, `smoke` a handful. `peers` is what other runtimes are compared
by: the families they know, every strategy of theirs, the depths that most of them have.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product

from mtp_conformance.case import Cell, Cells

MODELS = ("attn", "gdn", "gdn-moe", "gdn-mtp2", "window", "ple", "qsa", "flash-next")
"""Models of the zoo."""

AGREEING_MODELS = ("gdn-agree", "gdn-agree+mlx-lm")
"""Models whose head is often right."""

CLASS_MODELS = ("gdn+mlx-lm", "gdn-moe+mlx-lm", "gdn-next+mlx-lm")
"""Checkpoints of the zoo in mlx-lm's own model classes."""

TRAINED_MODELS = ("qwen3_5-bytes", "flash-next-bytes", "qwen3_5-bytes+mlx-lm")
"""Trained checkpoints: heads that are right as often as real ones, and logits that nearly tie.

They run in `nightly` and `full`, in bfloat16, as they were shipped.
"""
TRAINED_STARTS = (0, 40)
"""Where their prompts start in the text: code, and prose."""
TRAINED_LENGTH = 36

PEER_MODELS = ("attn", "gdn", "gdn-agree", "gdn-moe", "gdn-next", "flash-next")
"""Models of families that other runtimes open, in profile `peers`."""

PEER_DEPTH = 3
"""The deepest K of profile `peers`; deeper cells become cells of this depth."""

EXPERT_MODELS = ("gdn-moe", "gdn-next", "flash-next", "gdn-moe+mlx-lm", "gdn-next+mlx-lm")
"""Models with routed experts."""

LIFECYCLE_MODELS = ("gdn", "window", "qsa", "gdn-next+mlx-lm", "flash-next")
"""Models with every kind of cache between them, for what is done to whole sessions."""

QUICK = ("default", "gate", "smoke")
"""Profiles for a person who waits."""

STRATEGIES = ("tape", "rerun", "snapshot", "replay")
DTYPES = ("float32", "bfloat16")
PROMPT_LENGTHS = tuple(range(1, 13))
DEPTHS = tuple(range(1, 9))
ROUNDS = tuple((k, accepted) for k in DEPTHS for accepted in range(k + 1))
"""Every K with every accept count."""


def dtypes_of(model: str) -> tuple[str, ...]:
    """Data types a model runs in everywhere.

    mlx-lm's experts need float32 on the CPU backend; trained models are bfloat16.
    """
    if model in TRAINED_MODELS:
        return DTYPES[1:]
    return DTYPES[:1] if model in EXPERT_MODELS and "+" in model else DTYPES


def with_strategies(cells: Sequence[Cell], strategies: Sequence[str]) -> list[Cell]:
    """The cells with another runtime's strategies in place of the builtin decoder's.

    Each strategy of the grid stands for one of the given ones, or for several where there are
    more, in turn; cells that become the same are run once.
    """
    found: dict[str, Cell] = {}
    size = len(STRATEGIES)
    stands_for = {
        name: strategies[i::size] or strategies[i % len(strategies) :][:1]
        for i, name in enumerate(STRATEGIES)
    }
    for cell in cells:
        for chosen in stands_for.get(cell.strategy or "", [cell.strategy]):
            renamed = replace(cell, strategy=chosen)
            found.setdefault(renamed.id, renamed)
    return list(found.values())


def within_depth(cells: Sequence[Cell], most: int) -> list[Cell]:
    """The cells, with K lowered to a runtime's deepest where all of a model's are deeper.

    A model that keeps a shallow enough cell keeps the deep ones too, as unsupported.
    """
    shallowest: dict[str | None, int] = {}
    for cell in cells:
        if cell.k is not None:
            shallowest[cell.model] = min(cell.k, shallowest.get(cell.model, cell.k))
    found: dict[str, Cell] = {}
    for cell in cells:
        lowered = cell
        if cell.k is not None and shallowest[cell.model] > most:
            accepted = cell.accepted if cell.accepted is None else min(cell.accepted, most)
            lowered = replace(cell, k=most, accepted=accepted)
        found.setdefault(lowered.id, lowered)
    return list(found.values())


def _for_peers(models: Sequence[str]) -> list[str]:
    """The models of a case that other runtimes know; in mlx-lm's classes or not is one."""
    names = {name.partition("+")[0] for name in models}
    return [name for name in PEER_MODELS if name in names]


def prompt_for(*position: int) -> int:
    """A prompt length that varies along every axis; the strides are coprime to the number."""
    strides = (1, 5, 7, 11, 1)
    walked = sum(p * s for p, s in zip(position, strides, strict=False))
    return PROMPT_LENGTHS[walked % len(PROMPT_LENGTHS)]


def dtype_for(model: str, *position: int) -> str:
    """A data type that varies along every axis."""
    choices = dtypes_of(model)
    return choices[sum(position) % len(choices)]


def one_round(profile: str) -> Sequence[Cell]:
    """Cells of one round: model x strategy x K x accepted, the other axes by profile."""
    if profile == "full":
        return list(_every_round())
    if profile == "smoke":
        axes = product(enumerate(MODELS), enumerate(STRATEGIES[:2]), ((1, 0), (3, 1)))
        return [_round_cell(m, i, s, j, k, a) for (i, m), (j, s), (k, a) in axes]
    if profile == "peers":
        rounds = [(k, accepted) for k, accepted in ROUNDS if k <= PEER_DEPTH]
        axes = product(enumerate(PEER_MODELS), enumerate(STRATEGIES), rounds)
        cells = [_round_cell(m, i, s, j, k, a) for (i, m), (j, s), (k, a) in axes]
        return [replace(c, dtype=DTYPES[0]) if c.model in EXPERT_MODELS else c for c in cells]
    axes = product(enumerate(MODELS), enumerate(STRATEGIES), ROUNDS)
    cells = [_round_cell(m, i, s, j, k, a) for (i, m), (j, s), (k, a) in axes]
    others = (*CLASS_MODELS, *(() if profile in QUICK else TRAINED_MODELS))
    classes = product(enumerate(others), enumerate(ROUNDS))
    for (i, model), (n, (k, accepted)) in classes:
        j = (n + i) % len(STRATEGIES)
        cells.append(_round_cell(model, i, STRATEGIES[j], j, k, accepted))
    return cells


def one_round_in_turn(profile: str) -> Sequence[Cell]:
    """The cells of `one_round`, but for each model, K and accept count one strategy by default.

    For what follows from the state that the other cells of the round are held to.
    """
    cells = one_round(profile)
    if profile in ("full", "smoke", "peers"):
        return cells
    return [cell for cell in cells if _is_its_turn(cell)]


def _is_its_turn(cell: Cell) -> bool:
    if cell.model not in MODELS or cell.strategy is None:
        return True  # the others have one strategy a round already
    turn = MODELS.index(cell.model) + (cell.k or 0) + (cell.accepted or 0)
    return STRATEGIES.index(cell.strategy) == turn % len(STRATEGIES)


def _round_cell(model: str, i: int, strategy: str, j: int, k: int, accepted: int) -> Cell:
    # Two lengths an accept count and model, so that their expected values are shared by all K.
    prompt_length = PROMPT_LENGTHS[(accepted + i + 6 * (j % 2)) % len(PROMPT_LENGTHS)]
    dtype = dtype_for(model, i, prompt_length // 2, prompt_length)
    return Cell(model, strategy, k, accepted, dtype, prompt_length)


def _every_round() -> Iterator[Cell]:
    for model in (*MODELS, *CLASS_MODELS, *TRAINED_MODELS):
        axes = product(STRATEGIES, ROUNDS, dtypes_of(model), PROMPT_LENGTHS)
        for strategy, (k, accepted), dtype, prompt_length in axes:
            yield Cell(model, strategy, k, accepted, dtype, prompt_length)


def spread(
    *,
    models: Sequence[str] = (*MODELS, *CLASS_MODELS),
    strategies: Sequence[str] = STRATEGIES,
    depths: Sequence[int | None] = (None,),
    every_strategy: bool = False,
    only_in_full: Sequence[str] = (),
    not_by_default: Sequence[str] = (),
) -> Cells:
    """Cells of model x strategy x K, the other axes by profile.

    Args:
        models: values of the axis.
        strategies: values of the axis.
        depths: values of K; None leaves the axis out.
        every_strategy: in the default profile, run every strategy or one that varies with
            model and K.
        only_in_full: models left to the full profile.
        not_by_default: models left to profiles with more time, `nightly` and `peers` among them.
    """

    def cells(profile: str) -> Sequence[Cell]:
        whole, peers = profile == "full", profile == "peers"
        found: list[Cell] = []
        left_out = () if whole else only_in_full
        left_out = (*left_out, *not_by_default) if profile in QUICK else left_out
        chosen = [m for m in models if m not in left_out]
        used = depths
        if peers:
            chosen = _for_peers(chosen)
            used = list(dict.fromkeys(k and min(k, PEER_DEPTH) for k in depths))
        for (i, model), (n, k) in product(enumerate(chosen), enumerate(used)):
            for j, strategy in enumerate(strategies):
                if not (whole or peers or every_strategy) and j != (i + n) % len(strategies):
                    continue
                length = prompt_for(i, j, k or n)
                lengths = PROMPT_LENGTHS if whole else (length,)
                # Parity 0 0 1 1 1 1 0 0 along n, so that each strategy meets both types.
                dtypes = dtypes_of(model) if whole else (dtype_for(model, i, n // 4 + n // 2),)
                if peers and model in EXPERT_MODELS:
                    dtypes = DTYPES[:1]  # mlx's CPU backend gathers experts in float32 only
                for dtype, prompt_length in product(dtypes, lengths):
                    found.append(Cell(model, strategy, k, None, dtype, prompt_length))
        return found[::5] if profile == "smoke" else found

    return cells


def with_trained(
    cells: Cells,
    *,
    models: Sequence[str] = TRAINED_MODELS,
    strategies: Sequence[str] = STRATEGIES,
    depths: Sequence[int | None] = (None,),
) -> Cells:
    """The cells, and in profiles with time those of trained models after code and after prose.

    Args:
        cells: of the zoo.
        models: the trained ones.
        strategies: values of the axis; in `nightly` one in turn.
        depths: values of K; None leaves the axis out.
    """

    def more(profile: str) -> Sequence[Cell]:
        if profile not in ("nightly", "full"):
            return cells(profile)
        found = list(cells(profile))
        axes = product(enumerate(models), enumerate(depths), enumerate(TRAINED_STARTS))
        for (i, model), (n, k), (s, start) in axes:
            for j, strategy in enumerate(strategies):
                if profile == "full" or j == (i + n + s) % len(strategies):
                    extra = (("start", start),)
                    dtype = dtypes_of(model)[0]
                    found.append(Cell(model, strategy, k, None, dtype, TRAINED_LENGTH, extra))
        return found

    return more
