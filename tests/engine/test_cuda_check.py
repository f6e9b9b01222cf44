"""What is said of a machine whose GPU cannot be used, before anything is loaded."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest
import torch

from engine.cuda.check import require_cuda, require_versions
from engine.errors import Ds4Error
from engine.synthetic_costs import SyntheticRequest, measure_synthetic


def test_a_torch_without_cuda_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", None)
    with pytest.raises(Ds4Error, match="needs a torch built for CUDA, found torch") as caught:
        require_cuda()
    assert caught.value.hint == "Use --device cpu."


def test_a_machine_without_a_gpu_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(Ds4Error, match="needs an NVIDIA GPU, found none"):
        require_cuda()
    with pytest.raises(Ds4Error, match="--synthetic needs an NVIDIA GPU, found none") as caught:
        next(measure_synthetic(SyntheticRequest("v4-flash-q2", 3, (1.0,), (1,), (), 1, 0)))
    assert caught.value.hint == "", "it runs on nothing else"


def test_triton_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    found = importlib.util.find_spec

    def find(name: str, *more: Any) -> Any:
        return None if name == "triton" else found(name, *more)

    monkeypatch.setattr(importlib.util, "find_spec", find)
    with pytest.raises(Ds4Error, match="triton, which is not installed") as caught:
        require_cuda()
    assert caught.value.hint == "Install ds4tui[gpu], or use --device cpu."


def test_old_gpus_and_old_tritons_are_refused() -> None:
    with pytest.raises(Ds4Error, match=r"Tesla V100 has compute capability 7\.0, expected 8\.0"):
        require_versions("Tesla V100", (7, 0), "3.6.0")
    with pytest.raises(Ds4Error, match=r"triton 2\.3\.1 is installed, expected 3\.6 or newer"):
        require_versions("NVIDIA H200", (9, 0), "2.3.1")
    require_versions("NVIDIA H200", (9, 0), "3.6.0+git1234")


def test_too_little_gpu_memory_says_needed_and_found() -> None:
    pytest.importorskip("triton", reason="triton is not installed")
    from engine.cuda.weights import needed_bytes, refuse_more
    from tests.engine.loaded import target_file

    needed = needed_bytes([target_file()], 1 << 20)
    assert needed > 1 << 30
    assert needed_bytes([target_file()], 1 << 30) > needed + (4 << 30)  # a longer context
    refuse_more(needed, needed, "a.gguf", "")
    with pytest.raises(
        Ds4Error, match=r"a\.gguf need about 1\.\d GiB of GPU memory, free are 0\.5"
    ):
        refuse_more(needed, 1 << 29, "a.gguf", "")


def test_loading_on_a_machine_without_cuda_names_the_cpu_way() -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    from engine.load import load_parts
    from engine.session import ignore
    from engine.settings import EngineFiles

    with pytest.raises(Ds4Error) as caught:
        load_parts(EngineFiles("nowhere.gguf", device="cuda"), ignore)
    assert "--device cpu" in caught.value.hint
