"""How much faster drafts can make decoding, for what was accepted and what a round costs.

A round of K drafts emits E = 1 + a_1 + ... + a_K tokens on average, where a_j is the share of
rounds whose first j drafts were all accepted. It costs c plain steps. So decoding becomes

    E / c

times as fast, and no more. This is Leviathan, Kalman and Matias, "Fast Inference from Transformers
via Speculative Decoding" (ICML 2023), theorem 3.8, with two of its assumptions replaced by
measurements: its a_j is alpha^j, here it is counted; its c is K times the cost of a draft plus 1,
since a pass over K + 1 positions is assumed to cost what a plain step costs, here both passes are
timed. What is left out of c is what an ideal decoder would not spend: judging drafts, undoing
rejected ones, and everything between the passes.
"""

from __future__ import annotations

from collections.abc import Sequence


def tokens_a_round(drafted_by_depth: Sequence[int], accepted_by_depth: Sequence[int]) -> float:
    """E = 1 + sum of a_j, each a_j of the rounds that drafted so deep.

    Args:
        drafted_by_depth: rounds that drafted at least 1, 2, ... tokens.
        accepted_by_depth: rounds that accepted that many.
    """
    pairs = zip(drafted_by_depth, accepted_by_depth, strict=True)
    return 1 + sum(accepted / drafted for drafted, accepted in pairs if drafted)


def speed_up_limit(tokens: float, round_seconds: float, step_seconds: float) -> float:
    """E / c with c = `round_seconds` / `step_seconds`.

    Args:
        tokens: E, a round.
        round_seconds: of the passes of a round: drafting and verification.
        step_seconds: of one token without drafts, as long as the whole step takes.
    """
    return tokens * step_seconds / round_seconds
