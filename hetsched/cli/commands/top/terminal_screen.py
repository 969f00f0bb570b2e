"""The terminal while `hetsched top` has it: keys unbuffered, the alternate screen, its size."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import termios
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Any

from rich.console import Console, ConsoleDimensions
from rich.live import Live
from rich.text import Text

from hetsched.cli.output.top.keys import keys
from hetsched.cli.output.top.layout import ScreenLine

ESCAPE_SECONDS = 0.02
"""Time for the rest of an escape sequence to arrive. Arbitrary."""
LOCAL_FLAGS = 3
"""Index in the list of tcgetattr."""
SIGNALS = (signal.SIGWINCH, signal.SIGTERM, signal.SIGHUP)


class TerminalScreen:
    """Draws lines and reads keys. Use it in a `with`, which restores the terminal.

    Attributes
    ----------
    received : list of int
        Signals other than SIGWINCH that have arrived.
    """

    def __init__(self) -> None:
        self._input = sys.stdin.fileno()
        self._output = sys.stdout.fileno()
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._stack = contextlib.ExitStack()
        self._console = Console(markup=False, highlight=False, emoji=False)
        self._live = Live(
            console=self._console,
            screen=True,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self.received: list[int] = []

    def __enter__(self) -> TerminalScreen:
        with contextlib.ExitStack() as stack:
            stack.callback(os.close, self._wake_read)
            stack.callback(os.close, self._wake_write)
            stack.enter_context(_handlers(self._on_signal))
            stack.enter_context(_unbuffered(self._input))
            stack.enter_context(self._live)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def size(self) -> tuple[int, int]:
        """Return columns and lines, whatever the variables COLUMNS and LINES say."""
        with contextlib.suppress(OSError):
            size = os.get_terminal_size(self._output)
            if size.columns > 0 and size.lines > 0:
                return size.columns, size.lines
        return 80, 24

    def draw(self, lines: Sequence[ScreenLine], size: tuple[int, int]) -> None:
        """Show `lines`, made for `size`."""
        self._console.size = ConsoleDimensions(*size)
        text = Text("\n", no_wrap=True).join(Text(line.text, line.style) for line in lines)
        self._live.update(text, refresh=True)

    def wake(self) -> None:
        """End a `wait`. Safe from any thread and from signal handlers."""
        with contextlib.suppress(OSError):  # full: it ends anyway
            os.write(self._wake_write, b"\0")

    def wait(self, seconds: float) -> list[str] | None:
        """Wait for keys, `wake`, a signal or the time; return keys, None at the end of input."""
        readable, _, _ = select.select([self._input, self._wake_read], [], [], seconds)
        if self._wake_read in readable:
            with contextlib.suppress(BlockingIOError):
                os.read(self._wake_read, 4096)
        if self._input not in readable:
            return []
        data = self._read()
        return None if not data else list(keys(data))

    def _read(self) -> bytes:
        try:
            data = os.read(self._input, 1024)
            if data.endswith(b"\x1b") and select.select([self._input], [], [], ESCAPE_SECONDS)[0]:
                data += os.read(self._input, 1024)
        except OSError:  # the terminal has gone
            return b""
        return data

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if number != signal.SIGWINCH:
            self.received.append(number)
        self.wake()


@contextlib.contextmanager
def _handlers(handler: Any) -> Iterator[None]:
    previous = {number: signal.signal(number, handler) for number in SIGNALS}
    try:
        yield
    finally:
        for number, function in previous.items():
            signal.signal(number, function)


@contextlib.contextmanager
def _unbuffered(fd: int) -> Iterator[None]:
    """Read each key at once and unechoed; Ctrl-C and Ctrl-Z are keys, too."""
    before = termios.tcgetattr(fd)
    changed = termios.tcgetattr(fd)
    changed[LOCAL_FLAGS] &= ~(termios.ECHO | termios.ICANON | termios.ISIG | termios.IEXTEN)
    try:
        termios.tcsetattr(fd, termios.TCSADRAIN, changed)
        yield
    finally:
        with contextlib.suppress(termios.error):
            termios.tcsetattr(fd, termios.TCSADRAIN, before)
