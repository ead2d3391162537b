"""One checkpoint's golden as text: prompts, and a trace of every round."""

from __future__ import annotations

from collections.abc import Iterator

from mtp_conformance.golden.contents import Arrays, Round, Tokens, Vector


def trace(tokens: Tokens, arrays: Arrays) -> Iterator[str]:
    """Lines that say what each round verifies, keeps and leaves.

    Args:
        tokens: of the checkpoint.
        arrays: of the checkpoint, for the names, types and shapes of what is left.
    """
    yield f"{tokens.model} in {tokens.dtype}"
    for vector in tokens.vectors:
        yield from _vector(vector, arrays)


def _vector(vector: Vector, arrays: Arrays) -> Iterator[str]:
    yield f"\n{vector.id}: prompt of {len(vector.prompt)}: {_ids(vector.prompt)}"
    yield f"  K=0 emits {_ids(vector.stream)}"
    yield f"  each chosen logit at least {vector.clear_by} above the others"
    yield f"  prefill leaves {_state(arrays, f'{vector.id}/prefill/')}"
    for script in vector.scripts:
        yield f"  {script.id}:"
        for number, played in enumerate(script.rounds, start=1):
            yield f"    round {number}: {_round(played)}"
        last = f"{vector.id}/{script.id}/{len(script.rounds)}/"
        yield f"    leaves {_state(arrays, last)}"


def _round(played: Round) -> str:
    k = len(played.drafts)
    drafts = f"verify {k} drafts {_ids(played.drafts)}" if k else "no drafts"
    return (
        f"{drafts}, accept {played.accepted}, rewind {k - played.accepted}, "
        f"emit {_ids(played.emitted)}; target {played.target_tokens} tokens, "
        f"head {played.head_pairs} pairs"
    )


def _state(arrays: Arrays, prefix: str) -> str:
    found = {n.removeprefix(prefix): a for n, a in arrays.items() if n.startswith(prefix)}
    found.pop("logits", None)
    lines = [f"\n      {n} {a.dtype}{list(a.shape)}" for n, a in found.items()]
    return f"{len(found)} arrays:" + "".join(lines)


def _ids(tokens: tuple[int, ...]) -> str:
    return " ".join(map(str, tokens))
