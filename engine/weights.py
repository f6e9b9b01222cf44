"""From a GGUF file's tensors to the weights that kernels take.

Owns tensor names, types and packing: Q8_0 stays int8 with scales, MXFP4 codes of 4 bits with
scales, F16 stays F16, everything else is widened to float32. Knows no forward.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from engine.config import DrafterConfig, ModelConfig
from engine.errors import Ds4Error
from engine.gguf import GGUFFile
from engine.memory import require_memory
from engine.tensor_table import DRAFTED, OWN_HEAD
from kernels.attn_out import AttnOut
from kernels.compressor import Compressor
from kernels.experts import Experts
from kernels.hyper_connections import HyperConnection
from kernels.indexer import Indexer
from kernels.linear import keeps_codes, pack
from kernels.qkv import Qkv
from kernels.router import Router

Progress = Callable[[str, int, int], None]
"""Called with (stage, done, total)."""

Matrix = np.ndarray | tuple[np.ndarray, np.ndarray]
"""float16 or float32 (O, I); or a pair of int8 for Q8_0, or of codes as uint8 for MXFP4 (O, I), and
of float16 scales (O, I / 32)."""

_Q8_BYTES, _FP4_BYTES = 34, 17
"""Bytes of a block of 32 in the file."""

_LOOKED_UP = ("token_embd", "markov_w1")
"""Matrices of which single rows are read: they are widened."""


@dataclass(frozen=True, slots=True)
class BlockWeights:
    """One layer of the target, or one stage of a drafter (ratio 0: no compressors).

    `index_compressor` and `indexer` exist on ratio-4 layers only. `clamp` limits the experts'
    activations; inf = no clamp.
    """

    ratio: int
    hc_attn: HyperConnection
    attn_norm: np.ndarray
    qkv: Qkv
    sinks: np.ndarray
    compressor: Compressor | None
    index_compressor: Compressor | None
    indexer: Indexer | None
    attn_out: AttnOut
    hc_ffn: HyperConnection
    ffn_norm: np.ndarray
    router: Router
    experts: Experts
    shared: Experts
    clamp: float


@dataclass(frozen=True, slots=True)
class TargetWeights:
    """The target. `embedding` is (V, D) float32, packed on CUDA; `output` packed (V, D)."""

    embedding: Any
    layers: tuple[BlockWeights, ...]
    hc_head: HyperConnection
    norm: np.ndarray
    output: Any


@dataclass(frozen=True, slots=True)
class DrafterWeights:
    """The drafter; its embedding is the target's.

    Args:
        config: what the file says of it.
        main_proj: packed (D, T * D). main_norm: (D,).
        markov_embedding: (V, rank) float32, `markov_w1`, packed on CUDA.
        markov_output: packed (Vd, rank).
        confidence: (D + rank,) float32, or None when the file has no confidence head.
        output: packed (Vd, D), the drafter's own head, or None: the target's, and Vd is V.
        vocabulary: (Vd,) int64 rising tokens of these rows, or None: all V.
    """

    config: DrafterConfig
    stages: tuple[BlockWeights, ...]
    main_proj: Any
    main_norm: np.ndarray
    hc_head: HyperConnection
    norm: np.ndarray
    markov_embedding: Any
    markov_output: Any
    confidence: np.ndarray | None
    output: Any = None
    vocabulary: Any = None


class Tensors:
    """Reads one file's tensors by their canonical names and counts them."""

    def __init__(
        self,
        file: GGUFFile,
        rename: Callable[[str], str],
        progress: Progress | None,
    ) -> None:
        self._file = file
        self._rename = rename
        self._progress = progress
        self._done = 0
        self._unforeseen = 0

    def _read(self, name: str) -> str:
        """The name in the file, after counting it."""
        if self._progress is not None:
            self._progress("repacking", self._done, len(self._file.tensors))
        self._done += 1
        return self._rename(name)

    def matrix(self, name: str) -> Matrix:
        """A matrix, or a stack of them, with rows last but one."""
        name = self._read(name)
        info, raw = self._file.tensors[name], self._file.raw(name)
        if info.type == "F16":
            return raw.view("<f2").reshape(info.shape)
        if info.type == "MXFP4":
            codes = _codes(raw, info.shape)
            return self._widened(name) if codes is None else codes
        if info.type != "Q8_0":
            return self._file.dequantise(name).reshape(info.shape)
        blocks = raw.reshape(*raw.shape[:-1], -1, _Q8_BYTES)
        scales = blocks[..., :2].copy().view("<f2")[..., 0]
        values = blocks[..., 2:].view(np.int8).reshape(*info.shape)
        return values, scales

    def alike(self, names: Sequence[str]) -> list[Matrix]:
        """Matrices, or stacks of them, of one type: float32 where theirs differ."""
        found = [self.matrix(name) for name in names]
        if len({_parts(matrix)[0].dtype for matrix in found}) > 1:
            return [self._widened(self._rename(name)) for name in names]
        return found

    def _widened(self, name: str) -> np.ndarray:
        """A matrix as float32 where its type foretold less.

        Raises:
            Ds4Error: when that no longer fits in memory.
        """
        info = self._file.tensors[name]
        self._unforeseen += 4 * info.elements
        require_memory(_needed_bytes(self._file) + self._unforeseen, self._file.name)
        return self._file.dequantise(name).reshape(info.shape)

    def packed(self, name: str, groups: int = 0) -> Any:
        """A packed matrix, or `groups` matrices of consecutive rows."""
        whole = self.matrix(name)
        return pack(_split(whole, groups) if groups else [_flat(whole)])

    def own(self, values: np.ndarray) -> Any:
        """An array of the host as the kernels take it."""
        return values

    def vector(self, name: str) -> Any:
        """All elements as a float32 vector of its own."""
        return self.own(self._numbers(name).reshape(-1))

    def table(self, name: str) -> Any:
        """A float32 matrix of its own, row-major."""
        values = self._numbers(name)
        return self.own(values.reshape(-1, values.shape[-1]))

    def _numbers(self, name: str) -> np.ndarray:
        """A tensor as float32.

        Raises:
            Ds4Error: when some are not finite; in a bias of the router or the indexer no logit
                would show it.
        """
        name = self._read(name)
        values = np.array(self._file.dequantise(name), np.float32)
        bad = values.size - np.count_nonzero(np.isfinite(values))
        if bad:
            raise Ds4Error(
                "Damaged weights",
                f'{bad} of the {values.size} numbers of tensor "{name}" in {self._file.name} are '
                "not finite.",
                "Compare the file's hash with its publisher's and fetch it again.",
            )
        return values

    def ids(self, name: str) -> Any:
        """An int32 matrix of its own."""
        return self.own(np.array(self._file.integers(self._read(name)), np.int32))

    def tokens(self, name: str) -> Any:
        """An int64 vector of its own."""
        return self.own(np.array(self._file.integers(self._read(name)), np.int64))

    def hyper_connection(self, name: str) -> HyperConnection:
        """The mixer whose tensors begin with `name`."""
        return HyperConnection(
            self.mixer(f"{name}_fn.weight"),
            self.vector(f"{name}_base.weight"),
            self.vector(f"{name}_scale.weight"),
        )

    def compressor(self, name: str) -> Compressor:
        """The compressor whose tensors begin with `name`."""
        return Compressor(
            self.packed(f"{name}_kv.weight"),
            self.packed(f"{name}_gate.weight"),
            self.table(f"{name}_ape.weight"),
            self.vector(f"{name}_norm.weight"),
        )

    def mixer(self, name: str) -> Any:
        """The packed products of a hyper-connection."""
        return self.packed(name)

    def lookup(self, name: str) -> Any:
        """A matrix of which single rows are read."""
        return self.table(name)

    def qkv(self, prefix: str) -> Qkv:
        """Queries and key-value row of a layer."""
        return Qkv(
            self.packed(f"{prefix}attn_q_a.weight"),
            self.vector(f"{prefix}attn_q_a_norm.weight"),
            self.packed(f"{prefix}attn_q_b.weight"),
            self.packed(f"{prefix}attn_kv.weight"),
            self.vector(f"{prefix}attn_kv_a_norm.weight"),
        )

    def compressors(self, prefix: str, ratio: int) -> tuple[Compressor | None, Compressor | None]:
        """A layer's own compressor and its indexer's, as far as it has them."""
        return (
            self.compressor(f"{prefix}attn_compressor") if ratio else None,
            self.compressor(f"{prefix}indexer_compressor") if ratio == 4 else None,
        )

    def groups(self, name: str, count: int) -> Any:
        """`count` packed matrices of consecutive rows."""
        return self.packed(name, count)

    def experts(self, prefix: str, suffix: str) -> Experts:
        """Gate over up, and down, one matrix per expert."""
        names = [f"{prefix}ffn_{part}_{suffix}.weight" for part in ("gate", "up")]
        gate, up = (_stack(matrix) for matrix in self.alike(names))
        down = _stack(self.matrix(f"{prefix}ffn_down_{suffix}.weight"))
        both = [_over(g, u) for g, u in zip(gate, up, strict=True)]
        return Experts(pack(both), pack(down))

    def block(
        self, prefix: str, ratio: int, groups: int, hashed: bool, clamp: float
    ) -> BlockWeights:
        """All weights of one layer or stage."""
        p = prefix
        router = Router(
            self.packed(f"{p}ffn_gate_inp.weight"),
            self.own(np.zeros(0, np.float32)) if hashed else self.vector(f"{p}exp_probs_b.bias"),
            self.ids(f"{p}ffn_gate_tid2eid.weight")
            if hashed
            else self.own(np.zeros((0, 0), np.int32)),
        )
        indexer = None
        if ratio == 4:
            indexer = Indexer(
                self.packed(f"{p}indexer.attn_q_b.weight"), self.packed(f"{p}indexer.proj.weight")
            )
        compressor, index_compressor = self.compressors(p, ratio)
        return BlockWeights(
            ratio=ratio,
            hc_attn=self.hyper_connection(f"{p}hc_attn"),
            attn_norm=self.vector(f"{p}attn_norm.weight"),
            qkv=self.qkv(p),
            sinks=self.vector(f"{p}attn_sinks.weight"),
            compressor=compressor,
            index_compressor=index_compressor,
            indexer=indexer,
            attn_out=AttnOut(
                self.groups(f"{p}attn_output_a.weight", groups),
                self.packed(f"{p}attn_output_b.weight"),
            ),
            hc_ffn=self.hyper_connection(f"{p}hc_ffn"),
            ffn_norm=self.vector(f"{p}ffn_norm.weight"),
            router=router,
            experts=self.experts(p, "exps"),
            shared=self.experts(p, "shexp"),
            clamp=clamp or float("inf"),
        )


def _codes(raw: np.ndarray, shape: tuple[int, ...]) -> Matrix | None:
    """MXFP4 as codes and the scales of twice their values; None where float16 cannot hold these."""
    blocks = raw.reshape(*raw.shape[:-1], -1, _FP4_BYTES)
    codes = np.concatenate([blocks[..., 1:] & 15, blocks[..., 1:] >> 4], -1)
    # A block of zeros has any scale: it gets none.
    some = (codes & 7).any(-1).astype(np.float64)
    exact = np.ldexp(some, blocks[..., 0].astype(np.int32) - 128)
    with np.errstate(over="ignore"):
        scales = exact.astype(np.float16)
    return (codes.reshape(shape), scales) if (scales == exact).all() else None


def _parts(matrix: Matrix) -> tuple[np.ndarray, ...]:
    return matrix if isinstance(matrix, tuple) else (matrix,)


def _joined(parts: Sequence[np.ndarray]) -> Matrix:
    return parts[0] if len(parts) == 1 else (parts[0], parts[1])


def _flat(matrix: Matrix) -> Matrix:
    """As one matrix: all leading axes are rows."""
    return _joined([part.reshape(-1, part.shape[-1]) for part in _parts(matrix)])


def _split(matrix: Matrix, count: int) -> list[Matrix]:
    """`count` matrices of consecutive rows."""
    parts = [part.reshape(count, -1, part.shape[-1]) for part in _parts(_flat(matrix))]
    return [_joined([part[i] for part in parts]) for i in range(count)]


def _stack(matrix: Matrix) -> list[Matrix]:
    """The matrices of a stack; a single matrix is a stack of one."""
    shape = _parts(matrix)[0].shape
    return _split(matrix, shape[0] if len(shape) == 3 else 1)


def _over(upper: Matrix, lower: Matrix) -> Matrix:
    """One matrix of the rows of both."""
    pairs = zip(_parts(upper), _parts(lower), strict=True)
    return _joined([np.concatenate(pair) for pair in pairs])


def _tensors(
    file: GGUFFile,
    rename: Callable[[str], str],
    progress: Progress | None,
    device: str,
) -> Tensors:
    """A reader for the device, on the CPU after a look at its memory.

    Raises:
        Ds4Error: for an unknown device, or when the weights do not fit in the CPU's memory.
    """
    if device == "cuda":
        from engine.cuda.weights import DeviceTensors

        return DeviceTensors(file, rename, progress, device)
    if device != "cpu":
        raise Ds4Error(
            "Unknown device",
            f"Device {device!r} cannot be used, expected 'cpu' or 'cuda'.",
            "Use cpu.",
        )
    require_memory(_needed_bytes(file), file.name)
    return Tensors(file, rename, progress)


def _needed_bytes(file: GGUFFile) -> int:
    """Memory of the packed weights, from above: a type that is not kept takes 4 bytes.

    That MXFP4 becomes float32, where float16 cannot hold a scale, only reading every block would
    tell, and hardly a file has such blocks: `Tensors` looks at the memory again when it meets one.
    """
    kept = {"Q8_0": 1.1, "F16": 1.1, "MXFP4": 1.1 if keeps_codes() else 2.2, "I64": 1}
    total = 0
    for info in file.tensors.values():
        keeps = info.type in kept and not any(name in info.name for name in _LOOKED_UP)
        total += int(info.nbytes * kept[info.type]) if keeps else 4 * info.elements
    return total


def load_target(
    file: GGUFFile, *, device: str = "cpu", progress: Progress | None = None
) -> TargetWeights:
    """Read, check and pack a target.

    Raises:
        Ds4Error: when the file is no target that runs here, or does not fit in memory.
    """
    config = ModelConfig.from_gguf(file)
    tensors = _tensors(file, lambda name: name, progress, device)
    return read_target(tensors, config)


def read_target(tensors: Tensors, config: ModelConfig) -> TargetWeights:
    """The target's weights from a reader of its tensors."""
    layers = tuple(
        tensors.block(
            f"blk.{layer}.",
            ratio,
            config.out_groups,
            layer < config.hash_layers,
            config.swiglu_clamp[layer],
        )
        for layer, ratio in enumerate(config.ratios)
    )
    return TargetWeights(
        embedding=tensors.lookup("token_embd.weight"),
        layers=layers,
        hc_head=tensors.hyper_connection("output_hc"),
        norm=tensors.vector("output_norm.weight"),
        output=tensors.packed("output.weight"),
    )


def load_drafter(
    file: GGUFFile, target: ModelConfig, *, device: str = "cpu", progress: Progress | None = None
) -> DrafterWeights:
    """Read, check and pack a drafter of either dialect for a target.

    Raises:
        Ds4Error: when the file is no drafter, or does not fit the target or the memory.
    """
    config = DrafterConfig.from_gguf(file, target)
    tensors = _tensors(file, config.tensor_name, progress, device)
    return read_drafter(tensors, config, target)


def read_drafter(tensors: Tensors, config: DrafterConfig, target: ModelConfig) -> DrafterWeights:
    """The drafter's weights from a reader of its tensors."""
    last = f"mtp.{config.stages - 1}."
    stages = tuple(
        tensors.block(f"mtp.{stage}.", 0, target.out_groups, False, config.swiglu_clamp[stage])
        for stage in range(config.stages)
    )
    head = f"{last}confidence_head.proj.weight"
    return DrafterWeights(
        config=config,
        stages=stages,
        main_proj=tensors.packed("mtp.0.main_proj.weight"),
        main_norm=tensors.vector("mtp.0.main_norm.weight"),
        hc_head=tensors.hyper_connection(f"{last}hc_head"),
        norm=tensors.vector(f"{last}norm.weight"),
        markov_embedding=tensors.lookup(f"{last}markov_head.markov_w1.weight"),
        markov_output=tensors.packed(f"{last}markov_head.markov_w2.weight"),
        confidence=tensors.vector(head) if config.has_confidence else None,
        output=tensors.packed(OWN_HEAD) if config.own_head else None,
        vocabulary=tensors.tokens(DRAFTED) if config.draft_vocabulary is not None else None,
    )
