"""When a pass is submitted: layer by layer, or whole.

MLX's CPU backend computes what was submitted in a thread of its own, and takes only some ten tasks
beyond what it computes; who submits a whole pass waits there until all but those are done. So
nothing is computed while Python builds the next pass. Submitted layer by layer, the first layers
are computed while the last ones are built. A GPU takes a whole pass at once, and every submission
is a command buffer of its own: there a pass stays whole.

The operations are the same, and so are the bits.
"""

from __future__ import annotations

import mlx.core as mx


def by_parts() -> bool:
    """Whether parts of a pass are submitted as soon as they are built, on this device."""
    return mx.default_device() == mx.cpu
