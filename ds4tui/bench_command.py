"""`ds4tui bench`: what steps cost on this machine, beside the bytes that a decode must read.

Owns the document of schema `ds4tui.bench/1` and its table; `engine.costs` measures.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, cast

from rich.console import Console
from rich.table import Table

from ds4tui import options
from ds4tui.output import Progress, check_writable, tables, write_json
from ds4tui.report import Document, file_document
from engine.config import ModelConfig
from engine.costs import CostRequest
from engine.environment import environment
from engine.errors import Ds4Error
from engine.events import CostMeasured, EngineReady
from engine.floor import Floor, decode_floor
from engine.gguf import open_gguf
from engine.paths import NUMERICS, POLICIES, Numerics, Policy
from engine.session import load_engine
from engine.settings import EngineFiles, check_names, parse_int
from engine.text import visible

SCHEMA = "ds4tui.bench/1"


@dataclass(frozen=True, slots=True)
class BenchOptions:
    """What `bench` was asked for."""

    files: EngineFiles
    request: CostRequest
    json: str | None


def bench_options(args: Namespace) -> BenchOptions:
    """Read and check the command line."""
    if args.layers is not None:
        raise Ds4Error(
            "Contradictory options",
            f"--layers is {args.layers}, and there is no --synthetic whose layers these would be.",
            "Give --synthetic v4-flash-q2 too.",
        )
    args = options.with_defaults(args)
    files, _ = options.engine_files(args)
    check_names("--numerics", (args.numerics,), NUMERICS)
    if args.commit is not None:
        check_names("--commit", (args.commit,), POLICIES)
        if not files.mtp:
            raise Ds4Error(
                "Contradictory options",
                f"--commit {args.commit} was given without a drafter, so nothing is committed.",
                "Give the drafter with --mtp.",
            )
    depths = "512" if args.depths is None else args.depths
    request = CostRequest(
        cast(Numerics, args.numerics),
        cast(Policy, args.commit or "direct"),
        tuple(parse_int("--depths", part) for part in depths.split(",")),
        parse_int("--repeat", args.repeat),
        parse_int("--seed", args.seed),
    )
    check_writable(args.json)
    return BenchOptions(files, request, args.json)


def bench(args: Namespace) -> int:
    """Measure, print, write.

    Returns:
        0.
    """
    asked = bench_options(args)
    progress = Progress()
    try:
        engine = load_engine(asked.files, progress.load)
        found = list(engine.costs(asked.request, progress.load))
    finally:
        progress.clear()
    document = bench_document(asked, engine.ready(), found)
    write_json(asked.json, document)
    print_document(tables(asked.json), document)
    return 0


def bench_document(
    asked: BenchOptions, ready: EngineReady, found: Sequence[CostMeasured]
) -> Document:
    """The JSON document of what was measured."""
    file = open_gguf(asked.files.model)
    config = ModelConfig.from_gguf(file)
    request, files = asked.request, asked.files
    return {
        "schema": SCHEMA,
        "environment": dict(environment()),
        "model": file_document(ready.files, "target"),
        "drafter": file_document(ready.files, "drafter"),
        "settings": {
            "numerics": request.numerics,
            "commit": request.commit if files.mtp else None,
            "kv_rounding": files.kv_rounding,
            "device": files.device,
            "threads": files.threads,
            "repeat": request.repeat,
            "seed": request.seed,
        },
        "depths": [
            _depth(
                position,
                [cost for cost in found if cost.position == position],
                decode_floor(file, config, position),
                request.commit if files.mtp else None,
            )
            for position in dict.fromkeys(request.positions)
        ],
    }


def _depth(
    position: int, costs: Sequence[CostMeasured], floor: Floor, commit: Policy | None
) -> Document:
    """Everything measured at one position."""
    by = {(cost.kind, cost.rows): cost for cost in costs}
    decode = by["decode", 1]
    prefill, copy = by.pop(("prefill", position)), _copy(by)
    bandwidth = 2e9 * copy.rows / copy.median_ns
    floor_ns = floor.total / bandwidth * 1e9
    return {
        "position": position,
        "prefill": {
            "tokens": position,
            **_times(prefill),
            "tokens_per_s": position * 1e9 / prefill.median_ns,
        },
        "steps": [
            {
                "kind": cost.kind,
                "rows": cost.rows,
                **_times(cost),
                "in_decodes": cost.median_ns / decode.median_ns,
                "best_in_decodes": cost.best_ns / decode.best_ns,
            }
            for cost in by.values()
        ],
        "break_even": _break_even(by, commit),
        "floor": {
            **asdict(floor),
            "bytes_per_token": floor.total,
            "copy_bytes": copy.rows,
            "copy": _times(copy),
            "bytes_per_s": bandwidth,
            "floor_ms": floor_ns / 1e6,
            "decode_over_floor": decode.median_ns / floor_ns,
        },
    }


def _copy(by: dict[Any, CostMeasured]) -> CostMeasured:
    """Take the copy's measurement out of the steps."""
    return by.pop(next(key for key in by if key[0] == "copy"))


def _times(cost: CostMeasured) -> Document:
    return {
        "median_ms": cost.median_ns / 1e6,
        "low_ms": cost.low_ns / 1e6,
        "high_ms": cost.high_ns / 1e6,
        "best_ms": cost.best_ns / 1e6,
        "n": cost.n,
    }


NEVER_PAYS = ("replay", "strict")
"""Policies whose cycles cost more than decoding their tokens, at every depth."""


def _break_even(by: dict[Any, CostMeasured], commit: Policy | None) -> list[Document]:
    """Per number of proposed drafts, the mean depth from which on a cycle beats decoding.

    With `direct` that of cycles whose drafts are all accepted: the others decode their tokens too.
    """
    if commit in NEVER_PAYS:
        return []
    block = max((rows for kind, rows in by if kind == "draft"), default=0)
    settled = [cost for (kind, _), cost in by.items() if kind == "commit"]
    found = []
    for n in range(1, block + 1):
        cycle = [by["draft", block], by["verify", n + 1], *settled]
        entry = {"proposed": n, "depth": 0.0, "best": 0.0}
        entry["depth"] = sum(cost.median_ns for cost in cycle) / by["decode", 1].median_ns
        entry["best"] = sum(cost.best_ns for cost in cycle) / by["decode", 1].best_ns
        found.append(entry)
    return found


def print_document(console: Console, document: Document) -> None:
    """A table per position, and the floor in a sentence."""
    settings, model = document["settings"], document["model"]
    console.print(
        f"{visible(model['name'] or model['path'])}: numerics {settings['numerics']}, commit "
        f"{settings['commit'] or 'none'}, kv-rounding {settings['kv_rounding']}, "
        f"{settings['device']}, threads {settings['threads']}, {settings['repeat']} interleaved "
        "turns",
        soft_wrap=True,
    )
    for depth in document["depths"]:
        console.print()
        _print_depth(console, depth, settings["commit"])


def _print_depth(console: Console, depth: Document, commit: Policy | None) -> None:
    table = Table(title=f"after {depth['position']} tokens", title_justify="left")
    table.add_column("step")
    for name in ("median ms", "quartiles", "best", "in decodes", "best"):
        table.add_column(name, justify="right", no_wrap=True)
    prefill, floor = depth["prefill"], depth["floor"]
    table.add_row(f"prefill of {prefill['tokens']}", *_cells(prefill))
    for step in depth["steps"]:
        ratios = (f"{step[name]:.2f}" for name in ("in_decodes", "best_in_decodes"))
        table.add_row(_name(step), *_cells(step), *ratios)
    console.print(table)
    console.print(f"prefill {prefill['tokens_per_s']:.0f} tokens/s")
    for line in _what_pays(depth, commit):
        console.print(line, soft_wrap=True)
    console.print(
        f"floor: a decode reads {floor['bytes_per_token'] / 1e6:.2f} MB "
        f"({floor['weights'] / 1e6:.2f} of weights, {floor['rows'] / 1e6:.2f} of rows), "
        f"{floor['floor_ms']:.2f} ms at the {floor['bytes_per_s'] / 1e9:.1f} GB/s that copying "
        f"{floor['copy_bytes'] / 1e6:.0f} MB reads and writes; decode takes "
        f"{floor['decode_over_floor']:.2f} times that",
        soft_wrap=True,
    )


def _what_pays(depth: Document, commit: Policy | None) -> list[str]:
    """From which depth on drafting beats decoding, or why no depth does."""
    if commit == "strict":
        (carry,) = (step["in_decodes"] for step in depth["steps"] if step["kind"] == "carry")
        return [
            "break-even depth: none, strict drafts nothing; a token costs "
            f"{1 + carry:.2f} decodes, {carry:.2f} of them to carry the drafter"
        ]
    if commit == "replay":
        return ["break-even depth: none, replay decodes every token again after its verify"]
    lines = []
    for name, of in (("depth", "medians"), ("best", "best times")):
        pays = ", ".join(f"{at['proposed']}: {at[name]:.2f}" for at in depth["break_even"])
        if pays:
            lines.append(f"break-even depth by drafts proposed, of {of}: {pays}")
    if lines and commit == "direct":
        lines.append(
            "  of cycles whose drafts are all accepted: direct decodes the tokens of the others "
            "again, which never pay"
        )
    return lines


def _cells(times: Document) -> tuple[str, str, str]:
    low, median, high, best = (
        _milliseconds(times[name]) for name in ("low_ms", "median_ms", "high_ms", "best_ms")
    )
    return median, f"{low} - {high}", best


def _milliseconds(value: float) -> str:
    return f"{value:.3f}" if value < 100 else f"{value:.0f}"


def _name(step: Document) -> str:
    rows = step["rows"]
    match step["kind"]:
        case "verify":
            return f"verify {rows} rows"
        case "draft":
            return f"draft {rows}" if rows else "first confidence"
        case "commit":
            return f"commit {rows} rows"
        case _:
            return str(step["kind"])
