"""`ds4tui matrix`: load once, run every cell over a set of prompts, print, write, answer."""

from __future__ import annotations

import copy
import time
from argparse import Namespace
from dataclasses import dataclass
from typing import cast

from ds4tui import interrupts, matrix_report, matrix_text, options
from ds4tui.output import Progress, check_outputs, tables, write_json, write_output
from ds4tui.report import Document
from engine.errors import Ds4Error
from engine.events import RunStarted, TokensCommitted
from engine.paths import NUMERICS, POLICIES, Numerics
from engine.session import Engine, load_engine
from engine.settings import EngineFiles, Knobs, check_names, parse_arm
from engine.suite import MatrixRequest, matrix_arms, suite_prompts
from engine.text import one_line
from engine.trace import TraceWriter


@dataclass(frozen=True, slots=True)
class MatrixOptions:
    """What `matrix` was asked for."""

    files: EngineFiles
    request: MatrixRequest
    trace: str | None
    json: str | None
    markdown: str | None


def matrix_options(args: Namespace) -> MatrixOptions:
    """Read and check the command line."""
    files, embedded = options.engine_files(args)
    arms = _arms(args)
    files, arms = options.with_drafters(files, arms)
    if not files.mtp:
        raise Ds4Error(
            "No drafter",
            "matrix was given a target without a drafter, so there are no policies to compare.",
            "Give the drafter with --mtp.",
        )
    numerics = NUMERICS if args.numerics is None else (cast(Numerics, args.numerics),)
    check_names("--numerics", numerics, NUMERICS)
    given = copy.copy(args)
    given.numerics = numerics[0]
    settings = options.run_settings(given, arms)
    if settings.why_split and numerics != ("split",):
        raise Ds4Error("Contradictory options", settings.why_split, "Give --numerics split.")
    entries = options.prompts_of(args, "matrix", embedded)
    check_outputs(
        {"--json": args.json, "--report": args.report, "--trace": args.trace},
        (args.prompt_file, args.prompts),
    )
    is_alone = args.prompt is not None or args.prompt_file is not None
    request = MatrixRequest(
        suite_prompts(entries),
        settings,
        numerics,
        name="" if is_alone else options.set_name(args.prompts),
    )
    return MatrixOptions(files, request, args.trace, args.json, args.report)


def _arms(args: Namespace) -> tuple[Knobs, ...]:
    """Every policy asked for, all by default, at every confidence asked for."""
    asked = options.commits_of(args) or POLICIES
    check_names("--commit", asked, POLICIES)
    bases = []
    for confidence in dict.fromkeys(args.confidence or [None]):
        one = copy.copy(args)
        one.confidence = confidence
        base = options.base_knobs(one, "direct")
        bases += [_base(spec, base) for spec in args.arm] or [base]
    policies = tuple(policy for policy in POLICIES if policy in asked)
    return matrix_arms(policies, bases)


def _base(spec: str, base: Knobs) -> Knobs:
    """What an `--arm` says beside the policy, which the matrix itself turns."""
    if any(part.strip().startswith("commit=") for part in spec.split(",")):
        raise Ds4Error(
            "Contradictory options",
            f'--arm has "{one_line(spec)}", and the matrix runs every arm by every policy.',
            "Give --commit to restrict the policies.",
        )
    return parse_arm(spec, base)


def matrix(args: Namespace) -> int:
    """Run the matrix.

    Returns:
        0 every cell that must be identical is, 1 one is not, 2 a verdict is withheld.
    """
    asked = matrix_options(args)
    console, progress = tables(asked.json), Progress()
    trace = None if asked.trace is None else TraceWriter(asked.trace)
    found = matrix_report.MatrixReport()
    began = (time.monotonic(), time.process_time())
    try:
        with interrupts.ending_at_once(trace.close if trace is not None else None):
            engine = load_engine(asked.files, progress.load)
        with interrupts.raised():
            _run(engine, asked, found, trace, progress)
    finally:
        progress.clear()
        if trace is not None:
            trace.close()
        spent = (time.monotonic() - began[0], time.process_time() - began[1])
        document = found.document(wall_s=spent[0], cpu_s=spent[1])
        _write(asked, document)
    assert document is not None
    matrix_text.print_document(console, document)
    return matrix_report.exit_code(document)


def _run(
    engine: Engine,
    asked: MatrixOptions,
    found: matrix_report.MatrixReport,
    trace: TraceWriter | None,
    progress: Progress,
) -> None:
    where = ""
    for event in asked.request.events(engine, report=progress.load):
        found.feed(event)
        if trace is not None:
            trace.write([event])
        match event:
            case RunStarted():
                where = f"prompt {event.prompt_index + 1}/{len(asked.request.prompts)} {event.cell}"
            case TokensCommitted(arm=0):
                progress.show(f"{where} #{event.index}")
            case _:
                pass


def _write(asked: MatrixOptions, document: Document | None) -> None:
    """Write what there is: after a failure, the runs that were finished before it."""
    if document is None:
        return
    write_json(asked.json, document)
    if asked.markdown is not None:
        write_output(asked.markdown, matrix_text.markdown(document))
