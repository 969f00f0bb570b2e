from __future__ import annotations

import contextlib
import itertools
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from served import PATIENCE, Daemon, Place, serving, until

NUMBERS = itertools.count()
"""Of terminals: a server of tmux that ends still has its socket for a moment."""
DEVICES = """
[[device]]
kind = "emulated"
clock = "real"
compute = { unit = "100ms" }
"""
TOP = f"{sys.executable} -m hetsched.cli.main top; echo code $?"
SHELL = f"{TOP}; stty -a | tr ';' '\\n'; cat"

pytestmark = pytest.mark.skipif(
    shutil.which("tmux") is None, reason="tmux is missing (Debian: apt-get install tmux)"
)


class Terminal:
    """A terminal of 80x24 that runs `hetsched top` in a shell."""

    def __init__(self, place: Place, shell: str = SHELL) -> None:
        self._socket = str(place.folder / f"tmux{next(NUMBERS)}")
        variables = {"TERM": "xterm-256color", "LANG": "C.UTF-8", "COLUMNS": ""}
        self._environment = place.environment | variables
        self._tmux("-f", "/dev/null", "new-session", "-d", "-x", "80", "-y", "24", shell)

    def press(self, *keys: str) -> None:
        self._tmux("send-keys", *keys)

    def resize(self, width: int, height: int) -> None:
        self._tmux("resize-window", "-x", str(width), "-y", str(height))

    def screen(self) -> str:
        return self._tmux("capture-pane", "-p").rstrip("\n")

    def until(self, pattern: str) -> str:
        """Wait until the screen matches; return it."""
        found = until(lambda: re.search(pattern, self.screen(), re.MULTILINE), pause=0.1)
        return str(found.string)

    def pid_of_top(self) -> int:
        shell = int(self._tmux("display-message", "-p", "#{pane_pid}"))
        processes = [psutil.Process(shell), *psutil.Process(shell).children(recursive=True)]
        return next(p.pid for p in processes if p.cmdline()[-1:] == ["top"])

    def modes(self) -> str:
        """Whether the cursor is visible, and whether the alternate screen is shown."""
        return self._tmux("display-message", "-p", "#{cursor_flag} #{alternate_on}").strip()

    def close(self) -> None:
        self._tmux("kill-server")

    def _tmux(self, *words: str) -> str:
        done = subprocess.run(
            ["tmux", "-S", self._socket, *words],
            check=False,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        return done.stdout


@pytest.fixture
def terminal(daemon: Daemon) -> Iterator[Terminal]:
    opened = Terminal(daemon)
    yield opened
    opened.close()


def test_running_and_waiting_jobs_are_shown(daemon: Daemon, terminal: Terminal) -> None:
    with daemon.client() as client:
        running = client.submit("fft", batch="600x16x16")
        client.submit("fft", batch="1x16x16", label="next", hold=True)
        shown = terminal.until(r"^1 .*computing \d+/600")
        assert re.search(r"^emu0 +1 +\S+ +\[[#-]{10}\] +\d+/600", shown, re.MULTILINE)
        assert re.search(r"^2 +0 +fft \(next\) +queued +held", shown, re.MULTILINE)
        client.cancel_all()
        terminal.until(r"0 running, 0 waiting")
        assert running.cancelled()


@pytest.mark.parametrize(
    ("end", "code"), [("q", 0), ("C-c", 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_the_terminal_is_restored(terminal: Terminal, end: str | int, code: int) -> None:
    terminal.until(r"^hetsched, .*0 waiting")
    terminal.resize(200, 50)
    terminal.until(r"\A(.*\n){49}q quit\Z")  # tmux may lose lines of one that it resizes
    if isinstance(end, str):
        terminal.press(end)
    else:
        os.kill(terminal.pid_of_top(), end)
    terminal.until(rf"^code {code}$")

    screen = terminal.until(r"\biexten\b")
    assert {"icanon", "echo", "isig", "iexten"} <= set(screen.split())
    assert terminal.modes() == "1 0"


def test_it_waits_for_the_next_daemon() -> None:
    with serving(DEVICES) as daemon, contextlib.closing(Terminal(daemon)) as terminal:
        terminal.until(r"^hetsched, .*0 waiting")
        daemon.stop()
        terminal.until(r"no daemon|has stopped")
        daemon.start()
        terminal.until(r"^q quit")


def test_without_a_daemon_the_screen_isnt_touched(tmp_path: Path) -> None:
    opened = Terminal(Place(tmp_path), f"{TOP}; cat")
    try:
        shown = opened.until(r"^code 69$")
    finally:
        opened.close()

    assert "error: no daemon" in shown
