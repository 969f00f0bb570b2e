"""The deadlines of one running device process: its hello, its silence, its end after a kill.

A process that is stopped, or whose driver hangs, sends nothing and uses no processor time. One
that computes for long, even without answering, is left to the deadlines of its job. As long as it
is prepared for a job it is watched, whatever it has sent: one of its devices may have answered
just before it was stopped, and others not.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from hetsched.engine.deadlines import Deadlines
from hetsched.engine.processes.device_process import DeviceProcess
from hetsched.transport.device_messages import (
    Command,
    CommandBatch,
    Fence,
    Ping,
    Prepare,
    Release,
)
from hetsched.transport.loop import Loop, Timer
from hetsched.units import format_seconds


class ProcessWatch:
    """Watches one process, on the loop's thread.

    Parameters
    ----------
    on_overdue : callable
        Called with the reason when the process should be killed.
    """

    def __init__(
        self,
        process: DeviceProcess,
        loop: Loop,
        deadlines: Deadlines,
        on_overdue: Callable[[str], None],
    ) -> None:
        self._process = process
        self._loop = loop
        self._deadlines = deadlines
        self._on_overdue = on_overdue
        self._prepared: set[tuple[int, int]] = set()
        """Jobs and devices that it was prepared for, and hasn't been told to release."""
        self._silent_since: float | None = None
        """When the first command since its last message was sent; or, while it is prepared for a
        job, when it sent its last message."""
        self._ping_ticks: int | None = None
        """Its processor time when it was sent a ping in this silence."""
        self._silence_timer: Timer | None = None
        self._timer: Timer | None = loop.call_later(deadlines.start, self._on_no_hello)
        """Of its hello, then of its end."""

    def on_hello(self) -> None:
        """Stop waiting for its hello."""
        self._cancel_timer()

    def on_sent(self, command: Command) -> None:
        """Expect a sign of life after a command."""
        for part in command.commands if isinstance(command, CommandBatch) else (command,):
            if isinstance(part, Prepare):
                self._prepared.add((part.job, part.device))
            elif isinstance(part, Release | Fence):
                self._prepared.discard((part.job, part.device))
        if self._silent_since is None:
            self._expect_life()

    def on_received(self) -> None:
        """Note a message of the process."""
        self._silent_since = self._ping_ticks = None
        if self._prepared:
            self._expect_life()

    def _expect_life(self) -> None:
        self._silent_since = time.monotonic()
        if self._silence_timer is None:
            self._check_in(self._deadlines.chunk / 2)

    def expect_end(self, on_stuck: Callable[[], None]) -> None:
        """Call `on_stuck` unless the killed process ends in time."""
        self.close()
        self._timer = self._loop.call_later(self._deadlines.exit, on_stuck)

    def close(self) -> None:
        """Cancel all timers. Idempotent."""
        self._cancel_timer()
        if self._silence_timer is not None:
            self._silence_timer.cancel()
            self._silence_timer = None

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check_in(self, seconds: float) -> None:
        self._silence_timer = self._loop.call_later(seconds, self._check_silence)

    def _check_silence(self) -> None:
        """Send a ping after half the time; after all of it, the process is overdue."""
        self._silence_timer = None
        if self._silent_since is None:
            return
        allowed = self._deadlines.chunk
        silent = time.monotonic() - self._silent_since
        if silent < allowed / 2:
            self._check_in(allowed / 2 - silent)
        elif self._ping_ticks is None:
            self._ping_ticks = self._process.processor_ticks()
            self._check_in(max(allowed - silent, allowed / 4))
            self._process.send(Ping())
        elif silent < allowed:
            self._check_in(allowed - silent)
        elif self._process.processor_ticks() > self._ping_ticks:
            self._silent_since, self._ping_ticks = time.monotonic(), None
            self._check_in(allowed / 2)
        else:
            self._on_overdue(f"no sign of life for {format_seconds(allowed)} (deadlines.chunk)")

    def _on_no_hello(self) -> None:
        self._timer = None
        self._on_overdue(
            f"its devices weren't open after {format_seconds(self._deadlines.start)}"
            " (deadlines.start)"
        )
