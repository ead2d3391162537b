"""A plan from a TOML file, such as `docs/bench.toml`.

    device = "cpu"                  # or "gpu"; MLX's default without it

    [prompts]                       # files of text
    code = "code.txt"

    [models.tiny]
    folder = "checkpoint"           # with config.json, safetensors and a tokenizer
    loader = "my_models:read"       # optional, as `--loader`
    expert_budget = 65536           # optional: bytes that experts on disk may take in memory

    [peers]                         # optional: runtimes beside mlx-lm's own loop; see bench/peers/
    mlx-vlm = "venv/bin/python mlx_vlm.py"

    [[blocks]]
    title = "tiny, tape"            # arms of one block are compared with each other
    model = "tiny"
    workloads = ["code"]
    depths = [0, 1, 2, 3]           # our arms: depths x strategies, in this order
    strategies = ["tape"]
    experts = "memory"              # or "disk"
    beside = ["mlx-lm K=0"]         # arms of other runtimes, before ours
    passes = 2                      # even: forwards, backwards
    tokens = 192
    warm_up = 32                    # tokens before the clock starts
    repeats = 2                     # timed runs of each prompt in one process
    prompt_tokens = 12              # optional: of a prompt at most
    slice_tokens = 16               # optional: arms take turns of so many tokens in one process

Files and folders are looked for from where the command is run.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import tomllib

from mtp_decoder.bench.plan import DISK, MEMORY, MLX_LM, OURS, Arm, Block, Model, Plan, arms_of
from mtp_decoder.errors import DecoderError
from mtp_decoder.naming import member_of
from mtp_decoder.rewind import Rewind

Encode = Callable[[Path, str], list[int]]
"""From a checkpoint folder and a text to token ids."""

_BESIDE = re.compile(r"([\w.-]+) K=(\d+)")


@dataclass(frozen=True)
class _Keys:
    """A table's keys, and the type of each."""

    known: dict[str, type]
    required: tuple[str, ...]


_PLAN = _Keys(
    {"device": str, "prompts": dict, "models": dict, "peers": dict, "blocks": list},
    ("prompts", "models", "blocks"),
)
_MODEL = _Keys({"folder": str, "loader": str, "expert_budget": int}, ("folder",))
_BLOCK = _Keys(
    {
        **{"title": str, "model": str, "experts": str},
        **{"workloads": list, "depths": list, "strategies": list, "beside": list},
        **{"passes": int, "tokens": int, "warm_up": int, "repeats": int, "prompt_tokens": int},
        **{"slice_tokens": int},
    },
    ("title", "model", "workloads", "depths"),
)


def read_plan(file: Path, encode: Encode) -> Plan:
    """Read a plan; prompts are encoded with each model's own tokenizer.

    Raises:
        DecoderError: the file, a prompt or a folder is missing, or a key or value is none there
            is; names it.
    """
    document = _table(_document(file), _PLAN, str(file))
    models = {
        name: Model(name, **_table(content, _MODEL, f"{file}: model {name}"))
        for name, content in document["models"].items()
    }
    blocks = tuple(_block(content, models, f"{file}: block") for content in document["blocks"])
    if not blocks:
        raise DecoderError(f"{file}: give at least one block")
    device = document.get("device")
    if device not in (None, "cpu", "gpu"):
        raise DecoderError(f"{file}: device is cpu or gpu, not {device!r}")
    files = _strings(document["prompts"], f"{file}: prompts")
    texts = {name: read_text(Path(at), "the prompt") for name, at in files.items()}
    used = {block.model: block for block in blocks}
    prompts = {name: _encoded(models[name], texts, encode) for name in used}
    for block in blocks:
        if missing := [name for name in block.workloads if name not in texts]:
            raise DecoderError(f"{file}: block {block.title}: no prompt {missing[0]!r}")
    peers = _strings(document.get("peers", {}), f"{file}: peers")
    return with_peers(Plan(models, prompts, blocks, peers, device=device))


def with_peers(plan: Plan) -> Plan:
    """The plan with the runtimes that are installed; arms of the others are left out, and named."""
    named = {arm.runtime for block in plan.blocks for arm in block.arms} - {OURS, MLX_LM}
    absent: dict[str, str] = {}
    versions: dict[str, str] = {}
    for name in sorted(named):
        if name not in plan.peers:
            raise DecoderError(f"no command for {name}: name it under [peers]")
        why, said = _asked(plan.peers[name])
        if why:
            absent[name] = why
        else:
            versions[name] = said.removeprefix(f"{name} ").replace(", ", " with ", 1)
    blocks = [_without(block, absent) for block in plan.blocks]
    kept = tuple(block for block in blocks if block is not None)
    return replace(plan, blocks=kept, absent=absent, versions=versions)


def _without(block: Block, absent: dict[str, str]) -> Block | None:
    arms = tuple(arm for arm in block.arms if arm.runtime not in absent)
    if not arms:
        return None
    return replace(block, arms=arms)


def _asked(command: str) -> tuple[str, str]:
    """Why a runtime cannot be run, empty if it can, and the versions it names."""
    try:
        done = subprocess.run(
            [*shlex.split(command), "--versions"],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return "not installed", ""
    return "" if done.returncode == 0 else "cannot be imported", done.stdout.strip()


def _document(file: Path) -> object:
    try:
        return tomllib.loads(read_text(file, "the plan"))
    except tomllib.TOMLDecodeError as error:
        raise DecoderError(f"{file} is no TOML: {error}") from error


def read_text(file: Path, what: str) -> str:
    """A file of text, in UTF-8.

    Raises:
        DecoderError: it cannot be read, or is no text; says `what` it was to be.
    """
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise DecoderError(f"cannot read {what} {file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise DecoderError(f"{what} {file} is no text in UTF-8: {error.reason}") from error


def _strings(table: dict[str, Any], what: str) -> dict[str, str]:
    """A table of strings."""
    for name, value in table.items():
        if not isinstance(value, str):
            raise DecoderError(f"{what}: {name} is a str, not {value!r}")
    return table


def _table(content: object, keys: _Keys, what: str) -> dict[str, Any]:
    """A table with known keys of the right types."""
    if not isinstance(content, dict):
        raise DecoderError(f"{what} is no table")
    table = cast("dict[str, Any]", content)
    for key, value in table.items():
        if key not in keys.known:
            raise DecoderError(f"{what} has no {key!r}; known: {', '.join(keys.known)}")
        if type(value) is not keys.known[key]:
            raise DecoderError(f"{what}: {key} is a {keys.known[key].__name__}, not {value!r}")
    for key in keys.required:
        if key not in table:
            raise DecoderError(f"{what} lacks {key!r}")
    return table


def _block(content: object, models: dict[str, Model], what: str) -> Block:
    table = _table(content, _BLOCK, what)
    what = f"{what} {table['title']!r}"
    model = models.get(table["model"])
    if model is None:
        raise DecoderError(f"{what}: no model {table['model']!r}; known: {', '.join(models)}")
    experts = table.get("experts", MEMORY)
    if experts not in (MEMORY, DISK):
        raise DecoderError(f"{what}: experts are in {MEMORY} or on {DISK}, not {experts!r}")
    if experts == DISK and model.expert_budget is None:
        raise DecoderError(f"{what}: model {model.name} has no expert_budget")
    strategies = table.get("strategies", [Rewind.TAPE.value])
    for name in strategies:
        member_of(Rewind, name, f"{what}: a strategy")
    arms = (
        *(_other(name, what) for name in table.get("beside", [])),
        *arms_of(strategies, table["depths"], (experts,)),
    )
    names = ("passes", "tokens", "warm_up", "repeats", "prompt_tokens", "slice_tokens")
    sizes = {name: table[name] for name in names if name in table}
    return Block(table["title"], model.name, arms, tuple(table["workloads"]), **sizes)


def _other(name: object, what: str) -> Arm:
    found = _BESIDE.fullmatch(str(name))
    if found is None:
        raise DecoderError(f"{what}: an arm beside ours is like 'mlx-lm K=0', not {name!r}")
    return Arm(found[1], int(found[2]), "")


def _encoded(model: Model, texts: dict[str, str], encode: Encode) -> dict[str, Sequence[int]]:
    return {name: encode(Path(model.folder), text) for name, text in texts.items()}
