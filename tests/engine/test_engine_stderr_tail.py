"""The last lines of a device process, and the report of a crash."""

from __future__ import annotations

import io

from hetsched.engine.processes.stderr_tail import KEPT_LINES, MAX_LINE_BYTES, StderrTail

CRASH = b"""Fatal Python error: Segmentation fault

Thread 0x00007f0000000001 (most recent call first):
  File "/lib/threading.py", line 359 in wait

Current thread 0x00007f00000000aB (most recent call first):
  File "/lib/ctypes/__init__.py", line 519 in string_at
  File "/home/me/kernel.py", line 3 in kernel

Extension modules: numpy (total: 1)
"""


def tail_of(text: bytes) -> StderrTail:
    tail = StderrTail(io.BytesIO(text))
    tail.join(60)
    return tail


def test_the_last_line_is_the_summary() -> None:
    assert tail_of(b"first\nlast\n\n").summary() == "last"
    assert tail_of(b"").summary() == ""


def test_the_thread_and_the_place_of_a_crash_are_recognised() -> None:
    tail = tail_of(CRASH)

    assert tail.crashed_thread == 0x7F00000000AB
    assert tail.summary() == 'File "/lib/ctypes/__init__.py", line 519 in string_at'


def test_memory_is_bounded() -> None:
    tail = tail_of(b"x" * 100_000 + b"\n" + b"line\n" * 100)

    assert tail.crashed_thread is None
    assert len(tail._lines) == KEPT_LINES
    assert len(tail_of(b"x" * 100_000).summary()) <= MAX_LINE_BYTES
