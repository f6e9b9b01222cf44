"""The result of a matrix as JSON, schema `ds4tui.matrix/1`, made from the events alone.

Owns the document's fields and what makes a matrix as required; `ds4tui.matrix_text` draws it. The
two rules of `ds4tui.report` hold here too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field

from ds4tui.report import Document, RunEvents, ab_document
from engine import stats
from engine.events import CycleFinished, Event, RunFinished, RunStarted, StateDrift
from engine.verdict import must_be_identical

SCHEMA = "ds4tui.matrix/1"
SHORT = 400
"""Identity at this many tokens is reported beside that of the whole run."""
TIMES = ("prefill", "decode", "draft", "verify", "replay", "commit")


@dataclass(slots=True)
class _Entry:
    """One run: all policies of one numerics on one prompt."""

    document: Document
    prompt_index: int
    numerics: str
    token_ns: list[list[float]]
    compared: dict[int, int]
    cycles: dict[int, int]

    @property
    def plain(self) -> Document:
        """Arm 0."""
        return self.document["arms"][0]  # type: ignore[no-any-return]


@dataclass(slots=True)
class MatrixReport:
    """Takes a matrix's events in order, keeps what the document needs.

    Args:
        labels: a name per prompt.
    """

    labels: Sequence[str]
    _entries: list[_Entry] = field(default_factory=list)
    _events: list[Event] = field(default_factory=list)
    _compared: Counter[int] = field(default_factory=Counter)

    def feed(self, event: Event) -> None:
        """Take the next event."""
        if isinstance(event, StateDrift):  # many, and only their number is needed
            self._compared[event.arm] += 1
            self._events += [event] if stats.differs(event) else []
            return
        self._events.append(event)
        if isinstance(event, RunFinished):
            self._take()

    def _take(self) -> None:
        events, self._events = self._events, []
        run = RunEvents.of(events)
        started = next(event for event in events if isinstance(event, RunStarted))
        cycles = Counter(event.arm for event in events if isinstance(event, CycleFinished))
        self._entries.append(
            _Entry(
                ab_document([run]),
                started.prompt_index,
                started.cell,
                [arm.token_ns for arm in run.arms],
                dict(self._compared),
                dict(cycles),
            )
        )
        self._compared.clear()

    def document(self, *, wall_s: float, cpu_s: float, complete: bool) -> Document | None:
        """Everything so far, None before the first run's end; `complete`: no run is missing."""
        if not self._entries:
            return None
        first = self._entries[0].document
        cells = [
            _cell(entries, arm) for entries in self._by_numerics() for arm in _dspark(entries[0])
        ]
        required = [cell for cell in cells if cell["must_be_identical"]]
        verdicts = [cell["as_required"] for cell in required]
        known: bool | None = True if complete and None not in verdicts else None
        shared = {k: v for k, v in first["settings"].items() if k not in _PER_CELL}
        return {
            "schema": SCHEMA,
            "environment": first["environment"],
            "model": first["model"],
            "drafter": first["drafter"],
            "settings": shared,
            "wall_s": wall_s,
            "cpu_s": cpu_s,
            "complete": complete,
            "as_required": False if False in verdicts else known,
            "required": _count(required),
            "may_diverge": _count([cell for cell in cells if not cell["must_be_identical"]]),
            "cells": cells,
            "plain": [_plain(entries) for entries in self._by_numerics()],
            "prompts": [self._prompt(index) for index in self._indexes()],
            "withheld": _withheld(self._entries),
        }

    def _by_numerics(self) -> list[list[_Entry]]:
        names = dict.fromkeys(entry.numerics for entry in self._entries)
        return [[entry for entry in self._entries if entry.numerics == name] for name in names]

    def _indexes(self) -> list[int]:
        return list(dict.fromkeys(entry.prompt_index for entry in self._entries))

    def _prompt(self, index: int) -> Document:
        """One prompt: what plain said in each numerics, and every cell's arm."""
        entries = [entry for entry in self._entries if entry.prompt_index == index]
        plain = {entry.numerics: entry.plain for entry in entries}
        return {
            "label": self.labels[index],
            "category": entries[0].document["category"],
            **entries[0].document["prompt"],
            "plain": {name: _kept(arm, "ids") for name, arm in plain.items()},
            "numerics_part_at": _parts_at([arm["ids"] for arm in plain.values()]),
            "runs": [
                {"cell": _name(entry, arm), **_kept(entry.document["arms"][arm])}
                for entry in entries
                for arm in _dspark(entry)
            ],
        }


_PER_CELL = ("numerics", "commit", "confidence")
_KEPT = (
    "ids_sha256", "finish_reason", "tokens_per_s", "speedup", "time_ms", "cycles", "mean_depth",
    "accept_rate", "state_equal", "smallest_margin", "identical_kind", "first_divergence",
)  # fmt: skip


def _kept(arm: Document, *more: str) -> Document:
    return {name: arm[name] for name in (*more, *_KEPT)}


def _dspark(entry: _Entry) -> list[int]:
    arms = entry.document["arms"]
    return [i for i, arm in enumerate(arms) if arm["kind"] == "dspark" and arm["role"] == "arm"]


def _name(entry: _Entry, arm: int) -> str:
    return f"{entry.numerics} {entry.document['arms'][arm]['name']}"


def _parts_at(ids: Sequence[Sequence[int]]) -> int | None:
    """First index at which the numerics' plain ids differ, None when they do not."""
    if len(ids) < 2:
        return None
    pairs = enumerate(zip(ids[0], ids[1], strict=False))
    shorter = min(len(ids[0]), len(ids[1]))
    end = None if len(ids[0]) == len(ids[1]) else shorter
    return next((i for i, (a, b) in pairs if a != b), end)


def _same(entry: _Entry, arm: int, tokens: int | None = None) -> bool:
    left, right = entry.plain["ids"], entry.document["arms"][arm]["ids"]
    return bool(left[:tokens] == right[:tokens])


def _plain(entries: Sequence[_Entry]) -> Document:
    """Plain decode of one numerics over all prompts."""
    return {"numerics": entries[0].numerics, "prompts": len(entries), **_work(entries, 0)}


def _work(entries: Sequence[_Entry], arm: int) -> Document:
    """Speed over all prompts, never without the hash of all their ids in order."""
    arms = [entry.document["arms"][arm] for entry in entries]
    spent = sum(sum(entry.token_ns[arm]) for entry in entries)
    decoded = sum(max(0, len(a["ids"]) - 1) for a in arms)
    return {
        "ids_sha256": stats.ids_sha256([token for a in arms for token in a["ids"]]),
        "tokens_per_s": stats.ratio(decoded * 1e9, spent),
        "time_ms": {name: sum(a["time_ms"][name] for a in arms) for name in TIMES},
    }


def _cell(entries: Sequence[_Entry], arm: int) -> Document:
    """One cell over all prompts."""
    head = entries[0].document["arms"][arm]
    settings = entries[0].document["settings"]
    arms = [entry.document["arms"][arm] for entry in entries]
    same = [_same(entry, arm) for entry in entries]
    must = must_be_identical(
        entries[0].numerics,
        head["commit"],
        perturbed=settings["perturb"] is not None,
        pinned=bool(settings["pin"]),
    )
    equal = _state_equal(entries, arm)
    return {
        "name": _name(entries[0], arm),
        "numerics": entries[0].numerics,
        **{name: head[name] for name in ("commit", "confidence", "draft_max", "drafter")},
        "must_be_identical": must,
        "as_required": _as_required(same, equal, entries) if must else None,
        "prompts": len(entries),
        "identical": sum(same),
        "identical_at_400": sum(_same(entry, arm, SHORT) for entry in entries)
        if settings["max_tokens"] > SHORT
        else None,
        "state_equal": equal,
        "cycles": sum(a["cycles"] for a in arms),
        "compared": sum(entry.compared.get(arm, 0) for entry in entries),
        **_divergences(entries, arm),
        **_work(entries, arm),
        "speedup": _speedup(entries, arm, all(same)),
        "replay_ms": sum(a["time_ms"]["replay"] for a in arms),
        "mean_depth": stats.ratio(
            sum(max(0, len(a["ids"]) - 1) for a in arms), sum(a["cycles"] for a in arms)
        ),
        "accept_rate": stats.ratio(
            sum(a["accepted_draft"] for a in arms), sum(a["proposed"] for a in arms)
        ),
    }


def _state_equal(entries: Sequence[_Entry], arm: int) -> bool | None:
    """Whether states were equal after every cycle of every prompt; None = not all compared."""
    found = [entry.document["arms"][arm] for entry in entries]
    if any(a["state_equal"] is False or a["first_divergence"] for a in found):
        return False
    # One comparison before the first cycle and one after each.
    seen = all(
        entry.compared.get(arm, 0) == entry.cycles.get(arm, 0) + 1
        for entry in entries
        if entry.plain["ids"]
    )
    return True if seen and all(a["state_equal"] for a in found if a["ids"]) else None


def _as_required(
    same: Sequence[bool], state_equal: bool | None, entries: Sequence[_Entry]
) -> bool | None:
    """Identical ids and, where states were compared, equal states; None = a verdict is withheld."""
    if not all(same) or state_equal is False:
        return False
    return None if any(entry.document["identical"] is None for entry in entries) else True


def _divergences(entries: Sequence[_Entry], arm: int) -> Document:
    """Of all prompts: the earliest, how many by cause and by verdict, the largest margin."""
    found = [
        {"prompt_index": entry.prompt_index, **divergence}
        for entry in entries
        if (divergence := entry.document["arms"][arm]["first_divergence"])
    ]
    ulps = [d["margin_ulps"] for d in found if d["margin_ulps"] is not None]
    return {
        "first_divergence": min(found, key=lambda d: d["index"], default=None),
        "causes": dict(Counter(d["cause"] or "not compared" for d in found)),
        "verdicts": dict(Counter(d["verdict"] for d in found)),
        "logic_errors": sum(d["logic_error"] for d in found),
        "largest_margin_ulps": max(ulps, default=None),
    }


def _speedup(entries: Sequence[_Entry], arm: int, same: bool) -> Document | None:
    found = stats.speedup(
        [entry.token_ns[0] for entry in entries], [entry.token_ns[arm] for entry in entries]
    )
    if found is None:
        return None
    return {**asdict(found), "resolved": found.resolved, "different_work": not same}


def _count(cells: Sequence[Document]) -> Document:
    return {
        "cells": len(cells),
        "runs": sum(cell["prompts"] for cell in cells),
        "identical": sum(cell["identical"] for cell in cells),
        "cycles": sum(cell["cycles"] for cell in cells),
    }


def _withheld(entries: Iterable[_Entry]) -> str:
    return next((e.document["withheld"] for e in entries if e.document["withheld"]), "")


def exit_code(document: Document) -> int:
    """0 as required, 1 a cell that must be identical is not, 2 a verdict is withheld."""
    return {True: 0, False: 1, None: 2}[document["as_required"]]
