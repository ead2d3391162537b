"""A token mask and a logits processor with states, which notice when they are misled."""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx

VOCABULARY = 260


class Follower:
    """Keeps the tokens it was told, and everything that was done to it."""

    def __init__(self, tokens: Sequence[int] = ()) -> None:
        self.tokens = list(tokens)
        self.log: list[tuple[str, int]] = []

    def advance(self, token: int) -> None:
        """Take one more token."""
        self.log.append(("advance", token))
        self.tokens.append(token)

    def rewind(self, count: int) -> None:
        """Take back tokens; more than there are is an error."""
        assert 0 < count <= len(self.tokens)
        self.log.append(("rewind", count))
        del self.tokens[len(self.tokens) - count :]


class Grammar(Follower):
    """Half of the tokens are legal, which half hangs on all tokens so far."""

    def fork(self) -> Grammar:
        """An independent copy."""
        return Grammar(self.tokens)

    def allowed(self) -> mx.array:
        """Tokens whose parity is that of a running sum."""
        return mx.arange(VOCABULARY) % 2 == self._parity

    @property
    def _parity(self) -> int:
        return sum((i + 1) * token for i, token in enumerate(self.tokens)) % 2

    def advance(self, token: int) -> None:
        """Take one more token; an illegal one is an error, as it is for a grammar's matcher."""
        assert token % 2 == self._parity, f"{token} after {self.tokens}"
        super().advance(token)


class Budget(Follower):
    """A processor that forces a token once as many others were emitted: a thinking budget."""

    def __init__(self, after: int, token: int, tokens: Sequence[int] = ()) -> None:
        super().__init__(tokens)
        self.after, self.token = after, token

    def fork(self) -> Budget:
        """An independent copy."""
        return Budget(self.after, self.token, self.tokens)

    def __call__(self, tokens: mx.array, logits: mx.array) -> mx.array:
        """Leave nothing but the forced token when its time has come."""
        if len(self.tokens) != self.after:
            return logits
        return mx.where(mx.arange(VOCABULARY) == self.token, logits, -mx.inf)
