"""`ds4tui ab`: load once, run every prompt, print, write, answer with an exit code."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ds4tui import ab_text, interrupts, options, report
from ds4tui.output import Progress, check_outputs, tables, write_json, write_output
from ds4tui.recorded import read_recorded
from ds4tui.report_markdown import markdown
from ds4tui.set_figures import ArmRun, arm_runs, by_category
from engine.errors import Ds4Error
from engine.events import Event, TokensCommitted
from engine.prompt_set import PromptEntry
from engine.session import Engine, load_engine
from engine.settings import EngineFiles, Recorded, RunRequest, Settings, parse_int
from engine.text import one_line
from engine.trace import TraceWriter


@dataclass(frozen=True, slots=True)
class AbOptions:
    """What `ab` was asked for."""

    files: EngineFiles
    settings: Settings
    prompts: tuple[PromptEntry, ...]
    is_set: bool
    against: tuple[Recorded, ...]
    repeat: int
    trace: str | None
    json: str | None
    markdown: str | None


def ab_options(args: Namespace) -> AbOptions:
    """Read and check the command line."""
    files, embedded = options.engine_files(args)
    against = tuple(read_recorded(path) for path in args.against)
    dspark = options.dspark_arms(args, args.arm, bool(files.mtp))
    files, dspark = options.with_drafters(files, dspark)
    if not dspark and not against:
        raise Ds4Error(
            "No drafter",
            "ab was given a target without a drafter, so there is nothing to compare plain with.",
            "Give the drafter with --mtp, or recorded ids with --against.",
        )
    repeat = parse_int("--repeat", args.repeat)
    if repeat < 1:
        raise Ds4Error("Invalid option", f"--repeat is {repeat}; expected 1 or more.")
    check_outputs(
        {"--json": args.json, "--report": args.report, "--trace": args.trace},
        (args.prompt_file, args.prompts, *args.against),
    )
    prompts, is_set = options.prompts_of(args, "ab", embedded), args.prompts is not None
    if against and is_set and len(prompts) > 1:
        raise Ds4Error(
            "Contradictory options",
            f"--against {one_line(args.against[0])} holds the ids of one prompt, and --prompts has "
            f"{len(prompts)}.",
            "Give the prompt that they were recorded for.",
        )
    return AbOptions(
        files,
        replace(options.run_settings(args, dspark), controls=args.controls),
        prompts if is_set else prompts[:1],
        is_set,
        against,
        repeat,
        args.trace,
        args.json,
        args.report,
    )


def ab(args: Namespace) -> int:
    """Run the comparison.

    Returns:
        0 all identical, 1 an arm diverged, 2 a verdict is withheld.
    """
    asked = ab_options(args)
    trace = None if asked.trace is None else TraceWriter(asked.trace)
    console, progress = tables(asked.json), Progress()
    documents: list[report.Document] = []
    arms: dict[str, list[ArmRun]] = {}
    try:
        with interrupts.ending_at_once(trace.close if trace is not None else None):
            engine = load_engine(asked.files, progress.load)
        with interrupts.raised():
            for index, entry in enumerate(asked.prompts):
                runs = list(_repeats(engine, asked, index, entry, trace, progress))
                documents.append(report.ab_document(runs))
                for name, run in arm_runs(documents[-1], runs):
                    arms.setdefault(name, []).append(run)
                progress.clear()
                if index:
                    console.print()
                ab_text.print_document(console, documents[-1])
    finally:
        progress.clear()
        if trace is not None:
            trace.close()
        categories = by_category(list(arms.items())) if asked.is_set else []
        _write(asked, documents, categories)
    if asked.is_set:
        ab_text.print_categories(console, categories)
        console.print(f"\n{ab_text.counts(documents)}")
    return report.exit_code(documents)


def _write(
    asked: AbOptions, documents: Sequence[report.Document], categories: Sequence[report.Document]
) -> None:
    """Write what there is: after a failure, the prompts that were finished before it."""
    if not documents:
        return
    missing = len(asked.prompts) - len(documents)
    whole = documents[0]
    if asked.is_set:
        whole = report.set_document(documents, categories, complete=not missing)
    write_json(asked.json, whole)
    if asked.markdown is not None:
        write_output(asked.markdown, markdown(documents, categories, missing=missing))


def _repeats(
    engine: Engine,
    asked: AbOptions,
    index: int,
    entry: PromptEntry,
    trace: TraceWriter | None,
    progress: Progress,
) -> Iterator[report.RunEvents]:
    request = RunRequest(
        entry.prompt,
        asked.settings,
        against=asked.against,
        prompt_index=index,
        category=entry.category,
    )
    for repeat in range(asked.repeat):
        what = f"prompt {index + 1}/{len(asked.prompts)}" if asked.is_set else ""
        what += f" repeat {repeat + 1}/{asked.repeat}" if asked.repeat > 1 else ""
        events: list[Event] = []
        for event in engine.run(request, report=progress.load):
            events.append(event)
            if trace is not None:
                trace.write([event])
            if isinstance(event, TokensCommitted) and event.arm == 0:
                progress.show(f"{what} #{event.index}".strip())
        yield report.RunEvents.of(events)
