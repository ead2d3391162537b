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


def _in_manifest(change: Callable[[Any], object]) -> Damage:
    return lambda folder, _: _edited(folder / "manifest.json", change)


def _second_key(file: Callable[[Path], Path], before: str, pinned: bool) -> Damage:
    def damage(folder: Path, pin: Pin) -> None:
        text = file(folder).read_text()
        twice = before.partition(":")[0] + ": 0, " + before
        assert before in text
        file(folder).write_text(text.replace(before, twice, 1))
        if pinned:
            pin(folder)

    return damage


def _linked(folder: Path, _: Pin) -> None:
    elsewhere = _tokens(folder).rename(folder.parent / "elsewhere.json")
    _tokens(folder).symlink_to(elsewhere)


def _without_config(folder: Path, pin: Pin) -> None:
    (folder / "checkpoints" / "attn-float32" / "config.json").unlink()
    pin(folder)


def _orphan(folder: Path, pin: Pin) -> None:
    file = folder / "floats" / "old-key" / "x.json"
    file.parent.mkdir()
    file.write_text("{}")
    pin(folder)


def _oracle_cut(folder: Path, _: Pin) -> None:
    (folder / "oracle").mkdir()
    (folder / "oracle" / "x.safetensors").write_text("cut")
    said = {"models": {"x": {"file": "x.safetensors", "sha256": "0" * 64}}}
    (folder / "oracle" / "manifest.json").write_text(json.dumps(said))


def _oracle_manifest_cut(folder: Path, pin: Pin) -> None:
    _oracle_cut(folder, pin)
    _cut(folder / "oracle" / "manifest.json")


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
    "manifest-names-fewer": (
        _in_manifest(lambda d: d["checkpoints"].pop()),
        "manifest.json: it lists checkpoints/gdn-bfloat16/config.json, which is of no checkpoint",
    ),
    "manifest-names-more": (
        _in_manifest(lambda d: d["checkpoints"].append("gdn-float32")),
        "manifest.json lists no checkpoints/gdn-float32/config.json",
    ),
    "manifest-lists-an-orphan": (_orphan, "it lists floats/old-key/x.json, which is of no"),
    "manifest-says-fewer-bytes": (
        _in_manifest(lambda d: [entry.update(bytes=1) for entry in d["files"].values()]),
        r"config.json: it is too long: \d+ bytes, 1 are due",
    ),
    "manifest-has-a-machine-twice": (
        _in_manifest(lambda d: d["floats"].append(d["floats"][0])),
        "manifest.json: it names a machine twice",
    ),
    "manifest-says-another-processor": (
        _in_manifest(lambda d: d["floats"][0].update(made_on={})),
        "made_on is not what manifest.json says of cpu-",
    ),
    "manifest-has-a-key-twice": (
        _second_key(lambda f: f / "manifest.json", '"version": 1', False),
        "manifest.json: it is no whole JSON: the key 'version' stands there twice",
    ),
    "manifest-too-deep": (
        lambda f, _: (f / "manifest.json").write_text("[" * 200_000),
        "manifest.json: it is no whole JSON",
    ),
    "manifest-no-text": (
        lambda f, _: (f / "manifest.json").write_bytes(b"\xff\xfe\x00"),
        "manifest.json: it is no whole JSON",
    ),
    "schema-that-takes-anything": (
        lambda f, _: (f / "schema" / "tokens.schema.json").write_text("true"),
        "tokens.schema.json: it is not the schema of this version of the format",
    ),
    "schema-that-is-none": (
        lambda f, _: (f / "schema" / "manifest.schema.json").write_text('{"type": 5}'),
        "manifest.schema.json: it is not the schema of this version of the format",
    ),
    "checkpoint-without-config": (
        _without_config,
        "manifest.json lists no checkpoints/attn-float32/config.json",
    ),
    "oracle-cut": (_oracle_cut, "x.safetensors: its SHA-256 is not the one in oracle/manifest"),
    "oracle-manifest-cut": (_oracle_manifest_cut, "it is no manifest of the oracle"),
    "tokens-linked": (_linked, "attn-float32.json: there is a link on the way to it"),
    "tokens-of-another-checkpoint": (
        _edited_and_pinned(_tokens, lambda d: d.update(checkpoint="checkpoints/gdn-bfloat16")),
        "attn-float32.json: it says that it is of checkpoints/gdn-bfloat16",
    ),
    "tokens-not-clear": (
        _edited_and_pinned(_tokens, lambda d: d["vectors"][0].update(clear_by=float("nan"))),
        "attn-float32.json: it is no whole JSON: NaN is no number",
    ),
    "tokens-clear-by-infinity": (
        _edited_and_pinned(_tokens, lambda d: d["vectors"][0].update(clear_by=float("inf"))),
        "attn-float32.json: it is no whole JSON: Infinity is no number",
    ),
    "tokens-with-a-vector-twice": (
        _edited_and_pinned(_tokens, lambda d: d["vectors"].append(d["vectors"][0])),
        "attn-float32.json: it has vectors of the same id: prose, prose",
    ),
    "tokens-with-a-script-twice": (
        _edited_and_pinned(
            _tokens, lambda d: d["vectors"][0]["scripts"].append(d["vectors"][0]["scripts"][0])
        ),
        "attn-float32.json: it has scripts of prose of the same id: mixed, mixed",
    ),
    "floats-with-an-array-twice": (
        _second_key(_floats, '"prose/logits": {', True),
        "attn-float32.json: it is no whole JSON: the key 'prose/logits' stands there twice",
    ),
    "floats-stored-elsewhere": (
        _edited_and_pinned(_floats, lambda d: d.update(stored="floats/../x.safetensors")),
        r"attn-float32.json: it says that it is of floats/\.\./x.safetensors",
    ),
    "arrays-with-more-metadata": (
        _stored(lambda arrays: None, note="mine"),
        "attn-float32.safetensors: its metadata is to be its manifest alone, not manifest, note",
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
