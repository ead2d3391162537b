"""Comparing JSON documents leaf by leaf: schemas, manifests, and what the oracle measured."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, cast

from mtp_conformance.golden.comparing import Change

_SHOWN = 60


def compare_documents(name: str, quantity: str, old: Any, new: Any) -> Iterator[Change]:
    """Leaves that are not the same, by their path: `models.gdn.sensitivity.logits`.

    The order of keys is no difference here; that of a list is.
    """
    before, after = dict(_leaves(old)), dict(_leaves(new))
    for where in (*before, *(where for where in after if where not in before)):
        if where not in after:
            yield Change(name, quantity, where, "is gone", 1, 1)
        elif where not in before:
            yield Change(name, quantity, where, "is new", 1, 1)
        elif before[where] != after[where]:
            what = f"{before[where][:_SHOWN]} became {after[where][:_SHOWN]}"
            yield Change(name, quantity, where, what, 1, 1)


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Path and JSON text of everything that holds nothing else; empty ones count, too."""
    if isinstance(value, dict | list) and value:
        pairs = cast("dict[str, Any]", value).items() if isinstance(value, dict) else ()
        for key, part in pairs or enumerate(cast("list[Any]", value)):
            yield from _leaves(part, f"{path}.{key}" if path else str(key))
    else:
        yield path, json.dumps(value)
