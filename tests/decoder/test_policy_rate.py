"""The rate-aware policy, round by round under costs that are given to it."""

from collections.abc import Callable, Sequence

import pytest

from mtp_decoder import DecoderError, RateAware, RoundCost

Costs = Callable[[int, int], tuple[float, float, float]]


def _cheap(k: int, accepted: int) -> tuple[float, float, float]:
    """Drafts and rows cost little beside a pass."""
    return 0.05 * k, 1.0 + 0.05 * k, 0.1 if accepted < k else 0.0


def _dear_rewind(k: int, accepted: int) -> tuple[float, float, float]:
    """A reject costs four passes."""
    return 0.05 * k, 1.0 + 0.05 * k, 4.0 if accepted < k else 0.0


def _play(policy: RateAware, accepts: Sequence[int], costs: Costs, most: int = 6) -> list[int]:
    chosen: list[int] = []
    for possible in accepts:
        k = policy.depth(most)
        accepted = min(k, possible)
        policy.observe(RoundCost(k, accepted, *costs(k, accepted)))
        chosen.append(k)
    return chosen


def test_calibrates_deepest_first() -> None:
    """Every measured depth is tried twice, of which the first does not count."""
    assert _play(RateAware(), [6] * 10, _cheap) == [6, 6, 4, 4, 2, 2, 1, 1, 0, 0]


@pytest.mark.parametrize(("possible", "best"), [(0, 0), (1, 1), (3, 3), (6, 6)])
def test_settles_at_the_depth_that_stands(possible: int, best: int) -> None:
    """Where always the same number of drafts stand, that many are drafted."""
    late = _play(RateAware(), [possible] * 96, _cheap)[48:]
    assert late.count(best) >= 0.8 * len(late)


def test_rewind_is_part_of_the_cost() -> None:
    """Where a reject is dear, text that half the rounds reject is not drafted."""
    accepts = [6, 0] * 60
    assert _play(RateAware(), accepts, _cheap)[60:].count(0) < 15
    assert _play(RateAware(), accepts, _dear_rewind)[60:].count(0) > 45


def _head_runs_along(k: int, accepted: int) -> tuple[float, float, float]:
    """Where no draft was cut the head takes in one more pair, in the time of the rewind."""
    return 0.3 * k, 1.0 + 0.02 * k, 0.3 if accepted == k else 0.02


def test_plain_rounds_run_the_head_too() -> None:
    """A draft of which one in five stands is worth making where a plain round costs a head pass."""
    late = _play(RateAware(), [1, 0, 0, 0, 0] * 40, _head_runs_along)[100:]
    assert late.count(1) > 0.75 * len(late)


def test_first_samples_are_discarded() -> None:
    """A first pass at a depth that takes a hundred times as long decides nothing."""
    seen: set[int] = set()

    def first_is_slow(k: int, accepted: int) -> tuple[float, float, float]:
        first = k not in seen
        seen.add(k)
        draft, verify, rewind = _cheap(k, accepted)
        return draft, verify * (100 if first else 1), rewind

    slow = _play(RateAware(), [6] * 40, first_is_slow)
    assert slow[10:] == _play(RateAware(), [6] * 40, _cheap)[10:]
    assert slow[-1] == 6


def test_recovers_within_a_request() -> None:
    """Text that is predicted after a stretch that was not is drafted again."""
    policy = RateAware()
    assert _play(policy, [0] * 100, _cheap)[-20:].count(0) > 15
    assert _play(policy, [6] * 100, _cheap)[-20:].count(6) > 15


def test_the_end_of_a_budget_is_no_time_to_measure() -> None:
    """Depths that come up as a budget ends are judged by the measured ones around them."""
    policy = RateAware()
    assert _play(policy, [0] * 100, _dear_rewind, most=8)[-50:].count(0) > 40
    chosen = [_play(policy, [0, 0], _dear_rewind, most=most) for most in (7, 6, 5, 3)]
    assert sum(k > 0 for pair in chosen for k in pair) <= 1  # one of them to try a depth again


def test_only_recent_accepts_count() -> None:
    """However long text was predicted, soon after it is not any more nothing is drafted."""
    policy = RateAware()
    _play(policy, [6] * 400, _cheap)
    assert _play(policy, [0] * 60, _cheap)[30:].count(0) > 20


def test_only_recent_costs_count() -> None:
    """Passes that become dear, as those of a long context do, are soon known to be."""
    policy = RateAware()
    _play(policy, [1] * 400, _cheap, most=1)
    assert _play(policy, [1] * 60, _dear_rows, most=1)[30:].count(0) > 20


def _dear_rows(k: int, accepted: int) -> tuple[float, float, float]:
    """A second row costs as much as two passes."""
    return 0.05 * k, 1.0 + 2.0 * k, 0.1 if accepted < k else 0.0


def test_the_first_rewind_is_discarded() -> None:
    """A first rewind that takes a hundred times as long decides nothing."""
    first = [True]

    def rewind_compiles(k: int, accepted: int) -> tuple[float, float, float]:
        draft, verify, rewind = _cheap(k, accepted)
        slow = rewind and first.pop() if first else False
        return draft, verify, 10.0 if slow else rewind

    accepts = [1] * 2 + [2] * 58
    assert _play(RateAware(), accepts, rewind_compiles, most=2)[20:].count(2) > 30


def test_the_first_settling_is_discarded() -> None:
    """A first round without a reject that is slow to settle does not make drafts look cheap."""
    first = [True]

    def settling_compiles(k: int, accepted: int) -> tuple[float, float, float]:
        draft, verify, rewind = _cheap(k, accepted)
        slow = accepted == k and first.pop() if first else False
        return draft, verify, 10.0 if slow else rewind

    assert _play(RateAware(), [0] * 64, settling_compiles, most=1)[8:].count(0) > 45


def test_plain_rounds_are_tried_at_their_own_price() -> None:
    """How often plain decoding is measured again hangs on its cost, not on that of a rewind."""

    def dear(k: int, accepted: int) -> tuple[float, float, float]:
        return 0.05 * k, 1.0, 2.0 if accepted < k else 0.0

    late = _play(RateAware(), [0] * 4 + [1] * 396, dear, most=1)[150:]
    assert late.count(1) > 200
    assert late.count(0) > 10


def test_another_request_starts_afresh() -> None:
    """Costs stay known, and the last text does not count."""
    policy = RateAware()
    _play(policy, [0] * 100, _cheap)
    policy.begin()
    chosen = _play(policy, [6] * 10, _cheap)
    assert chosen[0] > 0
    assert chosen[-1] == 6


def test_depths_between_measured_ones() -> None:
    """A depth that was never tried is judged by its neighbours, and can be the best."""
    late = _play(RateAware(), [5] * 96, _cheap)[48:]
    assert late.count(5) > 40


def test_between_measured_depths_is_a_line() -> None:
    """Where every draft costs half a pass and all stand, one fewer does not look cheaper."""
    chosen = _play(RateAware(), [6] * 96, lambda k, _: (0.0, 1.0 + 0.5 * k, 0.0))
    assert chosen.count(6) > 70
    assert {3, 5}.isdisjoint(chosen)


@pytest.mark.parametrize("bad", [{"discard": -1}, {"recent": 0}, {"explore": 0.0}])
def test_refuses_nonsense(bad: dict[str, float]) -> None:
    """Numbers that no policy is possible with are refused by name."""
    with pytest.raises(DecoderError, match="discard is 0 or more"):
        RateAware(**bad)  # pyright: ignore[reportArgumentType]
