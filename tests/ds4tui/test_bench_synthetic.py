"""`ds4tui bench --synthetic`: its options, and its tables from given measurements."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from ds4tui import cli
from ds4tui.bench_command import bench_options
from ds4tui.synthetic_command import add_part, print_part, synthetic_request
from engine.errors import Ds4Error
from engine.synthetic_costs import CONTEXTS, DEPTHS, SyntheticRequest


def asked(*words: str) -> SyntheticRequest:
    return synthetic_request(cli._bench_parser().parse_args(["--synthetic", *words]))


def test_defaults_are_the_full_model_at_three_contexts() -> None:
    request = asked("v4-flash-q2")
    assert request.layers is None
    assert request.contexts == CONTEXTS == (512, 8192, 65536)
    assert request.depths == DEPTHS
    assert request.mean_depth == pytest.approx(3.3, abs=0.01)


def test_layers_and_depths_are_taken() -> None:
    request = asked("v4-flash-q2", "--layers", "5", "--depths", "0.5,0.25,0.25")
    assert request.layers == 5
    assert request.mean_depth == pytest.approx(1.75)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("v4-flash-q2", "--depths", "0.5,0.4"), "add up to 1"),
        (("v4-flash-q2", "--depths", "1.5,-0.5"), "add up to 1"),
        (("v4-flash-q2", "--depths", "1,0,0,0,0,0,0"), "at most 6 shares"),
        (("v4-flash-q2", "--device", "cpu"), '--device is "cpu", and --synthetic measures a GPU'),
        (("v4-flash-q2", "--cuda", "--device", "cpu"), '--device is "cpu"'),
        (("v4-flash-q2", "--device", "tpu"), '--device is "tpu"'),
        (("v4-flash-q2", "--layers", "many"), 'is "many"'),
    ],
)
def test_mistakes_are_named(words: tuple[str, ...], message: str) -> None:
    with pytest.raises(Ds4Error, match=message):
        asked(*words)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("-m", "t.gguf"),
        ("-m", ""),
        ("--mtp", "d.gguf"),
        ("--ctx", "100"),
        ("--threads", "1"),
        ("--kv-rounding", "fp8"),
        ("--numerics", "split"),
        ("--commit", "direct"),
    ],
)
def test_what_only_a_model_from_files_takes_is_refused(option: str, value: str) -> None:
    with pytest.raises(Ds4Error, match=f"{option} was given with --synthetic"):
        asked("v4-flash-q2", option, value)


def test_every_option_of_bench_is_taken_or_refused() -> None:
    """Each changes what is asked of a synthetic model, says where it goes, or is refused."""
    values = {"--repeat": "3", "--seed": "5", "--depths": "1", "--layers": "2", "--json": "-"}
    refused = ("--model", "--mtp", "--ctx", "--threads", "--kv-rounding", "--numerics", "--commit")
    for action in cli._bench_parser()._actions:
        option = action.option_strings[-1]
        if option in ("--help", "--synthetic"):
            continue
        value = "cuda" if option == "--device" else values.get(option, "1")
        words = [option] if action.nargs == 0 else [option, value]
        if option in refused:
            with pytest.raises(Ds4Error, match="was given with --synthetic"):
                asked("v4-flash-q2", *words)
        else:
            taken = asked("v4-flash-q2", *words) != asked("v4-flash-q2")
            assert taken or option in ("--json", "--cuda", "--device"), option


def test_the_gpu_may_be_named() -> None:
    assert asked("v4-flash-q2", "--device", "cuda") == asked("v4-flash-q2", "--cuda")


def test_layers_need_a_synthetic_model() -> None:
    with pytest.raises(Ds4Error, match="there is no --synthetic"):
        bench_options(cli._bench_parser().parse_args(["--layers", "5"]))


def step(kind: str, rows: int, ms: float) -> dict[str, Any]:
    return {
        "kind": kind, "rows": rows, "median_ms": ms, "low_ms": ms, "high_ms": ms, "best_ms": ms,
        "in_decodes": ms / 4,
    }  # fmt: skip


def test_tables_say_that_the_output_means_nothing() -> None:
    parts: list[tuple[str, Any]] = [
        (
            "built",
            {
                "model": "v4-flash-q2, 43 layers",
                "drafter": "v4-flash-q2 DSpark",
                "build_s": 40.0,
                "copy_bytes_per_s": 4e12,
            },
        ),
        (
            "context",
            {
                "position": 512,
                "steps": [step("decode", 1, 4), step("verify", 6, 8)],
                "tokens_per_s": 250.0,
                "bytes_per_token": 8e9,
                "row_bytes": 3e7,
                "floor_ms": 2.0,
            },
        ),
        (
            "curve",
            [
                {"position": 512, "floor_ms": 2.0, **step("decode", 1, 4)},
                {"position": 8192, "floor_ms": 2.1, **step("decode", 1, 4.2)},
            ],
        ),
        ("bits", [{"position": 512, "tokens": 30, "differing_logits": 0, "differing_tensors": 0}]),
        (
            "run",
            {
                "mean_depth": 3.25, "cycles": 60, "tokens_per_s": 400.0,
                "plain_tokens_per_s": 250.0, "speedup": 1.6, "predicted_speedup": 1.5,
                "ceiling": 1.55, "split_replay_tokens_per_s": 150.0,
                "split_plain_tokens_per_s": 260.0,
            },
        ),
        ("kernels", [{"kernel": "down_kernel", "launches": 43.0, "us": 860.0}]),
        (
            "products",
            [
                {
                    "name": "q_b", "shape": "Q8_0 1 x 32768 x 1024", "file_bytes": 35e6,
                    "invariant": 10.0, "vector": 9.5,
                }
            ],
        ),
    ]  # fmt: skip
    out = io.StringIO()
    console = Console(file=out, width=120)
    document: dict[str, Any] = {"settings": {"mean_depth": 3.3}, "contexts": []}
    for part, value in parts:
        add_part(document, part, value)
        print_part(console, document, part, value)
    text = out.getvalue()
    assert "cost only, the output means nothing" in text
    assert "verify 6" in text
    assert "2.00" in text
    assert "50 % of it" in text
    assert [line.split() for line in text.splitlines() if "8192" in line] == [
        ["│", "8192", "│", "4.200", "│", "4.200", "-", "4.200", "│", "0.20", "│", "0.10", "│",
         "50", "%", "│"]
    ]  # fmt: skip
    assert "30 tokens from 512 on, one by one and in batches: 0 logits" in text
    assert "20.0" in text
    assert "3500" in text
    assert "1.05" in text
    assert document["model"] == "v4-flash-q2, 43 layers"
    assert document["contexts"][0]["position"] == 512
