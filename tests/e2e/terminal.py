"""A tmux window that a test types into and looks at. Waits on what is shown, with a deadline."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

DEADLINE = 30.0
"""Seconds after which a condition counts as never met; usually it holds within one."""
POLL = 0.03


class Terminal:
    """One tmux server with one window, of its own socket and configuration.

    Args:
        folder: for the socket and what is sent.
        size: columns and rows.
    """

    def __init__(self, folder: Path, size: tuple[int, int] = (80, 24)) -> None:
        self._socket = str(folder / "tmux")
        self._bytes = folder / "bytes"
        environment = {**os.environ, "TERM": "tmux-256color", "LC_ALL": "C.UTF-8"}
        environment["XDG_DATA_HOME"] = str(folder / "data")
        environment["XDG_CONFIG_HOME"] = str(folder / "config")
        environment["XDG_STATE_HOME"] = str(folder / "state")
        environment.pop("TMUX", None)
        width, height = map(str, size)
        command = ["new-session", "-d", "-x", width, "-y", height, "-s", "t", "sh"]
        self._tmux("-f", "/dev/null", *command, environment=environment)
        self._tmux("set-option", "-g", "window-size", "manual")
        self.resize(*size)

    def _tmux(self, *arguments: str, environment: dict[str, str] | None = None) -> str:
        done = subprocess.run(
            ["tmux", "-S", self._socket, *arguments],
            capture_output=True,
            text=True,
            check=True,
            env=environment,
            timeout=DEADLINE,
        )
        return done.stdout

    def run(self, *arguments: str) -> None:
        """Start `ds4tui` with arguments; its exit status is printed behind it."""
        command = shlex.join([sys.executable, "-m", "ds4tui", *arguments])
        self.type(f"clear; echo before; {command}; echo status=$?")
        self.press("Enter")

    def type(self, text: str) -> None:
        """Type characters as they are."""
        self._tmux("send-keys", "-t", "t", "-l", text)

    def press(self, *keys: str) -> None:
        """Press keys by tmux's names."""
        self._tmux("send-keys", "-t", "t", *keys)

    def send(self, data: bytes) -> None:
        """Send bytes as they are, in one write."""
        self._bytes.write_bytes(data)
        self._tmux("load-buffer", str(self._bytes))
        self._tmux("paste-buffer", "-d", "-r", "-t", "t")

    def resize(self, columns: int, rows: int) -> None:
        """Give the window another size."""
        self._tmux("resize-window", "-t", "t", "-x", str(columns), "-y", str(rows))

    def rows(self, attributes: bool = False) -> list[str]:
        """What is shown, row by row."""
        extra = ["-e"] if attributes else []
        return self._tmux("capture-pane", "-p", *extra, "-t", "t").split("\n")

    def wait(
        self, holds: Callable[[list[str]], bool], what: str, seconds: float = DEADLINE
    ) -> list[str]:
        """The screen once a condition holds.

        Raises:
            AssertionError: with the last screen, when it never does.
        """
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            rows = self.rows()
            if holds(rows):
                return rows
            time.sleep(POLL)
        raise AssertionError(f"never shown: {what}\n" + "\n".join(self.rows()))

    def wait_for(self, text: str, seconds: float = DEADLINE) -> list[str]:
        """The screen once it contains a text."""
        return self.wait(lambda rows: any(text in row for row in rows), text, seconds)

    def engine_pid(self) -> int:
        """Process id of the engine that the interface started."""
        shell = int(self._tmux("display-message", "-p", "-t", "t", "#{pane_pid}"))
        listing = subprocess.run(
            ["ps", "-ww", "-eo", "pid=,ppid=,command="], capture_output=True, text=True, check=True
        ).stdout
        parents: dict[int, int] = {}
        engines: list[int] = []
        for line in listing.splitlines():
            pid, parent, command = line.split(None, 2)
            parents[int(pid)] = int(parent)
            if "spawn_main" in command:
                engines.append(int(pid))
        for pid in engines:
            above = pid
            while above in parents:
                above = parents[above]
                if above == shell:
                    return pid
        raise AssertionError("no engine process\n" + listing)

    def close_window(self) -> None:
        """Take the terminal away from what runs in it."""
        self._tmux("kill-session", "-t", "t")

    def close(self) -> None:
        """End the server and what runs in it."""
        subprocess.run(["tmux", "-S", self._socket, "kill-server"], check=False)
