"""Passes submitted layer by layer, or whole: the same bits."""

from typing import Any

import mlx.core as mx
import pytest

from mtp_conformance.exactness import require_equal
from mtp_decoder import Session, drafting, window
from mtp_decoder.submitting import by_parts
from tests.decoder.conftest import Zoo
from tests.decoder.helpers import PROMPT


class Counted:
    """`mx.async_eval`, counted."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.calls, self._submit = 0, mx.async_eval
        patch.setattr(mx, "async_eval", self)

    def __call__(self, *arrays: Any) -> None:
        """Submit them."""
        self.calls += 1
        self._submit(*arrays)


@pytest.mark.parametrize(("device", "parts"), [(mx.cpu, True), (mx.gpu, False)])
def test_where(monkeypatch: pytest.MonkeyPatch, device: mx.DeviceType, parts: bool) -> None:
    """A GPU is given a pass whole."""
    monkeypatch.setattr(mx, "default_device", lambda: mx.Device(device))
    assert by_parts() is parts


def _decoded(zoo: Zoo, patch: pytest.MonkeyPatch, parts: bool) -> tuple[dict[str, mx.array], int]:
    """State, logits and log-probabilities after a prompt and two rounds, and submissions."""
    for module in (window, drafting):
        patch.setattr(module, "by_parts", lambda: parts)
    session, counted = Session(*zoo("gdn-agree")), Counted(patch)
    session.prefill(PROMPT)
    rounds = [session.round(2), session.round(3)]
    patch.undo()
    found = dict(session.state())
    for i, made in enumerate(rounds):
        found |= {f"logits{i}": made.logits, f"logprobs{i}": made.logprobs}
    return found, counted.calls


def test_same_bits(zoo: Zoo, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every layer but the last and every draft is submitted by itself, or none: equal results."""
    parts, submitted = _decoded(zoo, monkeypatch, parts=True)
    whole, none = _decoded(zoo, monkeypatch, parts=False)
    require_equal(parts, whole, what="the passes submitted whole")
    layers = len(zoo("gdn-agree")[0].layers)
    passes, drafts = 2 + 2, 2 + 3  # the prompt takes two, its last token one of them
    assert (submitted, none) == (passes * (layers - 1) + drafts, 0)


@pytest.mark.parametrize("parts", [True, False])
def test_steps_ahead(zoo: Zoo, monkeypatch: pytest.MonkeyPatch, parts: bool) -> None:
    """A step that runs ahead is submitted at its end, too, and leaves the bits of a round."""
    monkeypatch.setattr(window, "by_parts", lambda: parts)
    target, _ = zoo("gdn")
    ahead, apart = Session(target, None), Session(target, None)
    ahead.prefill(PROMPT)
    apart.prefill(PROMPT)
    counted = Counted(monkeypatch)
    rows = [ahead.step(more=more).logprobs for more in (True, True, False)]
    assert counted.calls == 3 * (1 + parts * (len(target.layers) - 1))
    expected = [apart.round(0).logprobs for _ in rows]
    named = [{str(i): row for i, row in enumerate(found)} for found in (rows, expected)]
    require_equal(*named, what="rounds without drafts")
    require_equal(ahead.state(), apart.state(), what="the state after rounds")
