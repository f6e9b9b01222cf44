"""The embedded drafter with fewer tokens to draft: its drafts are the whole one's among those that
are left, and the text stays the target's.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from ds4tui.options import model_files
from engine.block import Block
from engine.config import DrafterConfig, ModelConfig
from engine.draft_vocabulary import DraftVocabulary
from engine.drafter import Drafter
from engine.errors import Ds4Error
from engine.events import CycleFinished, StateDrift
from engine.gguf import GGUFFile, open_gguf
from engine.gguf_write import Plain, TensorData, Typed, write_gguf
from engine.model import Model
from engine.paths import Plan
from engine.session import load_engine
from engine.settings import EngineFiles, Knobs, Prompt, RunRequest, Settings
from engine.stats import tally
from engine.tokenizer import Tokenizer
from engine.weights import load_drafter, load_target
from tests.engine.random_pair import (
    SMALL,
    DrafterShape,
    drafter_metadata,
    drafter_tensors,
    write_target,
)

EOS = 1
TEXT = "The server waits until the client has sent its last message. Then it closes the connection,"


@dataclass(frozen=True)
class Pair:
    """The embedded target, its drafter, and that drafter with two of three tokens left."""

    target: GGUFFile
    whole: GGUFFile
    some: GGUFFile
    kept: np.ndarray
    config: ModelConfig


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    try:
        target_path, drafters, _ = model_files(None, None)
    except Ds4Error as error:
        pytest.skip(error.message)
    target, whole = open_gguf(target_path), open_gguf(drafters[0])
    config = ModelConfig.from_gguf(target)
    path = tmp_path_factory.mktemp("some") / "some.gguf"
    kept = write_some(path, target, whole, config)
    return Pair(target, whole, open_gguf(path), kept, config)


def write_some(path: Path, target: GGUFFile, whole: GGUFFile, config: ModelConfig) -> np.ndarray:
    """Write the drafter with EOS and two of three tokens of its own; returns these, rising."""
    own = DrafterConfig.from_gguf(whole, config)
    all_tokens = np.arange(config.vocab_size)
    tokens = all_tokens if own.draft_vocabulary is None else whole.integers("d2t")
    places = np.flatnonzero((tokens == EOS) | (np.arange(len(tokens)) % 3 != 1))
    head = whole if own.own_head else target
    markov = own.tensor_name(f"mtp.{own.stages - 1}.markov_head.markov_w2.weight")
    cut = [(whole, markov), (head, "output.weight")]
    tensors = [
        TensorData(name, info.shape, info.type, whole.raw(name))
        for name, info in whole.tensors.items()
        if name not in (markov, "output.weight", "d2t")
    ]
    for file, name in cut:
        info = file.tensors[name]
        shape = (len(places), info.shape[1])
        tensors.append(TensorData(name, shape, info.type, file.raw(name)[places]))
    tensors.append(TensorData.encode("d2t", tokens[places], "I64"))
    metadata: dict[str, Plain | Typed] = {}
    for key, value in whole.metadata.items():
        plain = value.tolist() if isinstance(value, np.ndarray) else value
        metadata[key] = Typed(whole.kinds[key].rpartition(" ")[2], plain)  # type: ignore[arg-type]
    write_gguf(path, metadata, tensors)
    return tokens[places]


def test_drafts_are_the_best_of_the_tokens_that_are_left(pair: Pair) -> None:
    layers = DrafterConfig.from_gguf(pair.whole, pair.config).target_layers
    model = Model(load_target(pair.target), pair.config, tap_layers=layers)
    ids = Tokenizer.from_gguf(pair.target).render_raw(TEXT)
    taps = model.forward(model.new_state(), ids, Plan("invariant"), all_logits=False).taps

    def block(file: GGUFFile, length: int) -> Block:
        drafter = Drafter(load_drafter(file, pair.config), model)
        context = drafter.new_context()
        drafter.extend(context, taps[:length], 0)
        return drafter.block(context, ids[length], length)

    changed = 0
    for length in (1, 9, len(ids) - 1):
        whole, some = block(pair.whole, length), block(pair.some, length)
        previous = ids[length]
        for row in range(len(some.hidden)):
            wanted = np.full(pair.config.vocab_size, -np.inf, np.float32)
            wanted[pair.kept] = whole.logits(row)[pair.kept]
            np.testing.assert_array_equal(some.logits(row), wanted)
            scores = whole.scores(row, previous)
            wanted[pair.kept] = scores[pair.kept]
            np.testing.assert_array_equal(some.scores(row, previous), wanted)
            token = int(wanted.argmax())
            assert some.best(row, previous) == token
            assert some.confidence(row, previous) == whole.confidence(row, previous)
            changed += token != int(scores.argmax())
            previous = token
    assert changed, "no draft was one of the tokens that are gone"


@pytest.mark.parametrize("markov", [True, False])
def test_the_text_is_plain_s(pair: Pair, markov: bool) -> None:
    engine = load_engine(EngineFiles(str(pair.target.path), (str(pair.some.path),)))
    target, drafter = engine.ready().files
    assert (target.drafted, drafter.drafted) == (0, len(pair.kept))
    arms = (Knobs("prefix", 0.0), Knobs("direct", 0.0), Knobs("replay", 0.3))
    settings = Settings("invariant", arms, 150, ignore_eos=True, markov=markov)
    prompt = Prompt("What is a hash table?")
    events = list(engine.run(RunRequest(prompt, settings)))
    plain, *others = tally(events)
    for arm in others:
        assert arm.ids == plain.ids
        assert arm.counts.accept_rate is not None
        assert arm.counts.accept_rate > 0.1
    drifts = [event for event in events if isinstance(event, StateDrift)]
    assert drifts
    assert all(value is None for drift in drifts for *_, value in drift.tensors)
    kept = set(pair.kept.tolist())
    cycles = [event for event in events if isinstance(event, CycleFinished)]
    assert all(kept.issuperset((*cycle.drafts, *cycle.drafts_unbiased)) for cycle in cycles)
    assert not kept.issuperset(plain.ids), "every token of the text could be drafted"


@pytest.mark.parametrize("tokens", [[EOS], [77], [77, 90]])
def test_a_block_ends_where_every_token_is_excluded(tmp_path: Path, tokens: list[int]) -> None:
    own = DrafterShape(own_head=True, drafted=len(tokens))
    target = write_target(tmp_path / "target.gguf", SMALL, "ds4")
    tensors = [t for t in drafter_tensors(SMALL, own, types="ds4") if t.name != "d2t"]
    tensors.append(TensorData.encode("d2t", np.array(tokens), "I64"))
    metadata = drafter_metadata(SMALL, own, "dspark")
    drafter = write_gguf(tmp_path / "drafter.gguf", metadata, tensors)
    engine = load_engine(EngineFiles(str(target), (str(drafter),)))
    arms = (Knobs("prefix", 0.0), Knobs("direct", 0.0), Knobs("replay", 0.1))
    settings = Settings("invariant", arms, 40, no_repeat=1, ignore_eos=True)
    events = list(engine.run(RunRequest(Prompt("a"), settings)))
    plain, *others = tally(events)
    assert [arm.ids for arm in others] == [plain.ids] * len(arms)
    cycles = [event for event in events if isinstance(event, CycleFinished)]
    ends = {cycle.proposed for cycle in cycles if cycle.clip == "excluded"}
    assert max(ends) == len([token for token in tokens if token != EOS])
    for cycle in cycles:
        assert len(set(cycle.drafts)) == len(cycle.drafts) <= max(ends)


def test_scores_of_rows_as_scores_of_tokens() -> None:
    some = DraftVocabulary(6, np.array([1, 2, 5]))
    spread = some.spread(np.array([1.0, -2.0, 3.0], np.float32))
    assert spread.tolist() == [-np.inf, 1.0, -2.0, -np.inf, -np.inf, 3.0]
    scores = np.arange(6, dtype=np.float32)
    assert (some.rows, DraftVocabulary(6).rows) == (3, 6)
    assert DraftVocabulary(6).spread(scores) is scores
