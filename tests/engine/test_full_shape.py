"""The q2 recipe through the real loader: a file of random blocks, written, opened, packed, run.

Small sizes on any machine; the published sizes, few layers, where there is a GPU and room.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

CUDA = torch.cuda.is_available()
pytest.importorskip("triton", reason="triton is not installed")

from engine import synthetic  # noqa: E402
from engine.config import DrafterConfig, ModelConfig  # noqa: E402
from engine.cuda.arrays import DeviceArrays  # noqa: E402
from engine.cuda.weights import DeviceTensors  # noqa: E402
from engine.gguf import GGUFFile, open_gguf  # noqa: E402
from engine.gguf_write import TensorData, write_gguf  # noqa: E402
from engine.model import Model  # noqa: E402
from engine.paths import DECODE, Plan  # noqa: E402
from engine.synthetic import SyntheticFile, synthetic_pair  # noqa: E402
from engine.weights import DrafterWeights, TargetWeights, read_drafter, read_target  # noqa: E402
from kernels.packed import pack  # noqa: E402

SMALL = replace(
    synthetic.FLASH,
    dim=256, heads=2, head_dim=128, q_rank=64, out_groups=2, out_rank=32, index_heads=2,
    index_dim=128, experts=8, experts_used=2, expert_dim=256, vocab_size=512,
)  # fmt: skip


def written(file: SyntheticFile, path: Path) -> GGUFFile:
    """The synthetic file on disk, opened as any other."""
    tensors = [
        TensorData(info.name, info.shape, info.type, lambda name=info.name: file.raw(name))
        for info in file.tensors.values()
    ]
    return open_gguf(write_gguf(path, file.plain, tensors))


def load(target: GGUFFile, drafter: GGUFFile, device: str) -> tuple[TargetWeights, DrafterWeights]:
    config = ModelConfig.from_gguf(target)
    drafting = DrafterConfig.from_gguf(drafter, config)
    tensors = DeviceTensors(target, lambda name: name, None, device)
    weights = read_target(tensors, config)
    tensors = DeviceTensors(drafter, drafting.tensor_name, None, device)
    return weights, read_drafter(tensors, drafting, config)


def test_a_written_file_has_the_recipes_table_and_packs_to_its_contents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(synthetic, "FLASH", SMALL)
    monkeypatch.setattr(synthetic, "NOISE", 5)
    made = synthetic_pair("v4-flash-q2", 5)
    files = [written(file, tmp_path / f"{i}.gguf") for i, file in enumerate(made)]
    for file, opened in zip(made, files, strict=True):
        assert opened.tensors.keys() == file.tensors.keys()
        for name, info in file.tensors.items():
            found = opened.tensors[name]
            assert (found.shape, found.type, found.nbytes) == (info.shape, info.type, info.nbytes)
    target, drafter = load(files[0], files[1], "cpu")
    down = "blk.2.ffn_down_exps.weight"
    blocks = torch.from_numpy(np.array(made[0].raw(down)).reshape(-1))
    expected = pack("Q2_K", blocks, 8, 256, 256)
    for plane, other in zip(target.layers[2].experts.down.planes, expected.planes, strict=True):
        assert torch.equal(plane, other)
    assert target.layers[2].experts.gate_up.kind == "IQ2_XXS"
    assert target.layers[2].experts.gate_up.outputs == 2 * SMALL.expert_dim
    assert target.layers[2].compressor is not None
    assert target.layers[2].compressor.kv.kind == "F16"
    assert drafter.stages[0].router.gate.kind == "Q8_0"
    assert drafter.confidence is not None
    assert drafter.confidence.shape == (SMALL.dim + 256,)


@pytest.mark.gpu
@pytest.mark.skipif(not CUDA, reason="needs a CUDA device")
def test_full_shape_rows_have_the_bits_that_they_have_alone(tmp_path: Path) -> None:
    made = synthetic_pair("v4-flash-q2", 5)
    if shutil.disk_usage(tmp_path).free < 2 * sum(file.size for file in made):
        pytest.skip("too little room for a file of five full-size layers")
    target, drafter = (written(file, tmp_path / f"{i}.gguf") for i, file in enumerate(made))
    weights, _ = load(target, drafter, "cuda")
    model = Model(weights, ModelConfig.from_gguf(target), context=1024, arrays=DeviceArrays())
    ids = [int(i) for i in np.random.default_rng(0).integers(0, 129280, 12)]
    alone, states = [], model.new_state()
    for at in range(12):
        alone.append(model.forward(states, ids[at : at + 1], DECODE["invariant"]).logits.copy())
    for rows in range(1, 7):
        state = model.new_state()
        for at in range(0, 12 - rows + 1, rows):
            found = model.forward(state, ids[at : at + rows], Plan("invariant")).logits
            assert np.array_equal(found, np.concatenate(alone[at : at + rows])), rows
