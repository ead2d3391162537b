"""Ways in which a golden can be damaged, by name, and what is said of each."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx

from mtp_conformance.golden.reading import Golden

Pin = Callable[[Path], None]
Damage = Callable[[Path, Pin], object]


def _key(folder: Path) -> str:
    return next((folder / "floats").iterdir()).name


def _tokens(folder: Path) -> Path:
    return folder / "tokens" / "attn-float32.json"


def _floats(folder: Path, ending: str = "json") -> Path:
    return folder / "floats" / _key(folder) / f"attn-float32.{ending}"


def _cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-10])


def _altered(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)


def _edited(file: Path, change: Callable[[Any], object]) -> None:
    document = json.loads(file.read_text())
    change(document)
    file.write_text(json.dumps(document))


def _edited_and_pinned(
    file: Callable[[Path], Path], change: Callable[[Any], object], *, belongs: bool = False
) -> Damage:
    """An edit that the manifest knows of, so that another check has to notice."""

    def damage(folder: Path, pin: Pin) -> None:
        _edited(file(folder), change)
        pin(folder)
        if belongs:  # tokens have changed, and with them the id
            _edited(_floats(folder), lambda d: d.update(manifest=Golden(folder).id))
            pin(folder)

    return damage


def _stored(change: Callable[[dict[str, mx.array]], object], **metadata: str) -> Damage:
    def damage(folder: Path, pin: Pin) -> None:
        file = str(_floats(folder, "safetensors"))
        loaded: Any = mx.load(file)
        mx.eval(list(loaded.values()))
        change(loaded)
        mx.save_safetensors(file, loaded, {"manifest": Golden(folder).id, **metadata})
        pin(folder)

    return damage


def _no_safetensors(folder: Path, pin: Pin) -> None:
    _floats(folder, "safetensors").write_text("no safetensors")
    pin(folder)


def _forgets_floats(folder: Path, _: Pin) -> None:
    file = f"floats/{_key(folder)}/attn-float32.json"
    _edited(folder / "manifest.json", lambda d: d["files"].pop(file))


DAMAGES: dict[str, tuple[Damage, str]] = {
    "no-manifest": (lambda f, _: (f / "manifest.json").unlink(), "there is no manifest.json"),
    "manifest-cut": (lambda f, _: _cut(f / "manifest.json"), "manifest.json: it is no whole JSON"),
    "manifest-of-other-files": (
        lambda f, _: _edited(f / "manifest.json", lambda d: d.update(id="0" * 64)),
        "its id is not that of the files it lists",
    ),
    "manifest-forgets": (_forgets_floats, "manifest.json lists no floats/"),
    "manifest-against-schema": (
        lambda f, _: _edited(f / "manifest.json", lambda d: d.update(made_by="me")),
        r"manifest.json: the document: .*'made_by' was unexpected",
    ),
    "no-schema": (
        lambda f, _: (f / "schema" / "tokens.schema.json").unlink(),
        "tokens.schema.json: no schema to hold goldens against",
    ),
    "tokens-gone": (lambda f, _: _tokens(f).unlink(), "attn-float32.json: it cannot be read"),
    "tokens-cut": (lambda f, _: _cut(_tokens(f)), r"it is truncated: \d+ of \d+ bytes"),
    "tokens-altered": (lambda f, _: _altered(_tokens(f)), "its SHA-256 is not the one in"),
    "tokens-no-json": (
        lambda f, pin: (_cut(_tokens(f)), pin(f)),
        "attn-float32.json: it is no whole JSON",
    ),
    "tokens-against-schema": (
        _edited_and_pinned(_tokens, lambda d: d["vectors"][0]["stream"].append("x")),
        r"\['vectors'\]\[0\]\['stream'\]\[12\]: 'x' is not of type 'integer' "
        r"\(schema/tokens.schema.json\)",
    ),
    "tokens-of-another-version": (
        _edited_and_pinned(_tokens, lambda d: d.update(version=2)),
        "it is of version 2, this reads 1",
    ),
    "tokens-of-another-model": (
        _edited_and_pinned(_tokens, lambda d: d.update(model="gdn")),
        "it says that it is of gdn-float32",
    ),
    "checkpoint-cut": (
        lambda f, _: _cut(f / "checkpoints" / "attn-float32" / "model.safetensors"),
        "model.safetensors: it is truncated",
    ),
    "checkpoint-altered": (
        lambda f, _: _altered(f / "checkpoints" / "attn-float32" / "config.json"),
        "config.json: its SHA-256 is not the one in",
    ),
    "floats-cut": (lambda f, _: _cut(_floats(f)), "attn-float32.json: it is truncated"),
    "floats-of-another-manifest": (
        _edited_and_pinned(_floats, lambda d: d.update(manifest="f" * 64)),
        "attn-float32.json: it belongs to manifest ffffffffffff, this is [0-9a-f]{12}: other",
    ),
    "floats-left-behind": (
        _edited_and_pinned(_tokens, lambda d: d["vectors"][0]["prompt"].append(1)),
        "attn-float32.json: it belongs to manifest",
    ),
    "floats-of-another-machine": (
        _edited_and_pinned(_floats, lambda d: d.update(mlx="9.9")),
        "it says that it is of cpu-[a-z0-9_-]+-mlx-9.9/attn-float32",
    ),
    "floats-against-schema": (
        _edited_and_pinned(_floats, lambda d: d["arrays"].clear()),
        r"\['arrays'\]: .*\(schema/floats.schema.json\)",
    ),
    "arrays-cut": (
        lambda f, _: _cut(_floats(f, "safetensors")),
        "attn-float32.safetensors: it is truncated",
    ),
    "arrays-altered": (
        lambda f, _: _altered(_floats(f, "safetensors")),
        "attn-float32.safetensors: its SHA-256 is not the one in",
    ),
    "arrays-no-safetensors": (_no_safetensors, "it is no safetensors file"),
    "arrays-of-another-manifest": (
        _stored(lambda arrays: None, manifest="e" * 64),
        "attn-float32.safetensors: it belongs to manifest eeeeeeeeeeee",
    ),
    "arrays-without-one": (
        _stored(lambda arrays: arrays.pop("prose/logits")),
        "prose/logits and what .*attn-float32.safetensors stores contradict each other",
    ),
    "arrays-with-another-value": (
        _stored(lambda arrays: arrays.update({"prose/logits": arrays["prose/logits"] + 1})),
        "prose/logits has other bytes than its hash in",
    ),
}
