"""A comparison as Markdown for a maintainer: everything that is needed to see and repeat it.

Made from the JSON document, by `ab --report` and by the interface alike. Text of models,
prompts and files is untrusted: control characters are glyphs and nothing is read as markup, so the
file is safe to print.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import Any

from ds4tui.ab_text import (
    IDENTITY,
    WORK,
    counts,
    findings,
    heading,
    identity_rows,
    markdown_categories,
    number,
    small,
    verdict,
    work_rows,
)
from ds4tui.markdown_text import escaped, markdown_table
from ds4tui.options import embedded_hashes
from ds4tui.report import Document, exit_code
from ds4tui.unusual_settings import is_usual
from engine.events import TIME_KINDS
from engine.settings import OF_ARMS
from engine.text import visible


def markdown(
    documents: Sequence[Document],
    categories: Sequence[Document] = (),
    of_set: str = "",
    *,
    missing: int = 0,
) -> str:
    """One report on all prompts of a comparison.

    Args:
        categories: the set's figures by category, as in the JSON document of a set.
        of_set: how the whole set went when the documents are only some of it.
        missing: prompts that were asked for and not finished.
    """
    end = f"{missing} not finished" if missing else f"exit code {exit_code(documents)}"
    lines = ["# ds4tui ab", "", f"{counts(documents)} ({end})", ""]
    lines += [escaped(of_set), ""] if of_set else []
    lines += markdown_categories(categories)
    for document in documents:
        lines += _prompt(document)
    lines += _setting(documents[0])
    return "\n".join(lines)


def _prompt(document: Document) -> Iterator[str]:
    """What was found on one prompt, and the command that finds it again."""
    yield from (f"## {escaped(heading(document))}", "", f"**{escaped(verdict(document))}**", "")
    yield from markdown_table(IDENTITY, identity_rows(document))
    yield from markdown_table(WORK, work_rows(document))
    yield from (f"- {escaped(line.strip())}" for line in findings(document))
    yield from (f"- {line}" for line in _drifts(document))
    yield ""
    dspark = [arm for arm in _compared(document) if arm["cycles"]]
    if dspark:
        deepest = max(len(arm["depth_hist"]) for arm in dspark)
        columns = ["cycles by depth", *(str(depth) for depth in range(1, deepest + 1)), "mean"]
        yield from markdown_table(columns, [_depths(arm, deepest) for arm in dspark])
    rows = [[arm["name"], *_times(arm)] for arm in document["arms"] if arm["role"] == "arm"]
    yield from markdown_table(["engine ms", *TIME_KINDS, "a token"], rows)
    ids = document["prompt"]["ids"]
    yield from (f"Prompt ids ({len(ids)}): {' '.join(map(str, ids))}", "")
    yield from ("Again, with the same files:", "", f"    {command(document)}", "")
    yield from (f"- {escaped(line)}" for line in _limits(document))
    yield ""


def _drifts(document: Document) -> Iterator[str]:
    """The first drift of every arm whose ids parted, as numbers."""
    for arm in document["arms"]:
        found = arm["first_divergence"]
        drift = found["first_drift"] if found else None
        if drift:
            is_sampled = arm["states_compared"] < arm["state_boundaries"]
            seen = "difference found" if is_sampled else "drift"
            since = f"{'at least ' if is_sampled else ''}{found['index'] - drift['position']}"
            where = f"layer {drift['layer']} {escaped(drift['tensor'])}"
            size = small(drift["max_abs"])
            yield (
                f"{escaped(arm['name'])}: first {seen} at {drift['position']}, {where}, max abs "
                f"{size}, {since} tokens before the ids part"
            )


def _depths(arm: Document, deepest: int) -> list[str]:
    found = arm["depth_hist"]
    cycles = [str(found.get(str(depth), 0)) for depth in range(1, deepest + 1)]
    cycles[0] = f"{arm['no_draft']}+{arm['first_rejected']}"
    return [arm["name"], *cycles, number(arm["mean_depth"])]


def _times(arm: Document) -> list[str]:
    spent = arm["time_ms"]
    decoded = max(1, len(arm["ids"]) - 1)
    each = sum(spent[kind] for kind in TIME_KINDS[1:]) / decoded
    return [*(number(spent[kind], 1) for kind in TIME_KINDS), number(each)]


def _limits(document: Document) -> Iterator[str]:
    """Where the command does not repeat everything."""
    if document["prompt"].get("cached"):
        yield "A follow-up turn of a conversation; the command runs its prompt as a first turn."
    for change in document.get("changes", ()):
        what = ", ".join(f"{name} {value}" for name, value in change["settings"].items())
        where = f"cycle {change['cycle']} of {document['arms'][change['arm']]['name']}"
        yield f"Turned during the run, which the command leaves out: {what} at {where}."
    if any(arm["kind"] == "recorded" for arm in document["arms"]):
        yield "Recorded arms: give their files with --against."


def _setting(document: Document) -> Iterator[str]:
    """Files, machine and settings, the same for all prompts."""
    yield from ("## Files", "")
    files = [("model", document["model"])]
    files += [("drafter", file) for file in document["drafters"] or [None]]
    for role, file in files:
        if file is None:
            yield f"- {role}: none"
            continue
        name = escaped(PurePath(file["path"]).name)
        size = f"{file['size']} bytes, {file['parameters']} parameters"
        if file["drafted"]:
            size += f", drafts from {file['drafted']} tokens"
        architecture = escaped(file["architecture"])
        yield f"- {role}: {name} ({escaped(file['name'])}, {architecture}, {size})"
        yield f"  - sha256 {file['sha256'] or 'not computed: the file is large'}"
        mix = [f"{kind} {tensors} tensors {size} bytes" for kind, tensors, size in _mix(file)]
        yield f"  - {escaped(', '.join(mix)) if mix else 'quantisation mix unknown'}"
    yield from ("", "## Machine and versions", "")
    yield from markdown_table(["", ""], [list(pair) for pair in document["environment"].items()])
    yield from ("## Settings", "")
    settings = document["settings"].items()
    rows = [[name, _word(value)] for name, value in settings if name not in OF_ARMS]
    for arm in _compared(document):
        knobs = [f"{name} {_word(arm[name])}" for name in OF_ARMS]
        rows.append([f"arm {arm['name']}", ", ".join(knobs)])
    yield from markdown_table(["", ""], rows)


def _mix(file: Document) -> list[tuple[str, int, int]]:
    return [tuple(part) for part in file.get("quantisation") or ()]


def _word(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None else str(value)


def command(document: Document) -> str:
    """`ds4tui ab ...` that runs the same again, safe to paste into a POSIX shell."""
    settings, prompt = document["settings"], document["prompt"]
    words = ["ds4tui", "ab", *_files(document), *_given("-p", prompt["text"])]
    if settings.get("system"):
        words += _given("--system", str(settings["system"]))
    switches = {
        "--no-chat": not settings.get("chat", True),
        "--think": settings.get("think"),
        "--control-tokens": settings.get("control_tokens"),
        "--ignore-eos": settings.get("ignore_eos"),
        "--no-markov": not settings.get("markov", True),
        "--controls": settings.get("controls"),
    }
    words += [switch for switch, is_on in switches.items() if is_on]
    words += ["-n", str(settings["max_tokens"]), "--numerics", str(settings["numerics"])]
    words += _arms(document)
    for name, option in _OPTIONS.items():
        value = settings.get(name)
        if value is not None and (name in _OF_FILES or not is_usual(name, value)):
            words += [option, ",".join(value) if isinstance(value, list) else str(value)]
    return " ".join(quoted(word) for word in words)


_OPTIONS = {
    "no_repeat": "--no-repeat",
    "near_tie_ulps": "--near-tie",
    "digest_every": "--digests",
    "batch_ops": "--batch-ops",
    "pin": "--pin",
    "perturb": "--perturb",
    "seed": "--seed",
    "kv_rounding": "--kv-rounding",
    "context": "--ctx",
    "threads": "--threads",
    "device": "--device",
}
"""Settings that the command needs where they are not as usual."""
_OF_FILES = ("no_repeat", "context")
"""Settings that it always needs: their defaults are the target file's."""


def _given(option: str, value: str) -> list[str]:
    """An option and its value, as one word where the value would be taken for an option."""
    return [f"{option}={value}"] if value.startswith("-") else [option, value]


def _files(document: Document) -> list[str]:
    model, drafter = document["model"], document["drafter"]
    if model is None or (drafter is not None and _is_embedded(model)):
        return []
    words = _given("-m", model["path"])
    return [*words, *_given("--mtp", drafter["path"])] if drafter else words


def _is_embedded(file: Document) -> bool:
    """The same bytes as a file of the embedded pair, whatever its path is."""
    return file["sha256"] in embedded_hashes()


def _arms(document: Document) -> list[str]:
    """`--commit` with its knobs, or one `--arm` each when there are several."""
    arms = _compared(document)
    if len(arms) == 1 and not _is_other(arms[0]["drafter"], document):
        words = ["--commit", arms[0]["commit"]]
        if arms[0]["confidence"] is not None:
            words += ["--dspark-confidence", repr(arms[0]["confidence"])]
        if arms[0]["draft_max"] is not None:
            words += ["--draft-max", str(arms[0]["draft_max"])]
        return words
    words = []
    for arm in arms:
        parts = {
            "commit": arm["commit"],
            "confidence": None if arm["confidence"] is None else repr(arm["confidence"]),
            "draft-max": arm["draft_max"],
            "mtp": arm["drafter"] if _is_other(arm["drafter"], document) else None,
        }
        words += ["--arm", ",".join(f"{k}={v}" for k, v in parts.items() if v is not None)]
    return words


def _compared(document: Document) -> list[Document]:
    """The DSpark arms, without controls."""
    return [arm for arm in document["arms"] if (arm["kind"], arm["role"]) == ("dspark", "arm")]


def _is_other(drafter: str | None, document: Document) -> bool:
    """Another drafter than an arm has that names none: that of `_files`, else the embedded one."""
    if not drafter:
        return False
    if not _files(document):
        files = [file for file in document["drafters"] if file["path"] == drafter]
        return not any(map(_is_embedded, files))
    return drafter != (document["drafter"] or {}).get("path")


def quoted(word: str) -> str:
    """A word for a POSIX shell; one with control characters in bash's `$'...'` form."""
    if visible(word, keep="") == word:
        return shlex.quote(word)
    shown = "".join(
        char if visible(char, keep="") == char and char not in "'\\" else _escape(char)
        for char in word
    )
    return f"$'{shown}'"


def _escape(char: str) -> str:
    code = ord(char)
    if char in "'\\":
        return f"\\{char}"
    if 0xDC80 <= code <= 0xDCFF:  # a byte that was no UTF-8
        return f"\\x{code - 0xDC00:02x}"
    named = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}.get(char)
    return named or (f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}")
