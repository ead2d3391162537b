"""A multi-token-prediction (MTP) decoder for hybrid models on MLX.

    from mtp_decoder import generate_step
    from mtp_decoder.qwen.load import load

    target, head = load("path/to/checkpoint")
    for token, logprobs, from_draft in generate_step(prompt, target, head, num_draft_tokens=3):
        ...

`Session` is the same thing step by step. `mtp_decoder.rewind` holds the rewind of every
kind of state.
"""

from mtp_decoder.accepting import Acceptance
from mtp_decoder.counters import Counters
from mtp_decoder.drafting import HeadRows
from mtp_decoder.errors import (
    CacheMismatchError,
    CheckpointError,
    DecoderError,
    RewindError,
    SessionFileError,
    UnrewindableCacheError,
)
from mtp_decoder.generate import emit, generate_step
from mtp_decoder.policy import Depth, DepthPolicy, RateAware, RoundCost, StreakFallback
from mtp_decoder.processing import Following, TokenMask
from mtp_decoder.prompt_cache import make_prompt_cache
from mtp_decoder.rewind import Rewind
from mtp_decoder.sampling import AcceptBy, Sampling
from mtp_decoder.session import Round, Session, Verification
from mtp_decoder.stopping import Stops
from mtp_decoder.stream import Response, stream_generate
from mtp_decoder.target import Head, Layer, PooledLayer, RecurrentLayer, Target

__all__ = [
    "AcceptBy",
    "Acceptance",
    "CacheMismatchError",
    "CheckpointError",
    "Counters",
    "DecoderError",
    "Depth",
    "DepthPolicy",
    "Following",
    "Head",
    "HeadRows",
    "Layer",
    "PooledLayer",
    "RateAware",
    "RecurrentLayer",
    "Response",
    "Rewind",
    "RewindError",
    "Round",
    "RoundCost",
    "Sampling",
    "Session",
    "SessionFileError",
    "Stops",
    "StreakFallback",
    "Target",
    "TokenMask",
    "UnrewindableCacheError",
    "Verification",
    "emit",
    "generate_step",
    "make_prompt_cache",
    "stream_generate",
]
