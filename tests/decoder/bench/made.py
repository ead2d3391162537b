"""Rows and plans that nothing was run for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from mtp_decoder.bench.plan import Arm, Block, Job, Model, Plan
from mtp_decoder.bench.rows import Failure, Header, Rows, Run

PLAIN, DEEP, STOCK = Arm(), Arm(k=2), Arm("mlx-lm", 0, "")
MACHINE = {
    **{"processor": "Abacus", "cores": 2, "memory_gib": 8.0, "system": "Linux x86_64"},
    **{"python": "3.11.7", "device": "cpu", "versions": {"mlx": "0.32.4"}},
}


def run(arm: Arm = PLAIN, turn: int = 0, seconds: float = 1.0, **fields: Any) -> Run:
    """A run of 101 tokens; with drafts 50 rounds of which 40 accepted one and 10 both."""
    drafted = {"drafted_by_depth": [50] * arm.k, "accepted_by_depth": [40, 10, 4, 2, 1, 0][: arm.k]}
    phases = {"prefill": 9.0, "draft": 0.1, "verify": 0.5, "accept": 0.02, "rewind": 0.03}
    usual: dict[str, Any] = {
        **{"block": "b", "model": "m", "workload": "code", "turn": turn, "repeat": 0},
        **{"warm_up": False, "arm": arm.runtime, "k": arm.k, "strategy": arm.strategy},
        **{"experts": arm.experts, "prompt_tokens": 9, "tokens": 101, "decode_seconds": seconds},
        **{"seconds": phases, "rounds": 50 if arm.k else 100, "rewinds": 40, **drafted},
        **{"bytes": {"remembered": 300, "peak": 2**20, "resident": 2**21}, "experts_read": {}},
        **{"tokens_digest": "abc", "load": 0.5},
    }
    return Run(**{**usual, **fields})


def rows_of(runs: Sequence[Run], failures: Sequence[Failure] = ()) -> Rows:
    """A finished file."""
    return Rows(Header("p", MACHINE), list(runs), list(failures), complete=True)


def plan_of(*arms: Arm, title: str = "b", **sizes: Any) -> Plan:
    """A plan of one block."""
    block = Block(title, "m", arms, ("code",), **{"repeats": 1, **sizes})
    return Plan({"m": Model("m", "folder")}, {"m": {"code": [1, 2, 3]}}, (block,))


def measured(job: Job) -> dict[str, Any]:
    """What a process would say of a job."""
    left_out = ("block", "model", "turn", "warm_up", "arm", "k", "strategy", "experts", "load")
    said = asdict(run(job.arm, tokens=job.block.tokens))
    return {name: value for name, value in said.items() if name not in left_out}


class Watching:
    """Notes what begins."""

    def __init__(self) -> None:
        self.begun: list[str] = []

    def begin(self, job: Job, done: int, total: int) -> None:
        """Note it."""
        self.begun.append(f"{job.arm.runtime} {job.arm.k} {job.turn} {done}/{total}")

    def end(self, job: Job, records: Sequence[Any]) -> None:
        """Nothing to note."""
