"""The public boundary: an engine is what was loaded; a run is an iterator of events.

Front ends see this module, `engine.settings`, `engine.events` and `engine.process`, never a tensor.
`engine.load` makes engines from files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from engine import events as ev
from engine.costs import CostRequest, measure
from engine.decode import Control, Stamp
from engine.parts import Parts
from engine.run import Conversation, Report, Run, render
from engine.settings import EngineFiles, Prompt, RunRequest


def ignore(event: ev.Event) -> None:
    """No one looks at progress."""


def load_engine(files: EngineFiles, report: Report = ignore) -> Engine:
    """Load a target and its drafters.

    Args:
        report: takes a `LoadProgress` per step.
    Raises:
        Ds4Error: for files that cannot be loaded or do not fit each other.
    """
    # Everything heavy is behind this import.
    from engine.load import load_parts

    return Engine(load_parts(files, report), files)


class Engine:
    """A loaded target with its drafters, and the last conversation held with it."""

    def __init__(self, parts: Parts, files: EngineFiles) -> None:
        self._parts = parts
        self._files = files
        self._conversation = Conversation()

    def ready(self) -> ev.EngineReady:
        """What was loaded."""
        parts = self._parts
        return ev.EngineReady(
            *Stamp("", -1)(),
            parts.files,
            parts.block_size,
            next(iter(parts.gates.values()), 0.0),
            parts.no_repeat,
            parts.context,
            parts.load_ns,
            tuple((path, d.block_size, parts.gates[path]) for path, d in parts.drafters.items()),
        )

    def render(self, prompt: Prompt) -> list[ev.Event]:
        """The ids that a first turn becomes, and their text."""
        ids = render(self._parts, prompt)
        rendered = ev.PromptRendered(*Stamp("", -1)(), prompt.text, tuple(ids))
        return list(self._with_text("", [rendered]))

    def run(
        self, request: RunRequest, control: Control | None = None, report: Report = ignore
    ) -> Iterator[ev.Event]:
        """All events of one run; steps are taken as the iterator is advanced.

        Args:
            control: stops the run or turns its knobs; its limit and knobs are set here.
            report: takes the progress of what happens between two events.
        Raises:
            Ds4Error: for what cannot be run, at once or before the first event; for a failure,
                later.
        """
        control = control or Control(0)
        run = Run(self._parts, self._files, self._conversation, request, control, report)
        return self._with_text(run.run_id, run.events())

    def costs(
        self, request: CostRequest, report: Report = ignore, control: Control | None = None
    ) -> Iterator[ev.CostMeasured]:
        """What steps cost, measured outside of any run.

        Args:
            report: takes the progress of each turn.
            control: ends it after the turn in progress.
        """
        stamp, control = Stamp("", -1), control or Control(0)

        def progress(done: int, total: int) -> bool:
            report(ev.LoadProgress(*stamp(), "measuring", done, total))
            control.checkpoint()
            return control.stopped or control.cancelled

        rounding = self._files.kv_rounding
        return measure(self._parts, request, stamp, kv_rounding=rounding, progress=progress)

    def _with_text(self, run_id: str, events: Iterable[ev.Event]) -> Iterator[ev.Event]:
        """The same events, each new id's bytes before the first event that names it."""
        token_bytes = self._parts.tokenizer.token_bytes
        known: set[int] = {-1}
        for event in events:
            new = sorted(set(_named(event)) - known)
            if new:
                known.update(new)
                entries = tuple((token, token_bytes(token)) for token in new)
                yield ev.TokenText(run_id, -1, event.t_ns, entries)
            yield event


def _named(event: ev.Event) -> list[int]:
    """Every id that an event names; -1 is none."""
    match event:
        case ev.RunStarted():
            noise = (arm.noise_id for arm in event.arms)
            return [*event.prompt_ids, event.noise_id, event.eos_id, *noise]
        case ev.PromptRendered():
            return list(event.prompt_ids)
        case ev.TokensCommitted():
            return [*event.ids, *(token for row in event.top for token, _ in row)]
        case ev.CycleFinished():
            drafted = (*event.drafts, *event.drafts_unbiased, event.anchor, event.bonus)
            return [*drafted, *event.verify_ids, *event.replay_ids]
        case ev.Diverged():
            return [event.left, event.right]
        case _:
            return []
