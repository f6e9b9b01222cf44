"""`ds4tui bench --synthetic`: what a full-size model costs on this GPU, with random weights.

Owns the document of schema `ds4tui.bench-synthetic/1` and its tables; `engine.synthetic_costs`
measures.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from ds4tui import options
from ds4tui.output import Progress, check_writable, tables, write_json
from ds4tui.report import Document
from engine.environment import environment
from engine.errors import Ds4Error
from engine.settings import parse_float, parse_int
from engine.synthetic_costs import CONTEXTS, CURVE, DEPTHS, SyntheticRequest, measure_synthetic
from engine.text import one_line

SCHEMA = "ds4tui.bench-synthetic/1"
MOST_KERNELS = 24
LONGEST = 6
"""Depths of a cycle: the drafter's block of 5, and the bonus token."""
_OF_FILES = {
    "-m": "model",
    "--mtp": "mtp",
    "--ctx": "ctx",
    "--threads": "threads",
    "--kv-rounding": "kv_rounding",
    "--numerics": "numerics",
    "--commit": "commit",
}
"""Options of a model from files, which a synthetic one does not take: (option, where it is)."""


def synthetic_request(args: Namespace) -> SyntheticRequest:
    """Read and check the command line.

    Raises:
        Ds4Error: for options that do not go with --synthetic, or depths that are no shares.
    """
    if args.device not in (None, "cuda"):
        raise Ds4Error(
            "Contradictory options",
            f'--device is "{one_line(args.device)}", and --synthetic measures a GPU.',
            "Leave out --device, or --synthetic.",
        )
    for option, name in _OF_FILES.items():
        if getattr(args, name) is not None:
            raise Ds4Error(
                "Contradictory options",
                f"{option} was given with --synthetic, which makes its own models and measures "
                "both numerics.",
                f"Leave out {option}, or --synthetic.",
            )
    check_writable(args.json)
    return SyntheticRequest(
        args.synthetic,
        None if args.layers is None else parse_int("--layers", args.layers),
        DEPTHS if args.depths is None else _shares(args.depths),
        CONTEXTS,
        CURVE,
        parse_int("--repeat", args.repeat),
        parse_int("--seed", args.seed or options.DEFAULTS["seed"]),
    )


def _shares(text: str) -> tuple[float, ...]:
    """Shares of the depths 1, 2, ..., which add up to 1."""
    shares = tuple(parse_float("--depths", part) for part in text.split(","))
    if min(shares) < 0 or abs(sum(shares) - 1) > 0.01 or len(shares) > LONGEST:
        raise Ds4Error(
            "Invalid option",
            f'--depths is "{text}", expected at most {LONGEST} shares of the depths 1, 2, ... that '
            "add up to 1.",
            f"The default is {','.join(f'{share:g}' for share in DEPTHS)}.",
        )
    return shares


def bench_synthetic(args: Namespace) -> int:
    """Measure, print, write.

    Returns:
        0.
    """
    request = synthetic_request(args)
    console = tables(args.json)
    document: Document = {
        "schema": SCHEMA,
        "environment": dict(environment()),
        "settings": {
            "recipe": request.recipe,
            "layers": request.layers,
            "depths": list(request.depths),
            "mean_depth": request.mean_depth,
            "repeat": request.repeat,
            "seed": request.seed,
        },
        "output": "meaningless: the weights are random, only costs are measured",
        "contexts": [],
    }
    progress = Progress()
    try:
        for part, value in measure_synthetic(
            request, lambda stage, done, total: progress.show(f"{stage} {done}/{total}")
        ):
            progress.clear()
            add_part(document, part, value)
            print_part(console, document, part, value)
    finally:
        progress.clear()
    write_json(args.json, document)
    return 0


def add_part(document: Document, part: str, value: Any) -> None:
    """Put a measured part into the document."""
    match part:
        case "built":
            document.update(value)
        case "context":
            document["contexts"].append(value)
        case _:
            document[part] = value


def print_part(console: Console, document: Document, part: str, value: Any) -> None:
    """A part as a table, with what it means in a sentence."""
    match part:
        case "built":
            console.print(
                f"{value['model']} and {value['drafter']}, random weights, built in "
                f"{value['build_s']:.0f} s: cost only, the output means nothing. Copying reads and "
                f"writes {value['copy_bytes_per_s'] / 1e9:.0f} GB/s here.",
                soft_wrap=True,
            )
        case "context":
            _print_context(console, value)
        case "curve":
            _print_curve(console, value)
        case "bits":
            for at in value:
                console.print(
                    f"{at['tokens']} tokens from {at['position']} on, one by one and in batches: "
                    f"{at['differing_logits']} logits and {at['differing_tensors']} state tensors "
                    "differ in any bit",
                    soft_wrap=True,
                )
        case "run":
            _print_run(console, value, document["settings"])
        case "kernels":
            _print_kernels(console, value)
        case _:
            _print_products(console, value)
    console.print()


def _print_context(console: Console, at: Mapping[str, Any]) -> None:
    table = Table(title=f"after {at['position']} tokens", title_justify="left")
    table.add_column("step")
    for name in ("median ms", "quartiles", "in decodes"):
        table.add_column(name, justify="right", no_wrap=True)
    for step in at["steps"]:
        name = step["kind"] if step["rows"] == 1 else f"{step['kind']} {step['rows']}"
        table.add_row(
            name,
            f"{step['median_ms']:.3f}",
            f"{step['low_ms']:.3f} - {step['high_ms']:.3f}",
            f"{step['in_decodes']:.2f}",
        )
    console.print(table)
    console.print(
        f"plain decode {at['tokens_per_s']:.1f} tokens/s; a token reads "
        f"{at['bytes_per_token'] / 1e9:.3f} GB ({at['row_bytes'] / 1e6:.1f} MB of rows), "
        f"{at['floor_ms']:.2f} ms at that bandwidth: "
        f"{100 * at['floor_ms'] * at['tokens_per_s'] / 1e3:.0f} % of it",
        soft_wrap=True,
    )


def _print_curve(console: Console, curve: Sequence[Mapping[str, Any]]) -> None:
    table = Table(title="plain decode by context", title_justify="left")
    for name in ("tokens before", "median ms", "quartiles", "more ms", "by bytes", "of the floor"):
        table.add_column(name, justify="right", no_wrap=True)
    first = curve[0]
    for at in curve:
        table.add_row(
            str(at["position"]),
            f"{at['median_ms']:.3f}",
            f"{at['low_ms']:.3f} - {at['high_ms']:.3f}",
            f"{at['median_ms'] - first['median_ms']:.2f}",
            f"{at['floor_ms'] - first['floor_ms']:.2f}",
            f"{100 * at['floor_ms'] / at['median_ms']:.0f} %",
        )
    console.print(table)


def _print_run(console: Console, run: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
    console.print(
        f"drafting at a mean depth of {run['mean_depth']:.2f} over {run['cycles']} cycles (asked "
        f"{settings['mean_depth']:.2f}): {run['tokens_per_s']:.1f} tokens/s against "
        f"{run['plain_tokens_per_s']:.1f} plain, {run['speedup']:.2f}x; predicted from the steps "
        f"{run['predicted_speedup']:.2f}x, ceiling by bytes {run['ceiling']:.2f}x",
        soft_wrap=True,
    )
    console.print(
        f"split with replay, which is exact too: {run['split_replay_tokens_per_s']:.1f} tokens/s "
        f"against {run['split_plain_tokens_per_s']:.1f} plain",
        soft_wrap=True,
    )


def _print_kernels(console: Console, kernels: Sequence[Mapping[str, Any]]) -> None:
    table = Table(title="kernels of one decode", title_justify="left")
    table.add_column("kernel")
    for name in ("launches", "us", "us each"):
        table.add_column(name, justify="right", no_wrap=True)
    for kernel in kernels[:MOST_KERNELS]:
        table.add_row(
            kernel["kernel"][:48],
            f"{kernel['launches']:.0f}",
            f"{kernel['us']:.0f}",
            f"{kernel['us'] / kernel['launches']:.1f}",
        )
    console.print(table)
    rest = kernels[MOST_KERNELS:]
    console.print(
        f"{sum(kernel['launches'] for kernel in kernels):.0f} launches, "
        f"{sum(kernel['us'] for kernel in kernels) / 1e3:.2f} ms in all, more than a decode takes: "
        "kernels run beside each other and wait inside for the one before; "
        f"{sum(kernel['us'] for kernel in rest) / 1e3:.2f} of it in {len(rest)} kernels not listed",
        soft_wrap=True,
    )


def _print_products(console: Console, products: Sequence[Mapping[str, Any]]) -> None:
    table = Table(title="products of one row, alone", title_justify="left")
    table.add_column("product")
    table.add_column("shape")
    for name in ("invariant us", "GB/s", "single-row us", "ratio"):
        table.add_column(name, justify="right", no_wrap=True)
    for product in products:
        taken, vector = product["invariant"], product["vector"]
        table.add_row(
            product["name"],
            product["shape"],
            f"{taken:.1f}",
            f"{product['file_bytes'] / taken / 1e3:.0f}",
            f"{vector:.1f}",
            f"{taken / vector:.2f}",
        )
    console.print(table)
