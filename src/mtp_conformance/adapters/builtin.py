"""This project's own decoder as a runtime, on the reference models and on mlx-lm's classes.

A model `gdn` runs the reference classes, `gdn+mlx-lm` mlx-lm's own ones on the same
checkpoint. This is the only module of the harness that knows the decoder and the models.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import Any, cast

import mlx.core as mx
from mlx_lm import __version__ as mlx_lm_version
from mlx_lm.sample_utils import make_logits_processors
from mlx_lm.tokenizer_utils import load as load_tokenizer

from mtp_conformance.adapters.dead_rows import fill_dead_rows
from mtp_conformance.adapters.slow_caches import slow_down
from mtp_conformance.failure import UsageError
from mtp_conformance.oracles import ExpertSizes, Materials
from mtp_conformance.protocol import Capability, Description, Generated, Options, Outcome, Trial
from mtp_conformance.verdict import Unsupported
from mtp_decoder import HeadRows, Rewind, Sampling, Session, Stops, emit
from mtp_decoder.errors import CheckpointError, MissingKernelError
from mtp_decoder.experts import OffloadSettings, Shards, group, offload, stores_of
from mtp_decoder.policy import Depth, make_policy
from mtp_decoder.qwen.load import FAMILIES, load, load_with_facts, read_config
from mtp_decoder.rehearsing import rehearse
from mtp_decoder.session import MAX_DRAFT_TOKENS
from mtp_decoder.text import TextStream
from mtp_decoder.tokenizer import read_tokenizer
from reference_models import checkpoint as checkpoints
from reference_models.chain import chained_drafts
from reference_models.config import ConfigError
from reference_models.layout import expected_state
from reference_models.moe import SparseMoE
from reference_models.prompts import prompt_tokens
from reference_models.routing import routing
from reference_models.shipped import copy_shipped, shipped
from reference_models.ties import smallest_cut_gap
from reference_models.zoo import ZOO

_MLX_VERSION: str = vars(mx)["__version__"]  # an attribute that the stub of mlx.core lacks
_DTYPES = {"float32": mx.float32, "bfloat16": mx.bfloat16}
_MLX_LM = tuple(f"{n}+mlx-lm" for n, c in ZOO.items() if c.model_type.startswith("qwen3"))
_TRAINED = shipped()
_TRAINED_MLX_LM = tuple(f"{n}+mlx-lm" for n in _TRAINED if n.startswith("qwen3"))
_REFERENCE = tuple(sorted({c.model_type for c in ZOO.values()} - {*FAMILIES}))
"""Families that the reference classes alone decode."""
_EXPERTS = tuple(name for name, config in ZOO.items() if config.num_experts)
_STORE_COUNTS = ("requests", "hits", "reads", "bytes_read")


class BuiltinRuntime:
    """The decoder of `mtp_decoder`."""

    def describe(self) -> Description:
        """Everything is offered."""
        return Description(
            name="builtin",
            versions={"mlx": _MLX_VERSION, "mlx-lm": mlx_lm_version},
            capabilities=frozenset(Capability),
            models=(*ZOO, *_MLX_LM, *_TRAINED, *_TRAINED_MLX_LM),
            strategies=tuple(strategy.value for strategy in Rewind),
            head_rows=tuple(policy.value for policy in HeadRows),
            max_draft_tokens=MAX_DRAFT_TOKENS,
            depth_policies=tuple(depth.value for depth in Depth if depth is not Depth.FIXED),
        )

    def open(self, model: str, checkpoint: Path, options: Options) -> BuiltinSession:
        """A new session; models are loaded once a process.

        Raises:
            Unsupported: mlx-lm's experts in another type than float32 on the CPU backend, or keys
                and values quantised as this device's backend cannot compute with.
        """
        mlx_lm_experts = "+" in model and model.startswith(_EXPERTS)
        in_bfloat16 = checkpoint.name.endswith("bfloat16")
        if mlx_lm_experts and in_bfloat16 and mx.default_device() == mx.Device(mx.cpu):
            raise Unsupported("mlx's CPU backend has gather_mm for float32 only")
        if options.expert_budget or options.group_experts:
            target, head = load_experts(model, checkpoint, options)
        else:
            target, head = load_model(model, checkpoint)
        try:
            session = session_of(target, head, options)
        except MissingKernelError as error:
            raise Unsupported(str(error)) from error
        return BuiltinSession(session, target, head, options, checkpoint)


@cache
def load_model(model: str, checkpoint: Path) -> tuple[Any, Any]:
    """Target and head of a checkpoint, once a process; `+mlx-lm` takes mlx-lm's classes.

    A model that is not of the zoo is read as its config says.
    """
    if model not in ZOO and not model.endswith("+mlx-lm"):
        return load_folder(checkpoint)[0]
    if not model.endswith("+mlx-lm"):
        return checkpoints.read(checkpoint)
    target, head = load(checkpoint)
    _count_experts(target)
    if head is not None:
        _count_experts(head)
    return target, head


def _count_experts(part: Any) -> None:
    """Count the calls of mlx-lm's experts in a target or head."""
    for layer in part.layers:
        block = layer.wrapped.mlp
        if hasattr(block, "switch_mlp"):
            block.switch_mlp = _CountedExperts(block.switch_mlp)


def load_experts(model: str, checkpoint: Path, options: Options) -> tuple[Any, Any]:
    """Target and head anew, with experts as the options say: the slots of a session are its own."""
    settings = None
    if options.expert_budget:
        budgets = options.expert_budget, options.head_expert_budget or options.expert_budget
        settings = OffloadSettings(*budgets)
    if model.endswith("+mlx-lm"):
        target, head = load(checkpoint, settings)
    else:
        shards = Shards(checkpoint)
        target, head = checkpoints.read(checkpoint)
        if settings is not None:
            offload(target, head, shards, settings)
    parts = [target] if head is None else [target, head]
    for part in parts:
        if options.group_experts:
            group(part.layers, sort=options.group_experts == "on")
        if settings is None and model.endswith("+mlx-lm"):
            _count_experts(part)
    return target, head


@cache
def _tokenizer(checkpoint: Path) -> Any:
    return load_tokenizer(checkpoint)


class _CountedExperts:
    """mlx-lm's routed experts of one layer, counting their calls."""

    def __init__(self, experts: Any) -> None:
        self._experts = experts
        self.calls = 0

    def __call__(self, x: mx.array, indices: mx.array) -> mx.array:
        self.calls += 1
        return self._experts(x, indices)


def _expert_calls(part: Any) -> int:
    """Routed expert calls of a target or head so far."""
    if hasattr(part, "routed_expert_calls"):
        return part.routed_expert_calls()
    blocks = [layer.wrapped.mlp for layer in part.layers]
    return sum(block.switch_mlp.calls for block in blocks if hasattr(block, "switch_mlp"))


def session_of(target: Any, head: Any, options: Options) -> Session:
    """A decoder session as the options say."""
    return Session(
        target,
        head,
        rewind=Rewind(options.strategy or Rewind.TAPE),
        head_rows=HeadRows(options.head_rows),
        sampling=_sampling(options),
        logits_processors=_processors(options),
        token_mask=_Cycle(options.allowed_tokens, target.vocab_size)
        if options.allowed_tokens
        else None,
        prefill_step_size=options.prefill_step_size,
        kv_bits=options.kv_bits or None,
        kv_group_size=options.kv_group_size,
        quantized_kv_start=options.quantized_kv_start,
        row_exact=options.row_exact,
    )


def _sampling(options: Options) -> Sampling:
    return Sampling(
        temp=options.temperature,
        top_p=options.top_p,
        top_k=options.top_k,
        min_p=options.min_p,
        seed=options.seed,
        acceptance=options.acceptance,
    )


def _processors(options: Options) -> list[Any]:
    if options.repetition_penalty == 1:
        return []
    return make_logits_processors(
        repetition_penalty=options.repetition_penalty,
        repetition_context_size=options.repetition_context_size,
    )


def _set_when_opened(options: Options) -> tuple[Any, ...]:
    """Options that a fork cannot change."""
    lists = [list(tokens) for tokens in options.allowed_tokens]
    return options.repetition_penalty, options.repetition_context_size, lists


class _Cycle:
    """A token mask that goes through lists of allowed tokens, over and over."""

    def __init__(self, allowed: Sequence[Sequence[int]], size: int, at: int = 0) -> None:
        self._allowed = [list(tokens) for tokens in allowed]
        self._size = size
        self._at = at

    def allowed(self) -> mx.array:
        """The tokens of the list whose turn it is."""
        tokens = mx.array(self._allowed[self._at % len(self._allowed)])
        return (mx.arange(self._size)[:, None] == tokens).any(axis=1)

    def advance(self, token: int) -> None:
        """Go to the next list."""
        del token
        self._at += 1

    def rewind(self, count: int) -> None:
        """Go back so many lists."""
        self._at -= count

    def fork(self) -> _Cycle:
        """An independent copy."""
        return _Cycle(self._allowed, self._size, self._at)


class BuiltinSession:
    """One `mtp_decoder.Session`."""

    def __init__(
        self, session: Session, target: Any, head: Any, options: Options, checkpoint: Path
    ) -> None:
        self.session = session
        self._target = target
        self._head = head
        self._options = options
        self._slow = ("", 0)
        self._checkpoint = checkpoint

    @property
    def parts(self) -> tuple[Session, Any, Any, Options, Path]:
        """What the session was made of, for runtimes that build on it."""
        return self.session, self._target, self._head, self._options, self._checkpoint

    def prefill(self, tokens: Sequence[int]) -> Outcome:
        """See the protocol."""
        start = self._expert_counts()
        done = self.session.prefill(tokens)
        return Outcome(0, done.tokens, done.logits, self._experts_since(start))

    def round(self, drafts: Sequence[int]) -> Outcome:
        """See the protocol; counts expert calls of verify and rewind apart."""
        try:
            return self._round(drafts)
        except BaseException:
            self.session.cancel()
            raise

    def _round(self, drafts: Sequence[int]) -> Outcome:
        session, totals = self.session, self._expert_counts()
        start = _expert_calls(self._target)
        session.inject(drafts)
        verified = session.verify(drafts)
        outcome = session.accept()
        before, before_head = _expert_calls(self._target), _expert_calls(self._head)
        settled = self._expert_counts()
        self._slow_down()
        session.rewind(outcome)
        reads = {n: c for n, c in self._experts_since(settled).items() if n.endswith("_reads")}
        counters = {
            "expert_calls_in_verify": before - start,
            "expert_calls_in_rewind": _expert_calls(self._target) - before,
            "head_expert_calls_in_rewind": _expert_calls(self._head) - before_head,
            "rewind_bytes": session.counters.rewind_bytes,
            **self._experts_since(totals),
            **{f"{name}_in_rewind": count for name, count in reads.items()},
        }
        return Outcome(outcome.accepted, outcome.tokens, verified.logits, counters)

    def generate(
        self,
        tokens: Sequence[int],
        *,
        num_draft_tokens: int,
        max_tokens: int,
        eos_token_ids: Sequence[int] = (),
        stop_sequences: Sequence[Sequence[int]] = (),
        guess: Sequence[int] | None = None,
        stop_strings: Sequence[str] = (),
    ) -> Generated:
        """See the protocol."""
        if not (num_draft_tokens or self._options.depth_policy or self.session.history):
            # As `generate_step`: without drafts the head takes no part, and steps run ahead.
            self.session = session_of(self._target, None, self._options)

        def guessed(history: Sequence[int], k: int) -> Sequence[int]:
            at = len(history) - len(tokens)
            return list(guess or ())[at : at + k]

        drafts: list[tuple[int, ...]] = []
        text = TextStream(_tokenizer(self._checkpoint), stop_strings) if stop_strings else None
        emitted = emit(
            self.session,
            tokens,
            num_draft_tokens=num_draft_tokens,
            max_tokens=max_tokens,
            stops=Stops(eos_token_ids, stop_sequences, text),
            policy=make_policy(self._options.depth_policy or Depth.FIXED),
            draft_source=None if guess is None else guessed,
            on_round=lambda done: drafts.append(done.drafts) if done.drafts else None,
        )
        rows = [(token, logprobs) for token, logprobs, _ in emitted]
        counters = self.session.counters
        said = Generated(
            tuple(token for token, _ in rows), counters.drafted, counters.accepted, tuple(drafts)
        )
        if text is None:
            return said
        pieces = [text.piece(index) for index in range(len(rows))]
        logprobs = tuple(float(cast("float", row[token].item())) for token, row in rows)
        return replace(said, text="".join([*pieces, text.finish()]), logprobs=logprobs)

    def depths(
        self, requests: Sequence[Sequence[Trial]], *, num_draft_tokens: int
    ) -> list[list[int]]:
        """See the protocol."""
        policy = make_policy(self._options.depth_policy or Depth.FIXED)
        return [rehearse(policy, trials, num_draft_tokens) for trials in requests]

    def state(self) -> dict[str, mx.array]:
        """See the protocol."""
        return self.session.state()

    def fork(self, options: Options | None = None) -> BuiltinSession:
        """See the protocol.

        Raises:
            Unsupported: another penalty or other allowed tokens than this session's.
        """
        twin, chosen = self.session.fork(), options or self._options
        if _set_when_opened(chosen) != _set_when_opened(self._options):
            raise Unsupported("penalty and allowed tokens are set when a session is opened")
        strategy = chosen.strategy or Rewind.TAPE
        sampling = _sampling(chosen)
        twin.decode_with(rewind=strategy, head_rows=chosen.head_rows, sampling=sampling)
        return type(self)(twin, self._target, self._head, chosen, self._checkpoint)

    def poison(self, value: float) -> int:
        """See the protocol."""
        session = self.session
        session.land()
        caches = [c for name in ("_caches", "_head_caches") for c in vars(session)[name]]
        return fill_dead_rows(caches, value)

    def timings(self) -> dict[str, float]:
        """See the protocol."""
        return dict(self.session.counters.seconds)

    def slow_rewind(self, component: str, steps: int) -> None:
        """See the protocol.

        Raises:
            Unsupported: keys and values are quantised; packed rows are not slowed.
        """
        if self._options.kv_bits:
            raise Unsupported("rewinds are made slow over plain keys and values only")
        self._slow = (component, steps)

    def _slow_down(self) -> None:
        """Let the verify pass that is to be rewound leave a component waiting, if that is due."""
        component, steps = self._slow
        window: Any = vars(self.session)["_window"]
        if not component or window is None:
            return
        rewind = window.rewind

        def slow(keep: int) -> None:
            rejects = keep < window.kept
            rewind(keep)
            if rejects:
                self._slow = ("", 0)
                caches, head_caches = (vars(self.session)[n] for n in ("_caches", "_head_caches"))
                slow_down(self._target.layers, caches, "layers", component, steps)
                slow_down(self._head.layers, head_caches, "head", component, steps)

        window.rewind = slow

    def save(self, file: Path) -> None:
        """See the protocol."""
        self.session.save(file)

    def restore(self, file: Path) -> None:
        """See the protocol; strategy and policy are the saved session's from here on."""
        self.session.restore(file)
        rewind, head_rows = self.session.policies
        self._options = replace(self._options, strategy=rewind.value, head_rows=head_rows.value)

    def cancel(self, drafts: Sequence[int] = ()) -> None:
        """See the protocol."""
        try:
            if drafts:
                self.session.verify(drafts)
        finally:
            self.session.cancel()

    def extend(self, tokens: Sequence[int]) -> Outcome:
        """See the protocol."""
        start = self._expert_counts()
        done = self.session.extend(tokens)
        return Outcome(0, done.tokens, done.logits, self._experts_since(start))

    def _expert_counts(self) -> dict[str, int]:
        """Totals of the stores so far, under the protocol's names."""
        found: dict[str, int] = {}
        for prefix, part in (("", self._target), ("head_", self._head)):
            for store in stores_of(part.layers) if part is not None else []:
                counts = asdict(store.counts)
                found |= {f"{prefix}expert_{name}": counts[name] for name in _STORE_COUNTS}
        return found

    def _experts_since(self, start: dict[str, int]) -> dict[str, int]:
        return {name: total - start[name] for name, total in self._expert_counts().items()}

    def close(self) -> None:
        """See the protocol; memory goes with the object."""


Facts = Mapping[str, str]
"""What was found in a checkpoint folder, by topic, for a person."""


@cache
def load_folder(
    checkpoint: Path, norms: str | None = None, head_norms: str | None = None
) -> tuple[tuple[Any, Any], Facts]:
    """Target and head of any checkpoint folder, once a process, and what was found in it.

    Families that mlx-lm has classes of are decoded with those, others with the reference classes.

    Raises:
        UsageError: it cannot be opened, or has no MTP head; says why.
    """
    try:
        family = str(read_config(checkpoint).get("model_type"))
        if family in FAMILIES:
            target, head, facts = _with_mlx_lm(checkpoint, norms, head_norms)
        elif family not in _REFERENCE:
            known = ", ".join((*FAMILIES, *_REFERENCE))
            raise UsageError(
                f"{checkpoint}: model_type {family!r} is none of {known}; other models need a "
                "runtime of their own: --runtime package.module:function, or --runtime-cmd"
            )
        else:
            target, head = checkpoints.read(checkpoint)
            facts = {"family": family, "classes": "the reference models' classes"}
    except (CheckpointError, checkpoints.CheckpointError) as error:
        raise UsageError(str(error)) from error
    if head is None:
        raise UsageError(
            f"{checkpoint} has no MTP head: no mtp.* tensor in its safetensors files. mlx-lm drops "
            "them when it converts; put those of the original checkpoint into a file beside the "
            "others, such as mtp.safetensors"
        )
    return (target, head), facts


def _with_mlx_lm(
    checkpoint: Path, norms: str | None, head_norms: str | None
) -> tuple[Any, Any, Facts]:
    loaded, facts = load_with_facts(checkpoint, norms=norms, head_norms=head_norms)
    for part in loaded:
        if part is not None:
            _count_experts(part)
    told = {
        "family": facts.family,
        "files": f"{facts.files} file{'s' * (facts.files != 1)}",
        "quantised": facts.quantised or "not quantised",
        "norms": f"norms {facts.norms.words}",
    }
    if facts.head_norms is not None:
        told["head"] = f"in {', '.join(facts.head_files)}, its norms {facts.head_norms.words}"
    return loaded.target, loaded.head, told


class FolderRuntime(BuiltinRuntime):
    """The decoder on any checkpoint folder, whatever it is called.

    Args:
        norms: `about-zero` or `about-one`, where the folder itself says two things.
        head_norms: likewise for the head's norms.
    """

    def __init__(self, norms: str | None = None, head_norms: str | None = None) -> None:
        self._norms = norms
        self._head_norms = head_norms

    def facts(self, checkpoint: Path) -> Facts:
        """Load a folder and say what was found in it.

        Raises:
            UsageError: it cannot be opened; says why.
        """
        return self._load(checkpoint)[1]

    def _load(self, checkpoint: Path) -> tuple[tuple[Any, Any], Facts]:
        return load_folder(checkpoint.resolve(), self._norms, self._head_norms)

    def describe(self) -> Description:
        """As the builtin runtime, of any folder."""
        return replace(super().describe(), models=())

    def open(self, model: str, checkpoint: Path, options: Options) -> BuiltinSession:
        """A new session; a folder is loaded once a process."""
        del model
        (target, head), _ = self._load(checkpoint)
        return BuiltinSession(session_of(target, head, options), target, head, options, checkpoint)


def encoder(checkpoint: Path) -> Any:
    """The folder's tokenizer as a function from text to token ids.

    Raises:
        UsageError: it has none, or one that cannot be used.
    """
    try:
        read_config(checkpoint)
    except CheckpointError as error:
        raise UsageError(str(error)) from error
    try:
        tokenizer = read_tokenizer(checkpoint)
    except CheckpointError as error:
        why = 'without one, give --prompts FILE.jsonl with {"tokens": [...]} a line'
        raise UsageError(f"{error}; {why}") from error
    return lambda text: list(tokenizer.encode(text))


def make_runtime() -> BuiltinRuntime:
    """The factory the command line names."""
    return BuiltinRuntime()


def warm_up() -> None:
    """Run a round of every model whose classes use `mx.compile`, so that it is compiled."""
    runtime = make_runtime()
    with tempfile.TemporaryDirectory() as folder:
        for model in _MLX_LM:
            for dtype in _DTYPES:
                with contextlib.suppress(Unsupported):
                    checkpoint = zoo_checkpoint(model, dtype, Path(folder))
                    session = runtime.open(model, checkpoint, Options())
                    session.prefill(prompt_tokens(5))
                    session.round((1, 2, 3))
                    session.round(())


def zoo_checkpoint(model: str, dtype: str, folder: Path, seed: int = 0) -> Path:
    """The folder of a zoo or trained model's checkpoint below `folder`, written there once.

    The seed draws a zoo model's weights; a trained one has those it was trained to.

    Raises:
        UsageError: there is no such model; the message lists those there are.
    """
    name = model.partition("+")[0]
    path = folder / f"{name}-{dtype}"
    if not path.exists():
        try:
            if name in _TRAINED:
                copy_shipped(name, path, _DTYPES[dtype])
            else:
                checkpoints.write_zoo(name, path, _DTYPES[dtype], seed)
        except ConfigError as error:
            raise UsageError(f"{error}; trained are {', '.join(_TRAINED)}") from error
    return path


def zoo_materials(folder: Path, seed: int = 0) -> Materials:
    """The zoo's checkpoints, written below `folder` when asked for, and its text.

    Another seed than 0 draws other weights and starts elsewhere in the text.
    """
    text = (*prompt_tokens(40, "code"), *prompt_tokens(60, "prose"))
    start = 37 * seed % len(text)
    return Materials(
        checkpoint=lambda model, dtype: zoo_checkpoint(model, dtype, folder, seed),
        prompt=(*text[start:], *text[:start]),
        seed=seed,
        index_gap=index_gap,
        expected_state=lambda path, tokens: expected_state(checkpoints.read_config(path), tokens),
        expected_drafts=lambda path, tokens, k: chained_drafts(*specified(path), tokens, k),
        expert_sizes=expert_sizes,
        routing=lambda path, tokens: routing(specified(path)[0], tokens),
    )


@cache
def specified(checkpoint: Path) -> tuple[Any, Any]:
    """Target and head of a checkpoint as specified, which nothing decodes with."""
    return checkpoints.read(checkpoint)


def expert_sizes(checkpoint: Path) -> ExpertSizes:
    """The routed experts of target and head, by the specification."""
    found: list[int] = []
    for part in specified(checkpoint):
        blocks = [layer.mlp for layer in part.layers if isinstance(layer.mlp, SparseMoE)]
        stacks = [(block.experts.gate_up, block.experts.down) for block in blocks]
        found.append(sum(array[0].nbytes for array in stacks[0]) if stacks else 0)
        found.append(sum(len(gate_up) for gate_up, _ in stacks))
    return ExpertSizes(*found)


def index_gap(checkpoint: Path, tokens: Sequence[int], new_tokens: int) -> float:
    """Smallest distance between index scores at the selection cut, by the specification."""
    return smallest_cut_gap(specified(checkpoint)[0], tokens, new_tokens)
