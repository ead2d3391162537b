"""How a checkpoint stores its norm weights: about zero, used as 1 + w, or about one.

    y = x * rsqrt(mean(x^2) + eps) * (1 + w)        Hugging Face's qwen3_next and qwen3_5
    y = x * rsqrt(mean(x^2) + eps) * w              mlx-lm's classes, and what they save

mlx-lm adds the one when it takes a folder for Hugging Face's layout: by the shape of a convolution
weight (qwen3_5), by experts stored one by one (qwen3_next). A file that was half converted, or a
head taken from another file than the trunk, makes that guess wrong by one, and the model wrong with
it. So there are two signs, the layout and the values, and where they contradict each other nothing
is loaded until somebody says which is right.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

import mlx.core as mx

from mtp_decoder.errors import CheckpointError


class Norms(str, Enum):
    """What norm weights are stored about."""

    ABOUT_ZERO = "about-zero"
    ABOUT_ONE = "about-one"

    @property
    def words(self) -> str:
        """For a sentence."""
        return self.value.replace("-", " ")


TRUNK_NORMS = (
    ".input_layernorm.weight",
    ".post_attention_layernorm.weight",
    "model.norm.weight",
    ".q_norm.weight",
    ".k_norm.weight",
)
"""Ends of the names of the trunk's norms that are stored either way; mlx-lm's own list. The
GatedDeltaNet's gated norm is stored about one by everybody."""
_BELOW, _ABOVE = 0.35, 0.65
"""Medians nearer to a half than that are no sign."""


def centre(weights: Iterable[mx.array]) -> float | None:
    """The median of all values of these norm weights; None without any."""
    rows = [array.astype(mx.float32).reshape(-1) for array in weights]
    if not rows:
        return None
    values = mx.sort(mx.concatenate(rows))
    return float(values[values.size // 2].item())  # pyright: ignore[reportArgumentType]


def by_values(median: float | None) -> Norms | None:
    """What a median says; None where it lies between."""
    if median is None or _BELOW < median < _ABOVE:
        return None
    return Norms.ABOUT_ZERO if median <= _BELOW else Norms.ABOUT_ONE


class Told(NamedTuple):
    """What norms are stored about, and by what that is known."""

    norms: Norms
    by: str

    @property
    def words(self) -> str:
        """For a sentence; that layout and values agree need not be said."""
        return self.norms.words + (f" ({self.by})" if self.by else "")


def resolve(
    what: str, layout: tuple[Norms, str] | None, median: float | None, given: Norms | None
) -> Told:
    """What norms are stored about, by what was given, or by signs that do not contradict.

    Args:
        what: the norms, as the option calls them: `norms` or `head-norms`.
        layout: what the layout says, and why; None where it says nothing.
        median: of the stored values.
        given: the caller's word, which settles it.

    Raises:
        CheckpointError: the signs contradict each other, or there is none.
    """
    if given is not None:
        return Told(given, "as given")
    seen, option = by_values(median), f"--{what} about-zero or --{what} about-one"
    name = "the MTP head's norm weights" if what == "head-norms" else "the norm weights"
    if layout is not None and seen is not None and seen is not layout[0]:
        raise CheckpointError(
            f"{name} contradict each other: {layout[1]}, so they would be stored "
            f"{layout[0].words}, and their median is {median:.2f}, which is {seen.words}. One was "
            f"added or left out in a conversion; say what is stored with {option}"
        )
    if layout is not None:
        alone = f"by the layout alone: their median is {median}"
        return Told(layout[0], "" if seen is not None else alone)
    if seen is None:
        raise CheckpointError(
            f"{name} cannot be told: their median is {median}, and nothing in the layout says "
            f"whether they are stored about zero or about one; say so with {option}"
        )
    return Told(seen, "by their values alone")
