"""Whether the probe said what was then seen: a pass is exact where all its operations are."""

from __future__ import annotations

from tests.gpu.rows import Row

_ALWAYS = (
    "scaled_dot_product_attention",
    "rope",
    "rms_norm",
    "softmax",
    "sigmoid",
    "exp",
    "depthwise conv1d",
)


def operations_of(near: Row) -> tuple[str, ...]:
    """The probe's operations that a fast verify pass of a model uses."""
    bits, name = near["bits"], near["model"]
    products = f"quantized_matmul {bits} bits" if bits else "matmul"
    experts = f"gather_qmm {bits} bits" if bits else "gather_mm"
    routed = "moe" in name or "experts" in name
    return (*_ALWAYS, products, *((experts,) if routed else ()))


def agreement(probe: Row, near: Row) -> Row:
    """The probe's verdict on a pass of the fast mode beside what the blocks of `near` showed.

    Returns:
        `says_exact`, `inexact` (operations), `seen_exact`; `lied` if bits were promised that
        were not there.
    """
    width = str(near["k"] + 1)
    table = probe["operations"]
    found = {name: table[f"{name}/{near['dtype']}"][width] for name in operations_of(near)}
    inexact = sorted(name for name, equal in found.items() if not equal)
    seen = not near["blocks_differing"]
    return {
        "model": near["model"],
        "dtype": near["dtype"],
        "k": near["k"],
        "says_exact": not inexact,
        "inexact": inexact,
        "seen_exact": seen,
        "lied": not inexact and not seen,
    }
