"""What scripted engine processes do; imported by spawned children."""

from __future__ import annotations

import os
import signal
import sys
from multiprocessing.connection import Connection

from engine.errors import Ds4Error
from engine.events import Notice
from engine.serve import Host
from engine.settings import EngineFiles
from tests.engine.races import engine
from tests.engine.scripted import ScriptedDrafter, ScriptedModel, continuation, path_script

IDS = [2 + i * 7 % 29 for i in range(5000)]


def scripted(commands: Connection, events: Connection, files: EngineFiles) -> None:
    """A whole engine around a scripted target."""
    script = path_script(IDS, 13)
    drafter = ScriptedDrafter(continuation(script))
    Host(commands, events).serve(engine(ScriptedModel(script), drafter))


def failing(commands: Connection, events: Connection, files: EngineFiles) -> None:
    """An engine whose target raises in the middle of a run."""
    script = path_script(IDS, 13)

    class Broken(ScriptedModel):
        def _row(self, state, path):  # type: ignore[no-untyped-def]
            if state.position == 13 + 20:
                raise Ds4Error("Broken", "The twentieth token broke it.", "Do not go there.")
            return super()._row(state, path)

    Host(commands, events).serve(engine(Broken(script), ScriptedDrafter(continuation(script))))


def killed(commands: Connection, events: Connection, files: EngineFiles) -> None:
    """Dies by a signal once it is asked for anything."""
    print("last words on stdout")
    os.write(2, b"last words on stderr\x1b[2J\n")
    events.send([Notice("r7", -1, 1, "info", "alive")])
    commands.recv()
    os.kill(os.getpid(), getattr(signal, "SIGKILL", signal.SIGTERM))


def crashing(commands: Connection, events: Connection, files: EngineFiles) -> None:
    """An unexpected exception outside of any run."""
    sys.stderr.write("about to crash\n")
    raise RuntimeError("no more")
