"""What a runtime may answer: types, ranges and shapes no decoder can be right without.

Each function takes an answer as it came and returns it, or raises with a sentence for the author
of the adapter. Nothing here compares with an expected value.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

import mlx.core as mx

from mtp_conformance.protocol import Capability, Description, Generated, Outcome

_NAME = re.compile(r"(layers|head)\.(\d+|frontier)\.[a-z][a-z0-9_]*")
_FLOATS = (mx.float32, mx.bfloat16, mx.float16)
_AFTER_STOP = ("frontier", "emitted", "block")
_HEAD_ROWS = {"draft", "target"}


class BadAnswer(ValueError):
    """An answer that is not one; the message is for the adapter's author."""


def description(value: object) -> Description:
    """A runtime's card.

    Raises:
        BadAnswer: names the field.
    """
    if not isinstance(value, Description):
        raise BadAnswer(f"describe returned a {_kind(value)}, not a Description")
    if not _texts([value.name]) or not value.name:
        raise BadAnswer("the description's name is no text")
    known = cast("object", value.capabilities)
    if not isinstance(known, frozenset | set) or not all(isinstance(c, Capability) for c in known):
        raise BadAnswer("the description's capabilities are no frozenset of Capability")
    for field in ("models", "strategies", "head_rows", "depth_policies"):
        names = cast("object", getattr(value, field))
        if not isinstance(names, tuple) or not _texts(cast("tuple[object, ...]", names)):
            raise BadAnswer(f"the description's {field} is no tuple of texts")
    _strategies(value.strategies)
    if not value.head_rows or not set(value.head_rows) <= _HEAD_ROWS:
        raise BadAnswer(f"head_rows is {value.head_rows}; give 'draft', 'target' or both")
    if not _whole(value.max_draft_tokens) or value.max_draft_tokens < 1:
        raise BadAnswer(f"max_draft_tokens is {value.max_draft_tokens!r}, no number from 1")
    if value.after_stop not in _AFTER_STOP:
        raise BadAnswer(f"after_stop is {value.after_stop!r}; give one of {_AFTER_STOP}")
    return value


def _strategies(names: Sequence[str]) -> None:
    if not names or len(set(names)) != len(names):
        raise BadAnswer(f"strategies is {tuple(names)}; name each way of rewinding once")
    odd = [name for name in names if not re.fullmatch(r"[A-Za-z0-9_.+-]+", name)]
    if odd:
        raise BadAnswer(f"strategy {odd[0]!r}: use letters, digits and . _ + - alone")


def outcome(value: object, drafts: int, operation: str) -> Outcome:
    """What a prefill or a round of that many drafts emitted; logits apart.

    Raises:
        BadAnswer: says what is wrong with it.
    """
    if not isinstance(value, Outcome):
        raise BadAnswer(f"{operation} returned a {_kind(value)}, not an Outcome")
    if not _whole(value.accepted):
        raise BadAnswer(f"accepted is {value.accepted!r}, no whole number")
    if not 0 <= value.accepted <= drafts:
        raise BadAnswer(f"accepted {value.accepted} of {drafts} drafts")
    tokens(value.tokens, operation)
    if len(value.tokens) != value.accepted + 1:
        raise BadAnswer(
            f"emitted {len(value.tokens)} tokens with {value.accepted} drafts accepted; "
            f"{value.accepted + 1} are due"
        )
    return value


def tokens(value: object, operation: str) -> None:
    """Emitted token ids.

    Raises:
        BadAnswer: they are no whole numbers from 0.
    """
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise BadAnswer(f"{operation}: tokens is a {_kind(value)}, not a tuple of ints")
    given = cast("Sequence[object]", value)
    if not all(_whole(token) for token in given):
        raise BadAnswer(f"{operation}: tokens are not all ints: {tuple(given)[:8]}")
    if any(cast("int", token) < 0 for token in given):
        raise BadAnswer(f"emitted negative token ids: {tuple(given)}")


def generated(value: object, num_draft_tokens: int) -> Generated:
    """What `generate` emitted; that it may be no more than asked for is a case's to judge.

    Raises:
        BadAnswer: says what is wrong with it.
    """
    if not isinstance(value, Generated):
        raise BadAnswer(f"generate returned a {_kind(value)}, not a Generated")
    tokens(value.tokens, "generate")
    if not value.tokens:
        raise BadAnswer("generate emitted no token")
    if not _whole(value.drafted) or not _whole(value.accepted):
        raise BadAnswer("generate: drafted and accepted are no whole numbers")
    if not 0 <= value.accepted <= value.drafted:
        raise BadAnswer(f"generate says {value.accepted} of {value.drafted} accepted")
    if num_draft_tokens == 0 and value.drafted:
        raise BadAnswer(f"generate drafted {value.drafted} tokens with K=0")
    for drafts in value.drafts:
        tokens(drafts, "generate's drafts")
    shown = sum(len(drafts) for drafts in value.drafts)
    if value.drafts and shown != value.drafted:
        raise BadAnswer(f"generate shows {shown} drafts and says that it drafted {value.drafted}")
    if not isinstance(cast("object", value.text), str):
        raise BadAnswer(f"generate: text is a {_kind(value.text)}, not a str")
    if not all(isinstance(cast("object", p), int | float) for p in value.logprobs):
        raise BadAnswer("generate: logprobs are no numbers, one a token")
    return value


def depths(value: object, rounds: Sequence[int], most: int) -> list[list[int]]:
    """K for every round of every request.

    Raises:
        BadAnswer: other numbers of requests or rounds, or a K outside 0 to `most`.
    """
    if not isinstance(value, list | tuple) or not all(
        isinstance(part, list | tuple) for part in cast("Sequence[object]", value)
    ):
        raise BadAnswer(f"depths returned a {_kind(value)}, not a list of lists of numbers")
    given = [list(part) for part in cast("Sequence[Sequence[int]]", value)]
    if [len(part) for part in given] != list(rounds):
        raise BadAnswer(f"depths chose for {[len(part) for part in given]} rounds, not {rounds}")
    bad = [k for part in given for k in part if not _whole(k) or not 0 <= k <= most]
    if bad:
        raise BadAnswer(f"depths chose {bad[0]!r}, where 0 to {most} drafts are possible")
    return given


def logits(value: object, rows: int, size: int | None, emitted: Sequence[int] | None) -> mx.array:
    """Logits [rows, V] of a verify pass, and the greedy choices of its first rows, if they are.

    Raises:
        BadAnswer: another shape or type, NaN or infinity, or an emitted token that is not the
            lowest one with the row's highest logit.
    """
    if value is None:
        raise BadAnswer("claims to give logits and gave none")
    value = array(value, "logits")
    if value.dtype not in _FLOATS:
        raise BadAnswer(f"logits are {value.dtype}, no floating-point type")
    wanted = (rows, size if size is not None else value.shape[-1] if value.ndim else 0)
    if value.shape != wanted:
        raise BadAnswer(f"logits are {value.shape}, not {wanted}")
    if mx.isnan(value).any().item():
        raise BadAnswer("logits hold NaN")
    if (value == math.inf).any().item():
        raise BadAnswer("logits hold infinity")
    if emitted is None:
        return value
    chosen = cast("list[int]", value[: len(emitted)].argmax(axis=-1).tolist())
    if chosen != list(emitted):
        at = next(i for i, pair in enumerate(zip(chosen, emitted, strict=True)) if len({*pair}) > 1)
        raise BadAnswer(
            f"row {at} of the logits is highest at token {chosen[at]}, and {emitted[at]} was "
            "emitted; decode greedily, ties to the lowest id, and give row i after i drafts"
        )
    return value


def array(value: object, what: str) -> mx.array:
    """An mlx array.

    Raises:
        BadAnswer: it is something else.
    """
    if not isinstance(value, mx.array):
        raise BadAnswer(f"{what} are a {_kind(value)}, not an mlx array")
    return value


def state(value: object) -> dict[str, mx.array]:
    """Named arrays of caches.

    Raises:
        BadAnswer: no dict of arrays, a name of another form, or NaN or infinity in one.
    """
    if not isinstance(value, dict):
        raise BadAnswer(f"state returned a {_kind(value)}, not a dict of arrays")
    arrays = cast("dict[object, object]", value)
    if not arrays:
        raise BadAnswer(
            "state has no array; return every cache array as layers.I.component, "
            "or leave `state` out of the capabilities"
        )
    for name, given in arrays.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise BadAnswer(
                f"state has an array {name!r}; names are layers.I.component and "
                "head.I.component, the component in lower case letters, digits and _"
            )
        if not isinstance(given, mx.array):
            raise BadAnswer(f"state's {name} is a {_kind(given)}, not an array")
    named = cast("dict[str, mx.array]", arrays)
    _finite(named)
    return named


def _finite(arrays: Mapping[str, mx.array]) -> None:
    by_type: dict[mx.Dtype, list[mx.array]] = {}
    for array in arrays.values():
        if array.dtype in _FLOATS:
            by_type.setdefault(array.dtype, []).append(array.reshape(-1))
    # One pass a type: a state has dozens of small arrays, and is looked at thousands of times.
    if all(mx.isfinite(mx.concatenate(rows)).all().item() for rows in by_type.values()):
        return
    bad = [n for n, a in arrays.items() if a.dtype in _FLOATS and not mx.isfinite(a).all().item()]
    raise BadAnswer(f"state holds NaN or infinity in {', '.join(bad)}")


def timings(value: object) -> dict[str, float]:
    """Seconds by phase.

    Raises:
        BadAnswer: no dict of seconds, or an empty one.
    """
    if not isinstance(value, Mapping):
        raise BadAnswer(f"timings returned a {_kind(value)}, not a dict of seconds by phase")
    given = cast("Mapping[object, object]", value)
    if not given:
        raise BadAnswer("timings has no phase; give seconds by phase, or leave `timing` out")
    for phase, seconds in given.items():
        if not isinstance(phase, str) or not isinstance(seconds, int | float):
            raise BadAnswer(f"timings says {phase!r}: {seconds!r}, which is no phase with seconds")
        if not math.isfinite(seconds) or seconds < 0:
            raise BadAnswer(f"timings says {seconds} seconds for {phase}")
    return dict(cast("Mapping[str, float]", given))


def session(value: object, operation: str) -> Any:
    """A session.

    Raises:
        BadAnswer: there is none.
    """
    if not hasattr(value, "prefill"):
        raise BadAnswer(f"{operation} returned a {_kind(value)}, not a session with `prefill`")
    return value


def _kind(value: object) -> str:
    return type(value).__name__


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _texts(values: Sequence[object]) -> bool:
    return all(isinstance(value, str) for value in values)
