"""The last lines that a device process has written to stderr, read in a thread.

The report of Python's faulthandler about a crash also names the thread that crashed, and so the
device. The rest of such a report is of no use to users.
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections import deque
from typing import IO

KEPT_LINES = 8
_CRASHED_THREAD = re.compile(rb"Current thread 0x([0-9a-fA-F]+)")
_FRAME = re.compile(rb'\s+File ".*", line \d+ in ')
MAX_LINE_BYTES = 2000
"""The rest of a longer line is dropped, so that memory is bounded. Arbitrary."""


class StderrTail:
    """Reads `stream` to its end.

    Attributes
    ----------
    crashed_thread : int or None
        `threading.get_ident()` of the thread that crashed.
    """

    def __init__(self, stream: IO[bytes]) -> None:
        self.crashed_thread: int | None = None
        self._crash_frame = ""
        self._lines: deque[str] = deque(maxlen=KEPT_LINES)
        self._stream = stream
        self._thread = threading.Thread(target=self._read, name="stderr", daemon=True)
        self._thread.start()

    @property
    def has_ended(self) -> bool:
        """Whether the process, and all that inherited its stderr, have closed it."""
        return not self._thread.is_alive()

    def append(self, line: str) -> None:
        """Add a line, as if the process had written it."""
        self._lines.append(line)

    def join(self, seconds: float) -> None:
        """Wait for the end of the stream."""
        self._thread.join(seconds)

    def summary(self) -> str:
        """Return the place of a crash, or the last line; "" if there is none."""
        lines = [line.strip() for line in self._lines if line.strip()]
        return self._crash_frame or (lines[-1] if lines else "")

    def _read(self) -> None:
        with contextlib.closing(self._stream):
            while line := self._stream.readline(MAX_LINE_BYTES):
                self._note_crash(line)
                self._lines.append(line.decode("utf-8", "replace").rstrip())

    def _note_crash(self, line: bytes) -> None:
        thread = _CRASHED_THREAD.match(line)
        if thread:
            self.crashed_thread = int(thread[1], 16)
        elif self.crashed_thread is not None and not self._crash_frame and _FRAME.match(line):
            self._crash_frame = line.decode("utf-8", "replace").strip()
