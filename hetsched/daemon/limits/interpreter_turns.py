"""How long a thread keeps the interpreter while the loop's thread waits for it.

The loop's thread waits for a turn whenever it wakes up, twice in a small job. With CPython's turns
of 5 ms, a job that comes while the planner's thread learns would take that much longer each time.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

TURN_SECONDS = 0.0005
"""A tenth of CPython's; a switch takes about 10 us. Arbitrary."""


@contextmanager
def short_turns() -> Iterator[None]:
    """Let threads take turns of `TURN_SECONDS`."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(TURN_SECONDS)
    try:
        yield
    finally:
        sys.setswitchinterval(before)
