"""The depth with the most tokens a second, from measured costs and recent accepts.

With p_j the part of drafts at place j that stood where those before them did, a round of K drafts
emits E(K) = 1 + p_1 + p_1 p_2 + ... + p_1 .. p_K tokens on average, the bonus or correction
included. It costs the seconds of its draft, verify and accept phases, measured at that depth,
and then those of a rewind with probability 1 - p_1 .. p_K, or else those of settling a round that
has nothing to undo: the head takes in one more pair, after plain decoding too. The K with the
largest quotient is taken.

Costs belong to the machine and the model and are kept from one request to the next; accepts
belong to a text and are not. Depths are measured at 0, 1, 2, 4, .. and the deepest; between
measured ones, as where a budget ends, a cost is a straight line. The first sample at a depth, which
pays for compilation and first allocations, is discarded, and so is the first rewind. Whenever one
sixteenth of the time spent since would pay for it, one round goes to the depth tried longest ago:
so a depth that was once slow or never accepted is seen again, whatever happened before.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from statistics import median

from mtp_decoder.errors import DecoderError
from mtp_decoder.policy.cost import RoundCost

_EXPECTED = 0.75
"""What is thought of a draft before any was seen; the more were seen, the less it counts."""


class _Seconds:
    """A median of recent samples, the first of all discarded."""

    def __init__(self, discard: int, recent: int) -> None:
        self._discard = discard
        self._samples: deque[float] = deque(maxlen=recent)

    def add(self, seconds: float) -> None:
        if self._discard:
            self._discard -= 1
        else:
            self._samples.append(seconds)

    @property
    def value(self) -> float | None:
        return median(self._samples) if self._samples else None


class RateAware:
    """Draft as deep as pays.

    Args:
        discard: samples at a depth that do not count, first ones.
        recent: how many samples of a cost, and of drafts at a place, count.
        explore: part of the time that may go to depths other than the best.

    Raises:
        DecoderError: a negative `discard`, no `recent` samples, or `explore` outside 0..1.
    """

    def __init__(self, discard: int = 1, recent: int = 16, explore: float = 1 / 16) -> None:
        if discard < 0 or recent < 1 or not 0 < explore < 1:
            raise DecoderError(
                "discard is 0 or more, recent 1 or more, explore between 0 and 1, not "
                f"{discard}, {recent}, {explore}"
            )
        self._discard, self._recent, self._explore = discard, recent, explore
        self._round: dict[int, _Seconds] = {}
        self._rewind = _Seconds(discard, recent)
        self._settle = _Seconds(discard, recent)
        self._tried: dict[int, int] = {}
        self._rounds = 0
        self._since = 0.0
        self._best: int | None = None
        self._stood: list[deque[bool]] = []

    def begin(self) -> None:
        """Forget the text of the last request, and keep what things cost."""
        self._stood = []

    def depth(self, most: int) -> int:
        """The best depth, one without a cost yet, or one whose turn it is to be tried again."""
        ladder, costs = _ladder(most), self._costs()
        self._best = None
        for k in reversed(ladder):
            if not _is_known(k, costs):
                return k
        best = self._best = max(range(most + 1), key=lambda k: self._rate(k, costs))
        oldest = min(ladder, key=lambda k: self._tried.get(k, 0))
        if oldest != best and self._since * self._explore >= self._price(oldest, costs):
            return oldest
        return best

    def observe(self, cost: RoundCost) -> None:
        """Take in a round's costs and which of its drafts stood."""
        k = cost.drafted
        seconds = cost.draft_seconds + cost.verify_seconds
        self._round.setdefault(k, _Seconds(self._discard, self._recent)).add(seconds)
        settled = self._rewind if cost.accepted < k else self._settle
        settled.add(cost.rewind_seconds)
        self._rounds += 1
        self._tried[k] = self._rounds
        explored = k != self._best
        self._since = 0.0 if explored else self._since + seconds + cost.rewind_seconds
        self._remember(k, cost.accepted)

    def _remember(self, k: int, accepted: int) -> None:
        """Which places were reached, and held; an accept while it is best not to draft is news."""
        if accepted and self._best == 0:
            self._stood = []
        while len(self._stood) < k:
            self._stood.append(deque(maxlen=self._recent))
        for place in range(min(accepted + 1, k)):
            self._stood[place].append(place < accepted)

    def _stands(self, place: int) -> float:
        """p_j of place j, from 1."""
        seen = self._stood[place - 1] if place <= len(self._stood) else ()
        weight = 1.0 / (1.0 + len(seen))
        return (_EXPECTED * weight + sum(seen)) / (weight + len(seen))

    def _costs(self) -> dict[int, float]:
        """Seconds of a round without what settles it, by measured depth."""
        found = ((k, seconds.value) for k, seconds in self._round.items())
        return {k: value for k, value in found if value is not None}

    def _price(self, k: int, costs: Mapping[int, float]) -> float:
        """Seconds of a round of k drafts that fails."""
        settled = self._rewind if k else self._settle
        return _seconds(k, costs) + (settled.value or 0.0)

    def _rate(self, k: int, costs: Mapping[int, float]) -> float:
        tokens = all_stand = 1.0
        for place in range(1, k + 1):
            all_stand *= self._stands(place)
            tokens += all_stand
        after = (self._rewind.value or 0.0) * (1.0 - all_stand)
        after += (self._settle.value or 0.0) * all_stand
        return tokens / max(_seconds(k, costs) + after, 1e-12)


def _is_known(k: int, costs: Mapping[int, float]) -> bool:
    """Whether a depth was measured, or depths on both sides of it were."""
    return bool(costs) and min(costs) <= k <= max(costs)


def _seconds(k: int, costs: Mapping[int, float]) -> float:
    """The cost of a known depth; on a line between the nearest measured ones."""
    low = max(depth for depth in costs if depth <= k)
    high = min(depth for depth in costs if depth >= k)
    return costs[low] + (costs[high] - costs[low]) * (k - low) / max(high - low, 1)


def _ladder(most: int) -> list[int]:
    """Depths that are measured: 0, powers of two, and the deepest."""
    steps = {0, most}
    k = 1
    while k < most:
        steps.add(k)
        k *= 2
    return sorted(steps)
