"""What must not hurt: long runs, small memory, a terminal that goes away, sizes that change."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path

import pytest
from textual import events as keys

from benchmarks.long_stream import long_run
from ds4tui import hangup
from ds4tui.commands import Palette
from ds4tui.run_record import IDS_KEPT, RUNS_KEPT, RunRecord, newest_of
from ds4tui.run_state import RunState
from ds4tui.widgets.token_lines import Token, TokenLines
from engine.events import Event, RunFailed
from engine.trace import TraceWriter, read_trace
from tests.ds4tui import streams
from tests.ds4tui.harness import READY, FakeLink, make_app, make_controller, settle


def scripted(tokens: int, run_id: str = "long") -> list[Event]:
    return [event for step in long_run(run_id, tokens) for event in step]


def test_a_long_run_grows_by_little_per_token() -> None:
    """Everything that a pane and the screens keep of both arms; the bound is twice that."""
    record, panes = RunRecord(), [TokenLines(58), TokenLines(58)]
    held = []
    tracemalloc.start()
    for number, step in enumerate(long_run("long", 6_000)):
        for event in step:
            record.feed(event)
        for arm, lines in zip(record.arms, panes, strict=False):
            known = range(len(lines), len(arm.ids))
            lines.append([Token(arm.texts[n], arm.sources[n]) for n in known])
        if number in (3_000, 5_500):
            record.pack()  # how many of the newest items are not packed yet is by chance
            held.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    assert (held[1] - held[0]) / 2_500 < 600
    assert record.arms[1].top[0][0][0] == record.arms[1].ids[0], "the first tokens can be read"


def test_only_so_many_runs_and_ids_stay() -> None:
    def run(ids: int) -> RunRecord:
        record = RunRecord()
        for event in streams.until(streams.diverged_run(), 5):
            record.feed(event)
        record.arms[0].ids.extend(range(ids))
        return record

    small = [run(10) for _ in range(RUNS_KEPT + 5)]
    assert newest_of(small) == small[5:]
    large = [run(IDS_KEPT // 2 + 1) for _ in range(4)]
    assert newest_of(large) == large[3:]
    assert newest_of([run(2 * IDS_KEPT)]) != []


async def test_keys_are_answered_while_tokens_pour_in() -> None:
    """The bound is loose: the measured figure is in benchmarks/interface.md."""
    steps = list(long_run("poured", 3000))
    link = FakeLink((READY,))
    controller = make_controller(link=link)
    app = make_app(controller)
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        for step in steps[:2000]:
            link.waiting += step
        await settle(pilot, lambda: len(app.playground.left.lines) > 1900)
        left = app.playground.left
        await pilot.press("g")
        worst = 0.0
        for at in range(2000, 2900, 30):
            for step in steps[at : at + 30]:
                link.waiting += step
            before, start = left.cursor, time.perf_counter()
            app.post_message(keys.Key("l", "l"))
            app.drain()
            while left.cursor == before:
                await asyncio.sleep(0)
            worst = max(worst, time.perf_counter() - start)
        assert worst < 2.0
        for step in steps[2900:]:
            link.waiting += step
        await settle(pilot, lambda: controller.state is RunState.DONE)
        assert [len(pane.lines) for pane in (left, app.playground.right)] == [3000, 3000]


async def test_every_screen_survives_a_tiny_terminal_and_comes_back() -> None:
    controller = make_controller(streams.diverged_run())
    app = make_app(controller)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot, lambda: controller.state is RunState.DONE)
        for key in "7654321":
            await pilot.press(key)
            for size in ((40, 10), (20, 5), (80, 24)):
                await pilot.resize_terminal(*size)
                await settle(pilot)
        assert app.playground.left.parting == 163
        assert len(app.playground.left.lines) == 400


@pytest.mark.parametrize("size", [(80, 24), (20, 3), (10, 2), (1, 1)])
async def test_the_palette_survives_every_key_in_a_tiny_terminal(size: tuple[int, int]) -> None:
    controller = make_controller(streams.diverged_run())
    app = make_app(controller)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot, lambda: controller.state is RunState.DONE)
        await pilot.press("ctrl+p")
        await pilot.resize_terminal(*size)
        assert isinstance(app.screen, Palette)
        await pilot.press("pagedown", "pageup", "ctrl+home", "ctrl+end", "down", "up")
        await pilot.press("escape")
        await settle(pilot, lambda: not isinstance(app.screen, Palette))


async def test_a_dead_engine_leaves_the_text_and_can_be_started_again() -> None:
    part = streams.until(streams.diverged_run(), 100)
    link = FakeLink((READY,), part, streams.renamed(streams.identical_run(), "again"))
    controller = make_controller(link=link)
    app = make_app(controller)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot, lambda: controller.state is RunState.DECODING)
        link.is_alive = False
        link.waiting += [RunFailed("run-1", -1, 0, "Engine process ended", "By signal 9.", "")]
        await settle(pilot, lambda: controller.state is RunState.FAILED)
        assert len(app.playground.left.lines) > 90
        await pilot.press("r")
        await settle(pilot, lambda: controller.state is RunState.DONE)
        assert len(app.playground.left.lines) == 400


def test_a_trace_on_a_full_disk_ends_with_one_notice(tmp_path: Path) -> None:
    writer = TraceWriter(str(tmp_path / "t.jsonl"))
    written: list[int] = []

    class Full:
        """A file on a disk that fills up."""

        def write(self, text: str) -> int:
            written.append(len(text))
            raise OSError(28, "No space left on device")

        def flush(self) -> None:
            pass

    writer._file.close()
    writer._file = Full()  # type: ignore[assignment]
    controller = make_controller(streams.diverged_run())
    controller._recorder = writer.write
    controller.start()
    notices = [n for _ in range(3) for n in controller.drain().notices]
    assert len([text for _, text in notices if "No space left" in text]) == 1
    assert controller.state is RunState.DONE
    assert len(written) == 1
    assert read_trace(str(tmp_path / "t.jsonl")) == []


def test_a_terminal_that_is_gone_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def size(descriptor: int) -> os.terminal_size:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "get_terminal_size", size)
    assert hangup.terminal_is_gone()
    monkeypatch.setattr(os, "get_terminal_size", lambda descriptor: os.terminal_size((80, 24)))
    assert not hangup.terminal_is_gone()


@pytest.mark.parametrize(("group", "found"), [(["setpgid"], "True"), ([], "False")])
def test_only_a_shell_that_controls_jobs_can_resume(group: list[str], found: str) -> None:
    # Such a shell gives every job a group of its own; a script leaves it in the script's.
    code = (
        "import os, sys\nif sys.argv[1:]: os.setpgid(0, 0)\n"
        "from ds4tui.hangup import shell_can_resume\nprint(shell_can_resume())"
    )
    words = [sys.executable, "-c", code, *group]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == found
