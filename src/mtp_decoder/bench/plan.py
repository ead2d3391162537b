"""What a benchmark runs, and in which order.

An **arm** is one way of decoding: a runtime, K, a rewind strategy, experts in memory or on disk.
A **block** is a list of arms that are compared with each other on one model. Its arms take turns,
forwards and backwards, A B C C B A, as often as it has passes, so that a computer that grows
slower or faster does so to all of them. Every turn is a process of its own, unless the block's arms
take turns of a few tokens inside one process: then a second at half speed, which this or that
process would have had to itself, is shared by all arms, and small differences can be told.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from mtp_decoder.errors import DecoderError
from mtp_decoder.rewind import Rewind
from mtp_decoder.session import check_count

OURS, MLX_LM = "mtp-decoder", "mlx-lm"
MEMORY, DISK = "memory", "disk"


@dataclass(frozen=True)
class Model:
    """A checkpoint folder, what reads it, and bytes of experts kept when they are on disk."""

    name: str
    folder: str
    loader: str | None = None
    expert_budget: int | None = None


@dataclass(frozen=True, order=True)
class Arm:
    """One way of decoding. Strategies are ours; other runtimes have their own, and say none."""

    runtime: str = OURS
    k: int = 0
    strategy: str = Rewind.TAPE.value
    experts: str = MEMORY

    def __str__(self) -> str:
        strategy = f" {self.strategy}" if self.strategy else ""
        on_disk = ", experts on disk" if self.experts == DISK else ""
        return f"{self.runtime} K={self.k}{strategy}{on_disk}"


@dataclass(frozen=True)
class Block:
    """Arms that are compared with each other.

    Attributes:
        title: unique in a plan.
        model: its name.
        arms: in the order of the first pass.
        workloads: names of prompts, one after the other in each process.
        passes: an even number, so that every arm comes early as often as late.
        tokens: emitted in one timed run.
        warm_up: tokens emitted before it, of the same prompt.
        repeats: timed runs of each prompt in one process.
        prompt_tokens: of a prompt at most; None for all of it.
        slice_tokens: of a turn, if all arms decode in one process and take turns there; None if
            every arm has a process of its own.
    """

    title: str
    model: str
    arms: tuple[Arm, ...]
    workloads: tuple[str, ...]
    passes: int = 2
    tokens: int = 192
    warm_up: int = 32
    repeats: int = 2
    prompt_tokens: int | None = None
    slice_tokens: int | None = None

    def __post_init__(self) -> None:
        if self.passes < 2 or self.passes % 2:
            raise DecoderError(
                f"block {self.title}: passes must be 2, 4, 6 ..., not {self.passes}: "
                "every pass forwards has one backwards"
            )
        if self.tokens < 2 or self.repeats < 1 or self.warm_up < 0:
            raise DecoderError(
                f"block {self.title}: a run needs 2 tokens or more, 1 repeat or more, and no less "
                "than 0 tokens to warm up"
            )
        if self.prompt_tokens is not None and self.prompt_tokens < 1:
            raise DecoderError(f"block {self.title}: prompt_tokens must be 1 or more")
        names = set(self.workloads)
        if not names or len(names) < len(self.workloads):
            raise DecoderError(f"block {self.title}: give every workload once, and at least one")
        if not self.arms or len(set(self.arms)) < len(self.arms):
            raise DecoderError(f"block {self.title}: give every arm once, and at least one")
        for arm in self.arms:
            check_count(arm.k)
        if self.slice_tokens is not None:
            self._check_slices(self.slice_tokens)

    def _check_slices(self, slice_tokens: int) -> None:
        if slice_tokens < 1 or len(self.arms) < 2:
            raise DecoderError(
                f"block {self.title}: slice_tokens is for two arms or more that take turns in one "
                "process, each of at least 1 token"
            )
        for arm in self.arms:
            if arm.runtime not in (OURS, MLX_LM) or arm.experts == DISK:
                raise DecoderError(
                    f"block {self.title}: {arm} cannot take turns in one process; give it a block "
                    "without slice_tokens"
                )


@dataclass(frozen=True)
class Plan:
    """Everything a benchmark runs.

    Attributes:
        models: by name.
        prompts: token ids by model and workload.
        blocks: in order.
        peers: commands by runtime, of those that are not built in; see `peers/`.
        absent: runtimes that were asked for and are not installed, and why.
        device: `cpu` or `gpu`; None for MLX's default.
        quick: whether it was cut down to end soon; see `running.quick`.
        left_out: titles of blocks that are not run this time.
        versions: of the peers, as they name them.

    Raises:
        DecoderError: two blocks have one title, by which rows name them, or a prompt is empty.
    """

    models: Mapping[str, Model]
    prompts: Mapping[str, Mapping[str, Sequence[int]]]
    blocks: tuple[Block, ...]
    peers: Mapping[str, str] = field(default_factory=dict[str, str])
    absent: Mapping[str, str] = field(default_factory=dict[str, str])
    device: str | None = None
    quick: bool = False
    left_out: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict[str, str])

    def __post_init__(self) -> None:
        titles = [block.title for block in self.blocks]
        if twice := [title for title in titles if titles.count(title) > 1]:
            raise DecoderError(f"give every block a title of its own; two are {twice[0]!r}")
        for model, texts in self.prompts.items():
            for name, tokens in texts.items():
                if not tokens:
                    raise DecoderError(f"the prompt {name!r} has no token for {model}: write one")

    def digest(self) -> str:
        """A digest of all of it: rows of two plans do not belong together."""
        text = json.dumps(asdict(self), sort_keys=True, default=list)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Job:
    """One process: an arm's turn in a pass of a block. A warm-up's rows are never counted.

    `beside` are arms that take turns with it inside the process.
    """

    block: Block
    arm: Arm
    turn: int
    warm_up: bool = False
    beside: tuple[Arm, ...] = ()

    @property
    def arms(self) -> tuple[Arm, ...]:
        """All that the process decodes with, in the order of its rows."""
        return (self.arm, *self.beside)

    def __str__(self) -> str:
        return ", in turns with ".join(map(str, self.arms))


def jobs_of(block: Block) -> list[Job]:
    """A block's processes in order: one to warm up, then the arms forwards and backwards."""
    jobs = [Job(block, block.arms[0], -1, warm_up=True)]
    for turn in range(block.passes):
        order = block.arms if turn % 2 == 0 else block.arms[::-1]
        if block.slice_tokens is None:
            jobs += [Job(block, arm, turn) for arm in order]
        else:
            jobs.append(Job(block, order[0], turn, beside=order[1:]))
    return jobs


def arms_of(
    strategies: Sequence[str], depths: Sequence[int], experts: Sequence[str] = (MEMORY,)
) -> tuple[Arm, ...]:
    """Our arms of a block: every strategy at every depth; without drafts the first one alone."""
    arms = [
        Arm(OURS, k, strategy, place)
        for place in experts
        for k in depths
        for strategy in (strategies if k else strategies[:1])
    ]
    return tuple(arms)


def spec_of(plan: Plan, job: Job) -> dict[str, Any]:
    """What a process is told, as JSON values."""
    model = plan.models[job.block.model]
    first, *beside = [_arm_of(arm, model) for arm in job.arms]
    return {
        "folder": model.folder,
        "loader": model.loader,
        **first,
        "beside": beside,
        "slice_tokens": job.block.slice_tokens,
        "device": plan.device,
        "tokens": job.block.tokens,
        "warm_up": job.block.warm_up,
        "repeats": job.block.repeats,
        "prompts": {
            name: list(plan.prompts[model.name][name])[: job.block.prompt_tokens]
            for name in job.block.workloads
        },
    }


def _arm_of(arm: Arm, model: Model) -> dict[str, Any]:
    return {
        "runtime": arm.runtime,
        "k": arm.k,
        "strategy": arm.strategy,
        "expert_budget": model.expert_budget if arm.experts == DISK else None,
    }
