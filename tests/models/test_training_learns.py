"""Training makes the losses smaller, those of every depth of the head among them."""

import pytest

from tests.models.training import tiny_training


@pytest.mark.parametrize("model", ["gdn", "flash-next"])
def test_losses_fall(model: str) -> None:
    """On a text that counts, the target's loss falls by a quarter, and the head's by depth."""
    training = tiny_training(model, steps=16)
    losses = [training.step() for _ in range(16)]
    assert 0 < losses[-1][1] < 0.75 * losses[0][1]
    for depth in (1, 2, 3):
        assert 0 < losses[-1][1 + depth] < losses[0][1 + depth]


def test_the_index_learns() -> None:
    """The loss of the pooled index falls; where there is no index there is no such loss."""
    training = tiny_training("flash-next", steps=8)
    losses = [training.step()[-1] for _ in range(8)]
    assert losses[-1] < losses[0]
    assert tiny_training("gdn").step()[-1] == 0.0
