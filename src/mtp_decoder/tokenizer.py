"""The tokenizer of a checkpoint folder."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, cast

from mlx_lm.tokenizer_utils import load as load_tokenizer

from mtp_decoder.errors import CheckpointError
from mtp_decoder.qwen.load import read_config

_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json")


def read_tokenizer(folder: Path) -> Any:
    """mlx-lm's tokenizer of the folder, ending where the model's config says.

    The file is looked for here: transformers makes an empty tokenizer of a folder without one.

    Raises:
        CheckpointError: there is no config.json, no tokenizer, or one that cannot be used.
    """
    config = read_config(folder)
    if not any((folder / name).is_file() for name in _FILES):
        raise CheckpointError(f"{folder} has no tokenizer.json")
    text_config = config.get("text_config")
    inner = cast("dict[str, Any]", text_config) if isinstance(text_config, dict) else {}
    ends = config.get("eos_token_id", inner.get("eos_token_id"))
    logging.getLogger("transformers").setLevel(logging.ERROR)
    try:
        return load_tokenizer(folder, eos_token_ids=ends)
    except Exception as error:  # `tokenizers` raises plain Exception
        raise CheckpointError(f"{folder} has no usable tokenizer: {error}") from error
