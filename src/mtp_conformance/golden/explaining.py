"""Why a value may differ from its golden, as far as versions and machines tell."""

from __future__ import annotations

from collections.abc import Sequence

from mtp_conformance.golden.contents import Machine
from mtp_conformance.golden.machine import UNKNOWN


def nearest(machines: Sequence[Machine], here: Machine) -> Machine:
    """The machine most like the one at hand, of at least one."""
    return max(machines, key=lambda m: (m.backend == here.backend, m.mlx == here.mlx))


def why_floats_may_differ(golden: Machine, here: Machine) -> str:
    """One sentence on what is not the same, or on what is left if nothing is."""
    reasons: list[str] = []
    if here.mlx == UNKNOWN:
        reasons.append(f"mlx {golden.mlx} made them, and this runtime names no version of mlx")
    elif golden.mlx != here.mlx:
        reasons.append(f"mlx {golden.mlx} made them, this is mlx {here.mlx}")
    if golden.backend != here.backend:
        reasons.append(f"they are of {golden.backend}, this is {here.backend}")
    for what in sorted({*golden.made_on, *here.made_on}):
        theirs, ours = (m.made_on.get(what, "unknown") for m in (golden, here))
        if theirs != ours:
            reasons.append(f"another {what}, which may round otherwise: {theirs}, here {ours}")
    if reasons:
        return "; ".join(reasons)
    return (
        "nothing about the machine: backend, mlx, C library and processor are those that made "
        "them; a model, the decoder or the build of mlx is another"
    )


WHY_TOKENS_MAY_DIFFER = (
    "float32 tokens depend on neither backend nor mlx: every chosen logit lies clear of the "
    "others; bfloat16 tokens are judged only where backend and mlx made them; rounding explains "
    "neither, a change of decoder, model or prompt does"
)

WHY_BFLOAT16_TOKENS_MAY_DIFFER = (
    "not judged: a bfloat16 token hangs on where values are rounded to bfloat16, and another "
    "backend or mlx may round at other points (golden/README.md lists those of the golden)"
)

WHY_CHECKPOINTS_MAY_DIFFER = (
    "weights are drawn by integer arithmetic, the same everywhere: "
    "reference_models draws or stores them otherwise now"
)
