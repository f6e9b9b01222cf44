"""Drafted blocks after real context against the torch drafter: random pair and embedded pair, F32.

The target's own taps feed both, and the drafter's files are llama.cpp's dialect as `ds4tui export`
writes it, so that these are also the blocks that llama.cpp is asked to agree with.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch

from ds4tui.options import model_files
from engine.config import ModelConfig
from engine.drafter import Drafter
from engine.errors import Ds4Error
from engine.export import export_pair
from engine.gguf import GGUFFile, open_gguf
from engine.model import Model
from engine.paths import DECODE, Plan
from engine.tokenizer import Tokenizer
from engine.weights import load_drafter, load_target
from tests.engine import drafter_reference as ref
from tests.engine.random_pair import DRAFTS_SOME, SMALL, DrafterShape, write_pair

TEXT = """The three-way handshake opens a TCP connection. The client sends a segment with the SYN
flag and its initial sequence number; the server answers with SYN and ACK, its own sequence number
and the client's number plus one; the client acknowledges that, and both sides may send data. Each
sequence number counts bytes, so that what arrives out of order can be put in place and what is lost
can be sent again. A server that gets a SYN keeps the half-open connection in a queue until the last
acknowledgement comes. When the queue is full, new connections are dropped, or answered with a
cookie that is computed from the addresses and ports, so that nothing needs to be remembered. Either
side may close its half of the connection with a FIN segment, which is acknowledged like data; after
the second one the side that closed first waits for some time before it forgets the ports."""
TOKENS = 200


@dataclass(frozen=True)
class Pair:
    """A loaded F32 pair, its reference, and some text's ids with the target's taps."""

    drafter: Drafter
    tensors: ref.Tensors
    embedding: torch.Tensor
    output: torch.Tensor
    geometry: ref.Geometry
    ids: list[int]
    taps: np.ndarray


def _float(file: GGUFFile, name: str) -> torch.Tensor:
    return torch.from_numpy(np.array(file.dequantise(name)))


def load(target_path: Path, drafter_path: Path, directory: Path) -> Pair:
    """Export as F32, load that, and evaluate the text."""
    exported = export_pair(open_gguf(target_path), open_gguf(drafter_path), directory, form="f32")
    target_file, drafter_file = (open_gguf(file.path) for file in exported)
    c = ModelConfig.from_gguf(target_file)
    weights = load_drafter(drafter_file, c)
    own = weights.config
    target = Model(
        load_target(target_file), c, kv_rounding="none", context=256, tap_layers=own.target_layers
    )
    ids = Tokenizer.from_gguf(target_file).render_raw(TEXT)[:TOKENS]
    rows = target.forward(target.new_state(), ids, Plan("batch", round_rows=False))
    return Pair(
        Drafter(weights, target),
        {e.name: _float(drafter_file, own.tensor_name(e.name)) for e in own.table(c)},
        _float(target_file, "token_embd.weight"),
        _float(target_file, "output.weight"),
        ref.Geometry(
            heads=c.heads,
            head_dim=c.head_dim,
            rope_dim=c.rope_dim,
            rope_base=c.rope_base,
            groups=c.out_groups,
            window=own.window,
            experts_used=own.experts_used,
            expert_scale=c.expert_scale,
            clamp=own.swiglu_clamp[0],
            sinkhorn=c.sinkhorn_iterations,
            stages=own.stages,
            block_size=own.block_size,
            noise_id=own.noise_id,
        ),
        ids,
        np.array(rows.taps),
    )


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Small operations wait for each other longer than they take."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def random_pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    folder = tmp_path_factory.mktemp("random")
    paths = write_pair(folder, SMALL, DrafterShape(stages=2, block_size=5), "F32")
    return load(*paths, folder / "f32")


@pytest.fixture(scope="module")
def pair_that_drafts_some(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    folder = tmp_path_factory.mktemp("some")
    return load(*write_pair(folder, SMALL, DRAFTS_SOME, "ds4"), folder / "f32")


@cache
def embedded_files() -> tuple[Path, Path]:
    try:
        target, drafters, _ = model_files(None, None)
    except Ds4Error as error:
        pytest.skip(error.message)
    return Path(target), Path(drafters[0])


@pytest.fixture(scope="module")
def embedded_pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return load(*embedded_files(), tmp_path_factory.mktemp("embedded"))


def assert_same_block(pair: Pair, length: int) -> None:
    """Rows, logits, confidences and drafts of the block after `length` tokens of the text."""
    d, anchor = pair.drafter, pair.ids[length]
    context = d.new_context()
    if length:
        d.extend(context, pair.taps[:length], 0)
    found = d.block(context, anchor, length)
    hidden = ref.block(
        torch.from_numpy(pair.taps[:length]), anchor, length, pair.tensors, pair.embedding,
        pair.geometry,
    )  # fmt: skip
    drafts, confidences, logits = ref.chain(
        hidden, anchor, pair.tensors, pair.output, pair.geometry
    )
    np.testing.assert_allclose(found.hidden, hidden, rtol=0, atol=2e-5 * float(hidden.abs().max()))
    previous = anchor
    for row, draft in enumerate(drafts):
        assert abs(found.confidence(row, previous) - confidences[row]) < 1e-5
        biased = logits[row] + ref.bias(previous, pair.tensors, pair.geometry)
        ours = found.scores(row, previous)
        np.testing.assert_allclose(found.logits(row), logits[row], rtol=0, atol=2e-4)
        np.testing.assert_allclose(ours, biased, rtol=0, atol=2e-4)
        assert int(ours.argmax()) == draft
        previous = draft


LENGTHS = (0, 1, 7, 30, 32, 33, 100)


@pytest.mark.parametrize("length", LENGTHS)
def test_random_pair_drafts_as_the_reference_does(random_pair: Pair, length: int) -> None:
    assert random_pair.geometry.window == 32
    assert_same_block(random_pair, length)


@pytest.mark.parametrize("length", [0, 7, 100])
def test_a_draft_vocabulary_of_its_own(pair_that_drafts_some: Pair, length: int) -> None:
    assert_same_block(pair_that_drafts_some, length)


@pytest.mark.parametrize("length", [1, 20, 77, 126, 127, 128, 129, 150, 190])
def test_embedded_pair_drafts_as_the_reference_does(embedded_pair: Pair, length: int) -> None:
    assert len(embedded_pair.ids) == TOKENS > embedded_pair.geometry.window
    assert_same_block(embedded_pair, length)


def test_blocks_of_the_embedded_pair_predict_the_text(embedded_pair: Pair) -> None:
    """A reference that agreed on noise would prove little: some drafts are right."""
    pair = embedded_pair
    model = pair.drafter.model
    state = model.new_state()
    model.forward(state, pair.ids[:150], Plan("batch", round_rows=False))
    token, context = pair.ids[150], pair.drafter.new_context()
    pair.drafter.extend(context, pair.taps[:150], 0)
    right = 0
    for position in range(150, 180):
        rows = model.forward(state, [token], DECODE["split"])
        best, taps = int(np.argmax(rows.logits[0])), np.array(rows.taps)
        block = pair.drafter.block(context, token, position)
        right += int(block.scores(0, token).argmax()) == best
        pair.drafter.extend(context, taps, position)
        token = best
    assert right >= 4
