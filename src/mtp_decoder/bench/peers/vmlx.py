"""vmlx's native MTP in mlx-lm's `BatchGenerator`, or the same generator plain at K=0, as an arm.

    python vmlx.py < SPEC          (in an environment with vmlx)

`BatchGenerator` of one sequence with its patches of mlx-lm, as its scheduler makes it for a model
with a head. K drafts are a fixed depth, without its safety valve or its trials of other depths;
K=0 is its default, which keeps a workload that it has not measured plain. Acceptance is what each
verify cycle adds to its counters (`draft_tokens_proposed` and `draft_tokens_accepted`). Some time
after 128 tokens it takes nine plain steps to see what one costs: those are rounds without drafts.
"""
# Its packages live in the runtime's own environment alone.
# pyright: reportMissingImports=false

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from measuring import one_of_a_batch, serve


class Vmlx:
    """A `measuring.Loop`."""

    def __init__(self, folder: Path, k: int) -> None:
        if k > 3:
            raise ValueError("vmlx makes three drafts a round at most")
        # It tries a neighbouring depth once it has so many samples, a fixed depth or not.
        held = {"DEPTH": k, "ADAPTIVE_DEPTH": 0, "AR_SAFETY": 0, "VALUE_MIN_SAMPLES": 1 << 30}
        fixed = held if k else {}
        os.environ.update({f"VMLX_NATIVE_MTP_{name}": str(value) for name, value in fixed.items()})
        from mlx_lm.utils import load_model
        from vmlx_engine.patches.mlx_lm_mtp import apply_mlx_lm_mtp_patch, set_mtp_active

        if not apply_mlx_lm_mtp_patch():
            raise ValueError("vmlx's patches of mlx-lm do not apply")
        set_mtp_active(True)
        self._model = load_model(folder)[0]
        self._rounds: list[tuple[int, int]] = []
        self._count()

    def _count(self) -> None:
        """Note what its counters gain in a verify cycle, and its plain steps between phases."""
        from vmlx_engine.native_mtp_recovery import NativeMTPRecovery
        from vmlx_engine.patches.mlx_lm_mtp import batch_generator

        cycle, plain = batch_generator._run_verify_cycle, NativeMTPRecovery.observe_standard

        def counted(batch: Any, state: Any) -> None:
            stats = state.stats
            drafted, accepted = stats.draft_tokens_proposed, stats.draft_tokens_accepted
            cycle(batch, state)
            drafted = stats.draft_tokens_proposed - drafted
            self._rounds.append((drafted, stats.draft_tokens_accepted - accepted))

        def observed(recovery: Any, elapsed_ms: float) -> None:
            plain(recovery, elapsed_ms)
            self._rounds.append((0, 0))

        batch_generator._run_verify_cycle = counted
        NativeMTPRecovery.observe_standard = observed

    def decode(self, prompt: list[int], tokens: int) -> Iterator[int]:
        """As `measuring.Loop` has it."""
        self._rounds = []
        return one_of_a_batch(self._model, prompt, tokens)

    def rounds(self) -> Sequence[tuple[int, int]]:
        """As `measuring.Loop` has it."""
        return self._rounds


if __name__ == "__main__":
    serve(("vmlx", "mlx-lm", "mlx"), Vmlx)
