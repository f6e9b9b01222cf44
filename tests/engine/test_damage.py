"""A damaged model file is refused in a sentence or still a model; nothing else gets out."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ds4tui.inspect import format_report, inspect_files, to_json
from engine.config import DrafterConfig, ModelConfig
from engine.errors import Ds4Error
from engine.gguf import open_gguf
from engine.tokenizer import Tokenizer
from engine.weights import load_target
from tests.engine.random_pair import write_drafter, write_pair

FUZZ = settings(
    max_examples=120,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    directory = tmp_path_factory.mktemp("pair")
    dflash = write_drafter(directory / "dflash.gguf", dialect="dflash")
    return (*write_pair(directory), dflash)


def damaged(data: st.DataObject, path: Path, out: Path) -> Path:
    """A copy with a few bytes of its header changed, or a part of it cut out."""
    whole = bytearray(path.read_bytes())
    start = min(t.offset for t in open_gguf(path).tensors.values())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(8, start - 1))
        whole[at] = data.draw(st.sampled_from([0, 1, 4, 8, 0x7F, 0xFF, whole[at] ^ 1]))
    if data.draw(st.booleans()):
        at = data.draw(st.integers(8, start - 1))
        del whole[at : at + data.draw(st.integers(1, 64))]
    out.write_bytes(whole)
    return out


@FUZZ
@given(data=st.data())
def test_damaged_targets(
    pair: tuple[Path, Path, Path], tmp_path: Path, data: st.DataObject
) -> None:
    path = damaged(data, pair[0], tmp_path / "target.gguf")
    with suppress(Ds4Error):
        file = open_gguf(path)
        format_report(inspect_files([path, pair[1]]))
        ModelConfig.from_gguf(file)
        tokenizer = Tokenizer.from_gguf(file)
        assert tokenizer.decode(tokenizer.encode("the 2026")) == "the 2026"


@FUZZ
@given(data=st.data())
def test_damaged_drafters(
    pair: tuple[Path, Path, Path], tmp_path: Path, data: st.DataObject
) -> None:
    target = ModelConfig.from_gguf(open_gguf(pair[0]))
    source = pair[data.draw(st.integers(1, 2))]
    path = damaged(data, source, tmp_path / "drafter.gguf")
    with suppress(Ds4Error):
        to_json(inspect_files([pair[0], path]))
        DrafterConfig.from_gguf(open_gguf(path), target)


@pytest.mark.parametrize("kind", ["exp_probs_b.bias", "indexer_compressor_ape.weight"])
def test_a_number_that_no_logit_would_show_is_refused(
    pair: tuple[Path, Path, Path], tmp_path: Path, kind: str
) -> None:
    name, info = next((n, t) for n, t in open_gguf(pair[0]).tensors.items() if n.endswith(kind))
    whole = bytearray(pair[0].read_bytes())
    whole[info.offset : info.offset + 4] = np.float32("nan").tobytes()
    path = tmp_path / "target.gguf"
    path.write_bytes(whole)
    with pytest.raises(Ds4Error, match=rf"1 of the \d+ numbers of tensor \"{name}\" in .*target"):
        load_target(open_gguf(path))
