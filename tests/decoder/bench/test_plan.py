"""Plan: which processes there are, in which order."""

from dataclasses import replace
from typing import Any

import pytest

from mtp_decoder import DecoderError
from mtp_decoder.bench.plan import Arm, Model, Plan, arms_of, jobs_of, spec_of
from tests.decoder.bench.made import DEEP, PLAIN, STOCK, plan_of


def test_arms_take_turns() -> None:
    """After a warm-up the arms run forwards and backwards, so that drift meets all alike."""
    (block,) = plan_of(STOCK, PLAIN, DEEP, passes=4).blocks
    warm_up, *jobs = jobs_of(block)
    assert (warm_up.arm, warm_up.warm_up) == (STOCK, True)
    order = [STOCK, PLAIN, DEEP, DEEP, PLAIN, STOCK] * 2
    assert [job.arm for job in jobs] == order
    assert [job.turn for job in jobs] == [turn for turn in range(4) for _ in range(3)]
    assert not any(job.warm_up for job in jobs)


def test_arms_take_turns_inside_a_process() -> None:
    """With slices a pass is one process, which begins with this arm and then with that."""
    (block,) = plan_of(STOCK, PLAIN, passes=2, slice_tokens=8).blocks
    _, *jobs = jobs_of(block)
    assert [(job.turn, job.arms) for job in jobs] == [(0, (STOCK, PLAIN)), (1, (PLAIN, STOCK))]
    assert str(jobs[1]) == "mtp-decoder K=0 tape, in turns with mlx-lm K=0"


def test_a_process_is_told_whom_it_takes_turns_with() -> None:
    """Every arm's own part of the specification is there, and how long a slice is."""
    plan = plan_of(STOCK, DEEP, slice_tokens=8)
    told = spec_of(plan, jobs_of(plan.blocks[0])[1])
    deep = {"runtime": "mtp-decoder", "k": 2, "strategy": "tape", "expert_budget": None}
    assert (told["runtime"], told["beside"], told["slice_tokens"]) == ("mlx-lm", [deep], 8)


@pytest.mark.parametrize(
    ("arms", "slice_tokens", "message"),
    [
        ((STOCK, PLAIN), 0, "each of at least 1 token"),
        ((PLAIN,), 8, "for two arms or more"),
        ((PLAIN, Arm("other", 0, "")), 8, "other K=0 cannot take turns in one process"),
        ((PLAIN, Arm(experts="disk")), 8, "experts on disk cannot take turns"),
    ],
)
def test_refuses_slices(arms: tuple[Arm, ...], slice_tokens: int, message: str) -> None:
    """Arms that need an environment or slots of their own take no turns inside a process."""
    with pytest.raises(DecoderError, match=message):
        plan_of(*arms, slice_tokens=slice_tokens)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"passes": 3}, "every pass forwards has one backwards"),
        ({"passes": 0}, "passes must be 2, 4, 6"),
        ({"tokens": 1}, "2 tokens or more"),
        ({"repeats": 0}, "1 repeat or more"),
        ({"prompt_tokens": 0}, "prompt_tokens must be 1 or more"),
    ],
)
def test_refuses_sizes(sizes: dict[str, Any], message: str) -> None:
    """Sizes that measure nothing, or one arm later than another, are refused."""
    with pytest.raises(DecoderError, match=message):
        plan_of(PLAIN, **sizes)


def test_refuses_arms() -> None:
    """An arm twice would be one cell of twice the runs; one of no possible depth is no arm."""
    with pytest.raises(DecoderError, match="every arm once"):
        plan_of(PLAIN, PLAIN)
    with pytest.raises(DecoderError, match=r"must be in 0\.\.64, not 65"):
        plan_of(Arm(k=65))


def test_arms_of_depths_and_strategies() -> None:
    """Every strategy at every depth; without drafts there is nothing to undo, and one arm."""
    assert arms_of(["tape", "replay"], [0, 3]) == (
        Arm(k=0, strategy="tape"),
        Arm(k=3, strategy="tape"),
        Arm(k=3, strategy="replay"),
    )


def test_a_process_is_told_its_arm() -> None:
    """A budget is for experts on disk alone, and prompts are cut as the block says."""
    arm = Arm(k=2, strategy="rerun", experts="disk")
    models = {"m": Model("m", "folder", "a.b:read", 4096)}
    made = plan_of(arm, PLAIN, prompt_tokens=2, tokens=7, warm_up=5, repeats=3)
    plan = Plan(models, made.prompts, made.blocks, device="cpu")
    jobs = {job.arm: job for job in jobs_of(plan.blocks[0])}
    assert spec_of(plan, jobs[arm]) == {
        **{"folder": "folder", "loader": "a.b:read", "expert_budget": 4096},
        **{"runtime": "mtp-decoder", "k": 2, "strategy": "rerun", "device": "cpu"},
        **{"beside": [], "slice_tokens": None},
        **{"tokens": 7, "warm_up": 5, "repeats": 3, "prompts": {"code": [1, 2]}},
    }
    assert spec_of(plan, jobs[PLAIN])["expert_budget"] is None


def test_digest() -> None:
    """Plans that differ in anything have other digests."""
    digests = {plan_of(PLAIN).digest(), plan_of(DEEP).digest(), plan_of(PLAIN, tokens=9).digest()}
    assert len(digests) == 3
    assert plan_of(PLAIN).digest() in digests


def test_refuses_what_rows_cannot_tell_apart() -> None:
    """Rows name a block by its title and a prompt by its name; each is there once."""
    block = plan_of(PLAIN).blocks[0]
    with pytest.raises(DecoderError, match="a title of its own; two are 'b'"):
        replace(plan_of(PLAIN), blocks=(block, block))
    for workloads in ((), ("code", "code")):
        with pytest.raises(DecoderError, match="give every workload once, and at least one"):
            replace(block, workloads=workloads)


def test_refuses_an_empty_prompt() -> None:
    """It is said before anything runs, with the prompt's name."""
    with pytest.raises(DecoderError, match="the prompt 'code' has no token for m"):
        replace(plan_of(PLAIN), prompts={"m": {"code": []}})
