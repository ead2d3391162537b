"""Oracles over one folder and the prompts of a gate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from mtp_conformance.case import Cell
from mtp_conformance.gate.frugal import FrugalGroup
from mtp_conformance.gate.prompts import Prompt
from mtp_conformance.group import Group, GroupKey
from mtp_conformance.oracles import Materials, Oracles, key_of
from mtp_conformance.protocol import Runtime

_TEXT = 128
"""Tokens that the probe of a model draws from, at least."""


class GateOracles(Oracles):
    """Groups of a folder's prompts, one at a time, closed when they are done with.

    A cell's extra axis `prompt` names its prompt.
    """

    groups_kept = 1

    def __init__(
        self, runtime: Runtime, folder: Path, prompts: Sequence[Prompt], *, row_exact: bool = False
    ) -> None:
        super().__init__(runtime, _materials(folder, prompts), row_exact=row_exact)
        # A list of models is of the zoo's; whether it can open this folder, opening it shows.
        self.description = replace(self.runtime.description, models=())
        self.runtime.description = self.description
        self.runtime.dropped = []
        ends = [sum(len(p.tokens) for p in prompts[:n]) for n in range(len(prompts))]
        self._starts = {prompt.name: end for prompt, end in zip(prompts, ends, strict=True)}

    def key(self, cell: Cell) -> GroupKey:
        """See `Oracles`."""
        start = self._starts[str(cell.params["prompt"])]
        return key_of(cell)._replace(start=start)

    def fresh_group(self, key: GroupKey) -> Group:
        """See `Oracles`."""
        prompt = self._materials.prompt[key.start : key.start + key.prompt_length]
        return FrugalGroup(self.runtime, self._checkpoint(key), key, prompt)

    def control(self, cell: Cell, rounds: int, tokens: int) -> int:
        """The determinism control of a cell's prompt; returns how much was compared.

        Args:
            cell: names the prompt.
            rounds: compared in logits and state.
            tokens: compared.

        Raises:
            AssertionError: K=0 twice gave two results.
        """
        compared = self.check_determinism(cell, rounds, tokens)
        self._deterministic.add(self.key(cell)._replace(prompt_length=0, quantized_kv_start=0))
        return compared

    def tidy(self) -> None:
        """Give up what a cell needed and the next one does not."""
        self._drawn.clear()
        self.runtime.close_dropped()


def _materials(folder: Path, prompts: Sequence[Prompt]) -> Materials:
    own = [token for prompt in prompts for token in prompt.tokens]
    times = -(-_TEXT // len(own))
    return Materials(
        checkpoint=lambda model, dtype: folder,
        prompt=own * times,
        index_gap=_not_known,
        expected_state=_not_known,
        expected_drafts=_not_known,
        expert_sizes=_not_known,
        routing=_not_known,
    )


def _not_known(*_: Any) -> Any:
    raise LookupError("of a real checkpoint there is no specification to ask")
