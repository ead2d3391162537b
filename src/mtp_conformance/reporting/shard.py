"""Shards: which part of a run ``--shard I/N`` keeps.

Cells that share a prefill form a group and stay together. Groups go, largest first, to the shard
that has least so far, so that shards are of nearly one size; groups of one size are ordered by the
hash of their name, so that neighbouring models or prompt lengths do not gather in one shard. Who
runs a shard needs to know nothing of the others: the same cells give the same split everywhere.
"""

import hashlib
import re
from collections.abc import Mapping

FORM = "--shard takes I/N with 1 <= I <= N, such as 1/4"


def parse(text: str) -> tuple[int, int]:
    """``I/N`` as two numbers. Raises ValueError saying the form."""
    found = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", text)
    index, of = (int(found[1]), int(found[2])) if found else (0, 0)
    if not 1 <= index <= of:
        raise ValueError(f"{FORM}; got {text!r}")
    return index, of


def split(sizes: Mapping[str, int], of: int) -> dict[str, int]:
    """The shard, from 1, of each group; ``sizes`` are the numbers of cells by group."""
    loads = [0] * of
    shards: dict[str, int] = {}
    for group in sorted(sizes, key=lambda name: (-sizes[name], _hash(name))):
        lightest = loads.index(min(loads))
        loads[lightest] += sizes[group]
        shards[group] = lightest + 1
    return shards


def _hash(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()
