"""Smoke finds what is wrong with an adapter and says what to do."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from mtp_conformance import Oracles
from mtp_conformance.adapters.builtin import (
    BuiltinRuntime,
    BuiltinSession,
    make_runtime,
    zoo_materials,
)
from mtp_conformance.protocol import Description, Generated, Options, Runtime
from mtp_conformance.smoke import Check, Status, smoke
from tests.fakes.claims_state import ClaimsState
from tests.fakes.flaky import Flaky
from tests.fakes.ignores_drafts import IgnoresDrafts
from tests.fakes.lies_about_k import LiesAboutK
from tests.fakes.live_views import LiveViews
from tests.fakes.shares_forks import SharesForks


class DropsGuess(BuiltinRuntime):
    """Takes any guess for its own drafts."""

    def open(self, model: str, checkpoint: Path, options: Options) -> BuiltinSession:
        """A session that drops the guess."""
        return _Deaf(*super().open(model, checkpoint, options).parts)


class _Deaf(BuiltinSession):
    def generate(self, tokens: Sequence[int], **arguments: Any) -> Generated:
        arguments["guess"] = None
        return super().generate(tokens, **arguments)


class OffersNothing(BuiltinRuntime):
    """Lists no capability."""

    def describe(self) -> Description:
        """As the builtin runtime, without any."""
        return replace(super().describe(), capabilities=frozenset())


class _Spoiled(BuiltinSession):
    def state(self) -> dict[str, mx.array]:
        found = super().state()
        return {name: a for name, a in found.items() if not name.endswith("conv")}

    def timings(self) -> dict[str, float]:
        return {"draft": 1.0}


class HidesWindows(BuiltinRuntime):
    """Leaves the convolution windows out of its state, and has a clock that stands."""

    session: type[BuiltinSession] = _Spoiled

    def open(self, model: str, checkpoint: Path, options: Options) -> BuiltinSession:
        """A session of the runtime's kind."""
        return self.session(*super().open(model, checkpoint, options).parts)


class _Reversed(BuiltinSession):
    def state(self) -> dict[str, mx.array]:
        found = super().state()
        return {n: a[:, :, ::-1] if n.endswith("keys") else a for n, a in found.items()}


class ReversesRows(HidesWindows):
    """Gives rows newest first."""

    session = _Reversed


def _wrong(runtime: Runtime, folder: Path) -> dict[str, str]:
    checks: list[Check] = list(smoke(Oracles(runtime, zoo_materials(folder)), "gdn"))
    return {check.name: check.advice for check in checks if check.status is Status.WRONG}


def test_builtin_is_fit(tmp_path: Path) -> None:
    """Nothing is wrong with the builtin runtime."""
    assert _wrong(make_runtime(), tmp_path) == {}


def test_what_others_rely_on_is_said_alone(tmp_path: Path) -> None:
    """Shared forks break every later check; only the fork is reported."""
    assert list(_wrong(SharesForks(), tmp_path)) == ["a fork is independent"]


@pytest.mark.parametrize(
    ("runtime", "check", "advice"),
    [
        (LiveViews, "state is a copy", "must return copies"),
        (OffersNothing, "something is offered", "start with `stream`"),
        (HidesWindows, "state is whole", "state lacks layers.0.conv"),
        (HidesWindows, "the clock is monotonic", "charged no time in any phase"),
        (ReversesRows, "state moves", "give rows oldest first"),
        (Flaky, "plain decoding repeats", "two rows of logits"),
        (DropsGuess, "a guess is used", "guess[i] must be what is drafted"),
        (SharesForks, "a fork is independent", "advancing a fork changed"),
        (IgnoresDrafts, "drafts are injected", "must verify the drafts it is given"),
        (IgnoresDrafts, "generate drafts", "drafted nothing"),
        (LiesAboutK, "drafts are injected", "logits are (2, 260), not (3, 260)"),
        (ClaimsState, "open and prefill", "state has no array"),
    ],
)
def test_fake_is_found(runtime: type[Runtime], check: str, advice: str, tmp_path: Path) -> None:
    """The check that is wrong names what to mend."""
    assert advice in _wrong(runtime(), tmp_path)[check]
