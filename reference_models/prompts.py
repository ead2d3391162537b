"""Prompts: a little code and a little prose, written for this project."""

from __future__ import annotations

from reference_models.tokenizer import encode

CODE = '''def rewind(cache, accepted):
    """Cut the cache back to the accepted prefix."""
    kept = accepted + 1
    for layer in cache:
        layer.trim(layer.width - kept)
    return kept
<|endoftext|>
class Frontier:
    position = 0

    def advance(self, tokens):
        self.position += len(tokens)
        return self.position
'''

PROSE = (
    "The ferry left before the fog did. Mara counted the lamps along the quay, lost one, "
    "and began again from the harbour wall.<|endoftext|>By noon the island had come back, "
    "roof by roof, and nobody on deck could say which of them had been the first to see it."
)

PROMPTS = {"code": CODE, "prose": PROSE}


def prompt_tokens(length: int, name: str = "code") -> list[int]:
    """The first `length` tokens of a prompt; the end of a text falls early inside.

    An end-of-text token takes the place of the third token of every dozen, so that short
    prompts carry one too.

    Raises:
        ValueError: the length is not positive or the prompt is shorter.
    """
    tokens = encode(PROMPTS[name])
    if not 0 < length <= len(tokens):
        raise ValueError(f"length must be in 1..{len(tokens)}, not {length}")
    return [256 if i % 12 == 2 else token for i, token in enumerate(tokens[:length])]
