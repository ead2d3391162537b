"""flyto-mlx's MTP in mlx-lm's `BatchGenerator`, or the same generator plain at K=0, as an arm.

    python flyto_mlx.py < SPEC          (in an environment with flyto-mlx)

`BatchGenerator` of one sequence with the patches of mlx-lm that its scheduler and its engines
apply. A cycle has one draft; at K=0 the head is not attached. Acceptance is what each verify
cycle adds to its counter (`accepts`).
"""
# Its packages live in the runtime's own environment alone.
# pyright: reportMissingImports=false

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from measuring import one_of_a_batch, serve


class FlytoMlx:
    """A `measuring.Loop`."""

    def __init__(self, folder: Path, k: int) -> None:
        if k > 1:
            raise ValueError("flyto-mlx makes one draft a round")
        from mlx_lm.utils import load_model
        from omlx.patches import mlx_lm_mtp
        from omlx.patches.batch_decode_mask import apply_batch_decode_mask_patch
        from omlx.patches.mlx_lm_mtp import batch_generator

        if not (mlx_lm_mtp.apply_mlx_lm_mtp_patch() and apply_batch_decode_mask_patch()):
            raise ValueError("flyto-mlx's patches of mlx-lm do not apply")
        mlx_lm_mtp.set_mtp_active(bool(k))
        self._model = load_model(folder)[0]
        mlx_lm_mtp.stamp_model_mtp_active(self._model, bool(k))
        self._rounds: list[tuple[int, int]] = []
        cycle = batch_generator._run_verify_cycle

        def counted(batch: Any, state: Any) -> None:
            before = state.stats.accepts
            cycle(batch, state)
            self._rounds.append((1, state.stats.accepts - before))

        batch_generator._run_verify_cycle = counted

    def decode(self, prompt: list[int], tokens: int) -> Iterator[int]:
        """As `measuring.Loop` has it."""
        self._rounds = []
        return one_of_a_batch(self._model, prompt, tokens)

    def rounds(self) -> Sequence[tuple[int, int]]:
        """As `measuring.Loop` has it."""
        return self._rounds


if __name__ == "__main__":
    serve(("flyto-mlx", "mlx-lm", "mlx"), FlytoMlx)
