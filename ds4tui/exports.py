"""Files that the interface writes for the user: never over another one silently.

Owns the folder, the names and what each file of a run holds. Knows no widgets.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Sequence
from pathlib import Path

import platformdirs

from ds4tui.pair import PairRecord
from ds4tui.report import Document, RunEvents, ab_document
from ds4tui.report_markdown import markdown
from ds4tui.run_record import RunRecord
from ds4tui.suite_record import SuiteRecord
from engine.text import visible
from engine.trace import trace_text


def exports_folder() -> Path:
    """Where copies and exports go."""
    return platformdirs.user_data_path("ds4tui") / "exports"


def shown_path(path: Path) -> str:
    """A path for a notice: of the user's own folder only `~`, and fit to be drawn."""
    with contextlib.suppress(ValueError, RuntimeError):  # elsewhere; a user without a folder
        path = Path("~") / path.relative_to(Path.home())
    return visible(str(path))


def write_export(name: str, text: str, folder: Path | None = None) -> Path:
    """Write text to a new file, whole or not at all.

    An equal file that is there already is taken as it is.

    Args:
        name: wished file name; characters that do not belong into one are replaced.
    Raises:
        OSError: when the folder or the file cannot be written.
    """
    folder = exports_folder() if folder is None else folder
    folder.mkdir(parents=True, exist_ok=True)
    wished = folder / re.sub(r"[^\w.-]+", "-", name)
    path = wished
    count = 1
    while True:
        try:
            file = path.open("x", encoding="utf-8")
        except FileExistsError:
            if path.is_file() and path.read_text(encoding="utf-8", errors="replace") == text:
                return path
            count += 1
            path = wished.with_stem(f"{wished.stem}-{count}")
            continue
        try:
            with file:
                file.write(text)
            return path
        except OSError:
            with contextlib.suppress(OSError):
                path.unlink()
            raise


def document_of(record: RunRecord) -> Document | None:
    """The run as the JSON document of `ds4tui ab`; None until it has ended with a verdict."""
    ended = record.finished is not None and all(arm.finished for arm in record.arms)
    if not ended or not record.arms or not record.events:
        return None
    return ab_document([RunEvents.of(list(record.events))])


def why_no_report(record: RunRecord | None, is_replay: bool) -> str:
    """Why `report_of` has nothing to say on what is shown.

    Args:
        is_replay: the run is played from a trace.
    """
    if record is None or record.started is None:
        return "there is no run"
    if isinstance(record, PairRecord):
        return "a report is of one run, and this compares two"
    if len(record.arms) < 2:
        return "a run of plain alone compares nothing"
    if record.failed is not None:
        return "the run has failed"
    if record.finished is None and is_replay:
        return "the replay has not come to the end of the run"
    return "the run has not ended"


def report_of(record: RunRecord, of_set: SuiteRecord | None = None) -> str | None:
    """The run as the Markdown of `ds4tui ab --report`; None until it has ended, and of plain alone.

    Args:
        of_set: the suite that it is a run of, whose figures by category go with it.
    """
    document = document_of(record) if len(record.arms) > 1 else None
    if document is None:
        return None
    if of_set is None or record.started is None:
        return markdown([document])
    report = of_set.report
    cells = report.names_of(record.started)
    found = [figures for cell in cells for figures in report.categories(cell)]
    whole = [figures for cell in cells if (figures := report.cell(cell))]
    said = [f"{f['name']}: {f['identical']} of {f['prompts']} prompts identical" for f in whole]
    name = of_set.started.name or "prompts"
    return markdown([document], found, f"One run of the {of_set.kind} {name}; {'; '.join(said)}.")


def transcript(record: RunRecord) -> str:
    """Prompt and every arm's text, with what identifies them; safe to print."""
    started = record.started
    if started is None:
        return ""
    lines = [f"prompt: {visible(started.prompt)}", ""]
    for arm in record.arms:
        name = visible(arm.info.name)
        lines += [f"== {name} · {arm.info.numerics} · {len(arm.ids)} ids {arm.ids_hash}"]
        lines += [visible("".join(arm.texts)), ""]
    for arm in record.arms:
        if arm.diverged is not None:
            found = arm.diverged
            left, right = record.label(found.left), record.label(found.right)
            lines.append(f"{visible(arm.info.name)} parts at {found.index}: {left} / {right}")
    return "\n".join(lines).rstrip("\n") + "\n"


def write_run(record: RunRecord, screenshot: str, screen: str) -> Sequence[Path]:
    """Everything about a run as files: transcript, events, statistics, a picture of the screen.

    Args:
        screenshot: SVG.
        screen: its name, for the file's.
    Raises:
        OSError: when one cannot be written.
    """
    started = record.started
    run = f"run-{started.run_id}" if started is not None else "no-run"
    texts = {f"{run}-{screen}.svg": screenshot}
    if started is not None:
        texts[f"{run}-transcript.txt"] = transcript(record)
    if record.events:
        texts[f"{run}-events.jsonl"] = trace_text(record.events)
    document = document_of(record)
    if document is not None:
        texts[f"{run}-statistics.json"] = json.dumps(document, allow_nan=False, indent=1) + "\n"
    return [write_export(name, text) for name, text in texts.items()]
