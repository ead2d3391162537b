"""The page: a reader who has it, and no code of this project, can use the goldens."""

import hashlib
import json
import re
import struct
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from tests.oracle.compare import BOUND, SAME, SLACK

FOLDER = Path(__file__).parents[2] / "golden"
PAGE = (FOLDER / "README.md").read_text()
MANIFEST = json.loads((FOLDER / "manifest.json").read_text())


def _safetensors(file: Path) -> tuple[dict[str, Any], bytes]:
    """Header and data of a safetensors file, by its format alone."""
    content = file.read_bytes()
    (size,) = struct.unpack("<Q", content[:8])
    return json.loads(content[8 : 8 + size]), content[8 + size :]


def test_files_and_id_are_those_of_the_page() -> None:
    """Sizes, hashes and the id come out as the page says, with SHA-256 alone."""
    lines = ""
    for name, entry in sorted(MANIFEST["files"].items()):
        content = (FOLDER / name).read_bytes()
        digest = hashlib.sha256(content).hexdigest()
        assert {"bytes": len(content), "sha256": digest} == entry
        if name.startswith(("checkpoints/", "tokens/")):
            lines += f"{entry['sha256']}  {name}\n"
    assert hashlib.sha256(lines.encode()).hexdigest() == MANIFEST["id"]


@pytest.mark.parametrize("name", MANIFEST["checkpoints"])
def test_stored_arrays_have_the_hashes_of_the_page(name: str) -> None:
    """The bytes in a safetensors file are those that are hashed; the documented ones are there."""
    for machine in MANIFEST["floats"]:
        key = f"{machine['backend']}-mlx-{machine['mlx']}"
        record = json.loads((FOLDER / "floats" / key / f"{name}.json").read_text())
        header, data = _safetensors(FOLDER / record["stored"])
        assert header.pop("__metadata__")["manifest"] == record["manifest"] == MANIFEST["id"]
        for array, place in header.items():
            start, end = place["data_offsets"]
            entry = record["arrays"][array]
            assert hashlib.sha256(data[start:end]).hexdigest() == entry["sha256"]
            assert place["shape"] == entry["shape"]
        due = ("code/prefill/", "code/mixed/7/", "code/logits", "prose/logits")
        assert {n for n in record["arrays"] if n.startswith(due)} <= set(header)
        assert {n for n, entry in record["arrays"].items() if entry["stored"]} == set(header)


@pytest.mark.parametrize("name", MANIFEST["checkpoints"])
def test_stream_follows_from_logits_and_the_tie_rule(name: str) -> None:
    """Row i's largest value has the lowest id stream[i], and lies as clear as is said."""
    record = json.loads((FOLDER / "tokens" / f"{name}.json").read_text())
    key = next((FOLDER / "floats").iterdir())
    header, data = _safetensors(key / f"{name}.safetensors")
    for vector in record["vectors"]:
        place = header[f"{vector['id']}/logits"]
        raw = data[slice(*place["data_offsets"])]
        wide = (
            raw
            if place["dtype"] == "F32"
            else b"".join(b"\0\0" + raw[i : i + 2] for i in range(0, len(raw), 2))
        )
        values = struct.unpack(f"<{len(wide) // 4}f", wide)
        size = place["shape"][1]
        for i, token in enumerate(vector["stream"]):
            row = values[i * size : (i + 1) * size]
            best = max(row)
            assert row.index(best) == token
            assert best - max(value for value in row if value != best) >= vector["clear_by"]


@pytest.mark.parametrize("name", MANIFEST["checkpoints"])
def test_rounds_follow_from_stream_and_drafts(name: str) -> None:
    """Accept counts, emitted tokens and lengths are what the page's round makes of the stream."""
    record = json.loads((FOLDER / "tokens" / f"{name}.json").read_text())
    rejected = 0
    for vector in record["vectors"]:
        for script in vector["scripts"]:
            at = 1
            for played in script["rounds"]:
                due = vector["stream"][at:]
                right = [a == b for a, b in zip(played["drafts"], due, strict=False)]
                accepted = (*right, False).index(False)
                at += accepted + 1
                assert played["accepted"] == accepted
                assert played["emitted"] == due[: accepted + 1]
                assert played["target_tokens"] == len(vector["prompt"]) + at - 1
                assert played["head_pairs"] == played["target_tokens"] - 1
                rejected += len(played["drafts"]) - accepted
    assert rejected >= 20


def test_every_component_is_on_the_page() -> None:
    """The page's table names each array there is, and no other."""
    found: set[str] = set()
    for file in (FOLDER / "floats").rglob("*.json"):
        names = json.loads(file.read_text())["arrays"]
        found |= {name.rpartition("/")[2].rpartition(".")[2] for name in names}
    table = PAGE.partition("| component | shape | what |")[2].partition("\n\n")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    told = {word.rpartition(".")[2] for row in rows for word in re.findall(r"`([^`]+)`", row)}
    assert told == found - {"logits"}


def test_every_tensor_is_on_the_page() -> None:
    """The page's table of tensors has each one of every checkpoint, and no other."""
    table = PAGE.partition("| tensor | layout |")[2].partition("\n\n")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    told = {word for row in rows for word in re.findall(r"`([^`]+)`", row)}
    found: set[str] = set()
    for file in (FOLDER / "checkpoints").glob("*/model.safetensors"):
        found |= set(_safetensors(file)[0]) - {"__metadata__"}
    ends = {word: {name for name in found if f".{name}".endswith(f".{word}")} for word in told}
    assert found == set().union(*ends.values())
    assert [word for word, names in ends.items() if not names] == []


def test_every_field_of_the_oracle_is_on_the_page() -> None:
    """What the oracle's manifest says of a model is named."""
    said = json.loads((FOLDER / "oracle" / "manifest.json").read_text())
    row = PAGE.partition("| `oracle/manifest.json` |")[2].partition("\n")[0]
    fields = {field for entry in said["models"].values() for field in entry} - {"made_of"}
    assert fields <= set(re.findall(r"`([^`]+)`", row))
    assert f"may be {SAME:.0e} from what" in PAGE


def test_every_model_is_on_the_page() -> None:
    """The page's table of models is that of the manifest."""
    table = PAGE.partition("| model | `model_type` | what it has |")[2].partition("\n\n")[0]
    told = {(m[1], m[2]) for m in re.finditer(r"^\| `([^`]+)` \| (\w+) \|", table, re.MULTILINE)}
    found = set()
    for name in MANIFEST["checkpoints"]:
        config = json.loads((FOLDER / "checkpoints" / name / "config.json").read_text())
        found.add((name.rpartition("-")[0], config["model_type"]))
    assert told == found


def test_rounding_on_the_page_is_the_oracles() -> None:
    """The page's bounds are those that the oracle's manifest gives, for every model."""
    said = json.loads((FOLDER / "oracle" / "manifest.json").read_text())["models"]
    due: list[str] = []
    for model in dict.fromkeys(name.rpartition("-")[0] for name in MANIFEST["checkpoints"]):
        bounds = {n: max(BOUND, SLACK * s) for n, s in said[model]["sensitivity"].items()}
        worst = max(bounds, key=lambda name: bounds[name])
        due.append(f"| `{model}` | {bounds['logits']:.1e} | {bounds[worst]:.1e} (`{worst}`) |")
    table = PAGE.partition("| model | logits | loosest quantity |")[2].partition("\n\n")[0]
    assert table.splitlines()[2:] == due
    assert f"`max({BOUND:.0e}, {SLACK:.0f} * s)`".replace("e-05", "e-5") in PAGE


def test_example_on_the_page_is_cut_out_of_a_golden() -> None:
    """The page's example passes the schema, and its values are those of `gdn-float32`."""
    example = json.loads(re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)[0])
    schema = json.loads((FOLDER / "schema" / "tokens.schema.json").read_text())
    Draft202012Validator(schema).validate(example)
    real = json.loads((FOLDER / "tokens" / "gdn-float32.json").read_text())
    shown, whole = example.pop("vectors")[0], real.pop("vectors")[0]
    assert example == real
    for field in ("prompt", "stream"):
        assert whole[field][:3] == shown[field]
    assert shown["scripts"][0]["rounds"][0] == whole["scripts"][0]["rounds"][0]
    assert shown["clear_by"] == whole["clear_by"]


@pytest.mark.parametrize("file", sorted((FOLDER / "schema").iterdir()), ids=lambda file: file.name)
def test_schemas_are_schemas(file: Path) -> None:
    """Each schema is one of JSON Schema 2020-12."""
    Draft202012Validator.check_schema(json.loads(file.read_text()))
