# pyright: reportMissingImports=false
# (PyTorch is in the oracle's environment alone)
"""Under `double` everything is float64, and what is not is an error."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from reference_models.prompts import prompt_tokens
from tests.oracle import running
from tests.oracle.compare import distance
from tests.oracle.double import NarrowError, double
from tests.oracle.hugging_face import open_folder


def test_casts_go_to_float64() -> None:
    """Every way to ask for float32 that the models use gives float64."""
    x = torch.arange(3, dtype=torch.float64)
    with double():
        made = [
            *(x.float(), x.to(torch.float32), torch.softmax(x, -1, dtype=torch.float)),
            *(torch.arange(3, dtype=torch.float), torch.zeros(3), x.to(dtype=torch.float32)),
        ]
    assert {array.dtype for array in made} == {torch.float64}


def test_what_is_narrower_is_an_error() -> None:
    """A float32 that came in unnoticed does not stay unnoticed."""
    x = torch.ones(3, dtype=torch.float32)
    with double(), pytest.raises(NarrowError, match="float32"):
        torch.add(x, 2)


def test_the_default_type_comes_back() -> None:
    """Nothing of it stays behind."""
    with pytest.raises(ZeroDivisionError), double():
        _ = 1 / 0
    assert torch.zeros(1).dtype == torch.float32
    assert torch.ones(1, dtype=torch.float64).float().dtype == torch.float32


@pytest.mark.parametrize("model", ["gdn", "flash-next"])
def test_without_it_float64_is_no_better_than_float32(
    folder: Callable[[str], Path], model: str
) -> None:
    """As shipped, a float64 model's logits depend on how it is run; its casts are why."""
    tokens = prompt_tokens(24)
    target, _ = open_folder(folder(model), torch.float64)

    def apart() -> float:
        whole = running.numbers(running.forward(target, tokens, running.make_cache(target)))
        cache = running.make_cache(target)
        steps = [running.numbers(running.forward(target, [t], cache))[0] for t in tokens]
        return distance("logits", np.stack(steps), whole)

    with torch.no_grad():
        shipped = apart()
        with double():
            neutralised = apart()
    assert shipped > 1e-8
    assert neutralised < 1e-12
