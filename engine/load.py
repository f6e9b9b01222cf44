"""From files to an engine's parts: read, compile kernels, repack, put together.

Owns the order of loading, its progress and what is said of the files. Everything heavy of the
engine is imported from here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import kernels
from engine.arrays import HOST, Arrays
from engine.choices import Choices
from engine.config import DrafterConfig, ModelConfig
from engine.drafter import Drafter
from engine.errors import Ds4Error
from engine.events import Event, FileInfo, LoadProgress
from engine.gguf import HASHED_BYTES, GGUFFile, open_gguf
from engine.model import Model
from engine.parts import Parts
from engine.self_test import first_position, rows_differ
from engine.settings import EngineFiles
from engine.state import MAX_ROWS, Layout, usual_context
from engine.tokenizer import Tokenizer
from engine.weights import load_drafter, load_target
from kernels.threads import set_threads

if TYPE_CHECKING:
    from engine.gguf_header import TensorInfo

Report = Callable[[Event], None]


def load_parts(files: EngineFiles, report: Report) -> Parts:
    """Load a target and its drafters.

    Raises:
        Ds4Error: for files that cannot be loaded or do not fit each other, before any of their
            weights are read where the headers say so.
    """
    began = time.perf_counter_ns()
    progress = _progress(report)
    arrays = _arrays(files.device)
    progress("reading", 0, 1 + len(files.mtp))
    opened = [open_gguf(files.model)]
    config = ModelConfig.from_gguf(opened[0])
    context = _context(files, config)
    drafter_configs = []
    for number, path in enumerate(files.mtp, start=1):
        progress("reading", number, 1 + len(files.mtp))
        opened.append(open_gguf(path))
        drafter_configs.append(DrafterConfig.from_gguf(opened[-1], config))
    _check_taps(drafter_configs)
    if files.device != "cpu":
        from engine.cuda.weights import require_device_memory

        require_device_memory(opened, 4 * Layout(config, context, MAX_ROWS).floats)
    tokenizer = Tokenizer.from_gguf(opened[0])
    infos = [_info(opened[0], "target")]
    for file, drafting in zip(opened[1:], drafter_configs, strict=True):
        infos.append(_info(file, "drafter", drafting.draft_vocabulary or 0))
    progress("reading", 1 + len(files.mtp), 1 + len(files.mtp))
    if files.device == "cpu":  # on a GPU they are compiled when they are first used
        kernels.compile_all(lambda done, total, name: progress("compiling kernels", done, total))
        set_threads(files.threads)
    model = Model(
        load_target(opened[0], device=files.device, progress=progress),
        config,
        kv_rounding=files.kv_rounding,
        context=context,
        tap_layers=drafter_configs[0].target_layers if drafter_configs else None,
        arrays=arrays,
    )
    drafters = {
        path: Drafter(load_drafter(file, config, device=files.device, progress=progress), model)
        for path, file in zip(files.mtp, opened[1:], strict=True)
    }
    gates = (drafter.default_confidence for drafter in drafter_configs)
    return Parts(
        model=model,
        tokenizer=tokenizer,
        files=tuple(infos),
        vocab_size=config.vocab_size,
        context=model.context,
        longest_context=config.context_length,
        window=config.window,
        layer_kinds=config.ratios,
        eos_id=config.eos_id,
        no_repeat=config.no_repeat,
        drafters=drafters,
        gates=dict(zip(files.mtp, gates, strict=True)),
        new_state=model.new_state,
        warnings=tokenizer.warnings,
        new_choices=Choices,
        rows_differ=cache(
            lambda: rows_differ(
                model,
                model.new_state,
                _longest(list(drafters.values())),
                config.vocab_size,
                first_position(config, config.window + MAX_ROWS, model.context),
            )
        ),
        arrays=arrays,
        settle=None if files.device == "cpu" else arrays.settle,
        rehearse=None if files.device == "cpu" else _rehearse,
        load_ns=time.perf_counter_ns() - began,
    )


def _progress(report: Report) -> Callable[[str, int, int], None]:
    def progress(stage: str, done: int, total: int) -> None:
        report(LoadProgress("", -1, time.perf_counter_ns(), stage, done, total))

    return progress


def _arrays(device: str) -> Arrays:
    """Memory of the device, which must be one that can be computed on."""
    if device == "cpu":
        return HOST
    from engine.cuda.check import require_cuda

    require_cuda()
    from engine.cuda.arrays import DeviceArrays

    return DeviceArrays()


def _rehearse(timelines: Sequence[Any], progress: Callable[[int, int], None]) -> None:
    from engine.cuda.rehearsal import rehearse

    rehearse(timelines, progress)


def _context(files: EngineFiles, config: ModelConfig) -> int:
    asked = files.context or usual_context(config)
    if asked > config.context_length:
        raise Ds4Error(
            "Context too long",
            f"--ctx is {asked}; the target was made for at most {config.context_length} tokens.",
        )
    return asked


def _check_taps(configs: Sequence[DrafterConfig]) -> None:
    for config in configs[1:]:
        if config.target_layers != configs[0].target_layers:
            raise Ds4Error(
                "Drafters do not go together",
                f"{configs[0].path} reads target layers {list(configs[0].target_layers)}, "
                f"{config.path} {list(config.target_layers)}; drafters of one run must read the "
                "same layers.",
                "Compare them in two runs.",
            )


def _longest(drafters: Sequence[Drafter]) -> int:
    """Rows of the largest verify."""
    return 1 + max((drafter.block_size for drafter in drafters), default=0)


def _info(file: GGUFFile, role: str, drafted: int = 0) -> FileInfo:
    mix: dict[str, list[TensorInfo]] = {}
    for tensor in file.tensors.values():
        mix.setdefault(tensor.type, []).append(tensor)
    parts = ((kind, len(of), sum(t.nbytes for t in of)) for kind, of in mix.items())
    return FileInfo(
        role,
        str(file.path),
        file.sha256() if file.size <= HASHED_BYTES else "",
        file.size,
        file.architecture,
        file.title,
        file.parameters,
        tuple(sorted(parts, key=lambda part: -part[2])),
        drafted,
    )
