"""Open a Qwen checkpoint folder: mlx-lm's model, the MTP head beside it, what was found there."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, cast

import mlx.core as mx
from mlx_lm.models.switch_layers import SwitchLinear

from mtp_decoder.errors import CheckpointError
from mtp_decoder.experts import OffloadSettings, Shards, offload
from mtp_decoder.naming import member_of
from mtp_decoder.qwen.files import Files, is_head, read_files
from mtp_decoder.qwen.head import QwenHead, build_head
from mtp_decoder.qwen.norms import TRUNK_NORMS, Norms, Told, centre, resolve
from mtp_decoder.qwen.target import QwenTarget
from mtp_decoder.qwen.trunk import FUSED, load_trunk

FAMILIES = ("qwen3_5", "qwen3_5_moe", "qwen3_next")


class Loaded(NamedTuple):
    """A target and its head; None where the checkpoint has no `mtp.*` tensor."""

    target: QwenTarget
    head: QwenHead | None


@dataclass(frozen=True)
class Facts:
    """What was found in a folder, for a person.

    Attributes:
        family: `model_type`.
        files: number of files with the trunk's weights.
        quantised: how mlx-lm quantised the trunk, such as `4 bits in groups of 64`; or nothing.
        norms: what the trunk's norms are stored about.
        head_files: names of the files with the head's tensors; empty without a head.
        head_norms: what the head's norms are stored about; None without a head.
    """

    family: str
    files: int
    quantised: str
    norms: Told
    head_files: tuple[str, ...] = ()
    head_norms: Told | None = None


def load(
    folder: str | Path,
    experts: OffloadSettings | None = None,
    *,
    norms: Norms | str | None = None,
    head_norms: Norms | str | None = None,
) -> Loaded:
    """Open a checkpoint folder of qwen3_5, qwen3_5_moe or qwen3_next.

    Args:
        folder: with config.json and safetensors; the head's `mtp.*` among the others or in a
            file of their own.
        experts: leave routed experts on disk, under these budgets.
        norms: `about-zero` or `about-one`, what the trunk's norms are stored about; by default
            that is read from layout and values, which have to agree.
        head_norms: likewise for the head's norms.

    Raises:
        CheckpointError: no such folder, a missing or truncated file, another family, a broken
            head, signs of two norm conventions, or experts in a dtype this device has no kernel
            for.
        DecoderError: a budget that holds no expert, or no experts to leave on disk.
    """
    return load_with_facts(folder, experts, norms=norms, head_norms=head_norms)[0]


def load_with_facts(
    folder: str | Path,
    experts: OffloadSettings | None = None,
    *,
    norms: Norms | str | None = None,
    head_norms: Norms | str | None = None,
) -> tuple[Loaded, Facts]:
    """As `load`, and what was found."""
    path = Path(folder)
    config = read_config(path)
    family = config.get("model_type")
    if family not in FAMILIES:
        raise CheckpointError(
            f"{path}: model_type {family!r} is none of {', '.join(FAMILIES)}; "
            "other models need --loader package.module:function"
        )
    files = read_files(path)
    shards = None if experts is None else Shards(path)
    guessed = _layout(family, files)
    about = _trunk_norms(files, guessed, norms)
    other = None if about.norms is guessed[0] else about.norms  # than mlx-lm takes them for
    target = QwenTarget(load_trunk(path, family, other, lazy=shards is not None))
    _check_experts(path, target.model)
    head, about_head = _load_head(path, config, files, target, guessed, head_norms)
    if shards is not None and experts is not None:
        offload(target, head, shards, experts)
    mx.eval(target.model.parameters(), [] if head is None else head.parameters())
    names = [name for name in files.tensors if is_head(name)]
    facts = Facts(
        family=family,
        files=len(files.holding(name for name in files.tensors if not is_head(name))),
        quantised=_quantised(config),
        norms=about,
        head_files=tuple(files.paths[number].name for number in files.holding(names)),
        head_norms=about_head,
    )
    return Loaded(target, head), facts


def read_config(path: Path) -> dict[str, Any]:
    """The folder's config.json.

    Raises:
        CheckpointError: there is none, or it holds no JSON object.
    """
    file = path / "config.json"
    if not file.is_file():
        raise CheckpointError(f"{path} has no config.json; give a checkpoint folder")
    try:
        config: object = json.loads(file.read_text())
    except ValueError as error:
        raise CheckpointError(f"{file} is not JSON: {error}") from error
    if not isinstance(config, dict):
        raise CheckpointError(f"{file} holds a {type(config).__name__}, not an object")
    return cast("dict[str, Any]", config)


def _load_head(
    path: Path,
    config: dict[str, Any],
    files: Files,
    target: QwenTarget,
    trunk: tuple[Norms, str],
    given: Norms | str | None,
) -> tuple[QwenHead | None, Told | None]:
    """The head and what its norms are stored about; None and None without one."""
    names = [name for name in files.tensors if is_head(name)]
    if not names:
        return None, None
    stored = {n.partition("mtp.")[2]: a for n, a in files.load(names).items()}
    chosen = None if given is None else member_of(Norms, given, "head_norms")
    median = centre(a for n, a in stored.items() if a.ndim == 1 and n.endswith(".weight"))
    try:
        about = resolve("head-norms", _head_layout(files, names, trunk), median, chosen)
        head = build_head(
            target,
            stored,
            about_zero=about.norms is Norms.ABOUT_ZERO,
            layers=_head_layers(config),
            mode=_quantisation(config).get("mode", "affine"),
        )
    except CheckpointError as error:
        raise CheckpointError(f"{path}: {error}") from error
    return head, about


def _trunk_norms(files: Files, layout: tuple[Norms, str], given: Norms | str | None) -> Told:
    names = [n for n in files.tensors if n.endswith(TRUNK_NORMS) and not is_head(n)]
    flat = [n for n in names if len(files.tensors[n].shape) == 1]
    chosen = None if given is None else member_of(Norms, given, "norms")
    try:
        return resolve("norms", layout, centre(files.load(flat).values()), chosen)
    except CheckpointError as error:
        folder = files.paths[0].parent
        raise CheckpointError(f"{folder}: {error}") from error


def _layout(family: str, files: Files) -> tuple[Norms, str]:
    """What mlx-lm will take the trunk's norms to be stored about, and by what.

    qwen3_next: experts are stored one by one, or fused. The others: a short convolution is stored
    channels first. Both are Hugging Face's layout, and mlx-lm's own test.
    """
    tensors = {name: stored for name, stored in files.tensors.items() if not is_head(name)}
    if family == "qwen3_next":
        if any(name.endswith(".mlp.experts.0.up_proj.weight") for name in tensors):
            return Norms.ABOUT_ZERO, "experts are stored one by one, as Hugging Face does"
        if any(FUSED.fullmatch(name) for name in tensors):
            return Norms.ABOUT_ZERO, "experts are stored fused, as Hugging Face does"
        return Norms.ABOUT_ONE, "experts are not stored one by one, as Hugging Face does"
    if any("conv1d.weight" in name and s.shape[-1] != 1 for name, s in tensors.items()):
        return Norms.ABOUT_ZERO, "convolutions are stored channels first, as Hugging Face does"
    return Norms.ABOUT_ONE, "convolutions are not stored channels first, as Hugging Face does"


def _head_layout(
    files: Files, names: list[str], trunk: tuple[Norms, str]
) -> tuple[Norms, str] | None:
    """What the head's layout says of its norms; among the trunk's tensors it is the trunk's."""
    numbers = files.holding(names)
    others = files.holding(name for name in files.tensors if not is_head(name))
    if set(numbers) & set(others):
        return trunk[0], f"it lies among the trunk's tensors, where {trunk[1]}"
    if any(".experts." in name for name in names):
        return Norms.ABOUT_ZERO, "its experts are stored as Hugging Face does"
    if any(".switch_mlp." in name for name in names):
        return Norms.ABOUT_ONE, "its experts are stored as mlx-lm does"
    said = {files.formats[number] for number in numbers}
    file = files.paths[numbers[0]].name
    if said == {"pt"}:
        return Norms.ABOUT_ZERO, f"{file} says that its format is pt"
    if said == {"mlx"}:
        return Norms.ABOUT_ONE, f"{file} says that its format is mlx"
    return None


def _head_layers(config: dict[str, Any]) -> int | None:
    """How many layers the config gives the head; None where it does not say."""
    text: Any = config.get("text_config")
    inner = cast("dict[str, Any]", text) if isinstance(text, dict) else {}
    count = inner.get("mtp_num_hidden_layers", config.get("mtp_num_hidden_layers"))
    return count if isinstance(count, int) and count > 0 else None


def _quantisation(config: dict[str, Any]) -> dict[str, Any]:
    found: Any = config.get("quantization")
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def _quantised(config: dict[str, Any]) -> str:
    found = _quantisation(config)
    if not found:
        return ""
    mode = found.get("mode", "affine")
    kind = "" if mode == "affine" else f" ({mode})"
    return f"{found.get('bits')} bits in groups of {found.get('group_size')}{kind}"


def _check_experts(path: Path, model: Any) -> None:
    """Refuse routed experts that could not be multiplied: mlx's CPU kernel is float32 only."""
    dtypes = {m.weight.dtype for m in model.modules() if isinstance(m, SwitchLinear)}
    for dtype in dtypes:
        one = mx.zeros((1, 1, 1), dtype)
        try:
            mx.eval(mx.gather_mm(one, one, rhs_indices=mx.array([0])))
        except RuntimeError as error:
            name = str(dtype).removeprefix("mlx.core.")
            raise CheckpointError(
                f"{path} has {name} experts, which mlx cannot multiply on the "
                f"{mx.default_device().type.name} ({error}); use a GPU, or weights in float32"
            ) from error
