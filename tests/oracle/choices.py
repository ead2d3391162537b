# pyright: reportMissingImports=false
# (PyTorch is in the oracle's environment alone)
"""The other readings of a formula that implementations are known to take, run in transformers.

Each is applied to transformers' own model and run in float64; how far the logits move says what
the choice is worth. The specification takes the first reading of every pair:

    l2norm    epsilon added to the sum of squares (transformers, FLA, mlx-lm 0.32.2), not to their
              mean (mlx-lm 0.31.3, some runtimes)
    head_norm the head's norm_h takes its mean over all streams at once (SGLang and others), not
              over each (llama.cpp)
    cells     whole blocks are selected (transformers, MLX runtimes), not cells in a width of
              budget + r - 1 (llama.cpp)
    head_rope pair i is rotated by i, not by i + 1 (transformers' MtpCache): no difference
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from reference_models.config import INDEXED, LINEAR, HybridConfig
from tests.oracle import composed, running
from tests.oracle.cells import selected_by_cells
from tests.oracle.compare import distance
from tests.oracle.double import double
from tests.oracle.hugging_face import open_folder
from tests.oracle.trajectory import Trajectory


def measured(
    folder: Path, config: HybridConfig, golden: Trajectory, drafts: list[int], tokens: list[int]
) -> dict[str, float]:
    """Distance from the golden logits of the trunk (or of the head) under every other reading.

    Args:
        folder: the checkpoint.
        config: its configuration.
        golden: its trajectory.
        drafts: what the chain is given.
        tokens: the prompt.
    """
    found: dict[str, float] = {}

    def run(**options: Any) -> Trajectory:
        target, head = open_folder(folder, torch.float64, **options)
        with double():
            return running.trajectory(target, head, tokens, drafts, config.eos_token_id)[0]

    def moved(name: str, other: Trajectory) -> float:
        return distance(name, other[name], golden[name])

    if LINEAR in config.layer_types:
        with _epsilon_in_the_mean():
            found["l2norm"] = moved("logits.steps", run())
    if config.hc_count > 1:
        found["head_norm"] = moved("head.logits", run(per_stream=True))
    if INDEXED in config.layer_types:
        with _by_cells(config):
            found["cells"] = moved("logits.steps", run())
    with _one_further():
        found["head_rope"] = moved("head.logits", run())
    return found


@contextmanager
def _replaced(owner: Any, name: str, value: Any) -> Generator[None]:
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


@contextmanager
def _epsilon_in_the_mean() -> Generator[None]:
    """Every family's `l2norm` with an epsilon that is D times larger."""
    modules = [
        module
        for name, module in sys.modules.items()
        if name.startswith("transformers.models.qwen") and hasattr(module, "l2norm")
    ]
    plain: list[tuple[Any, Callable[..., Any]]] = [(m, m.l2norm) for m in modules]
    for module, l2norm in plain:
        module.l2norm = lambda x, dim=-1, eps=1e-6, own=l2norm: own(x, dim, eps * x.shape[dim])
    try:
        yield
    finally:
        for module, l2norm in plain:
            module.l2norm = l2norm


@contextmanager
def _by_cells(config: HybridConfig) -> Generator[None]:
    """The indexer's selection made over cells; it is given the scores transformers computed."""
    indexer = composed.qwen4_exp.Qwen4ExpTextQSAIndexer
    plain = indexer.forward

    def forward(self: Any, hidden_states: Any, *args: Any, **kwargs: Any) -> Any:
        spy = running.IndexSpy()
        with spy:
            mask = plain(self, hidden_states, *args, **kwargs)
        queries, keys = mask.shape[2], mask.shape[3]
        scores = spy.rows(queries)["scores"] if spy.scores else np.zeros((queries, 0))
        first = keys - queries
        rows = [
            selected_by_cells(
                scores[i], first + i, keys, config.indexer_budget, config.indexer_compress_ratio
            )
            for i in range(queries)
        ]
        return torch.from_numpy(np.stack(rows))[None, None]

    with _replaced(indexer, "forward", forward):
        yield


@contextmanager
def _one_further() -> Generator[None]:
    """The head's positions counted from one."""
    plain = composed.positions
    shifted: Callable[..., Any] = lambda *args: plain(*args) + 1  # noqa: E731
    with _replaced(composed, "positions", shifted):
        yield
