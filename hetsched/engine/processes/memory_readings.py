"""How much memory jobs may use on devices whose memory other processes use too.

Before a plan, a device whose last reading isn't recent is asked again. The plan doesn't wait long
for the answer: an old value at worst makes the device report that it is out of memory, and the job
is planned again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from hetsched.transport.loop import Loop
from hetsched.transport.timers import Timer

MAX_AGE_SECONDS = 1.0
"""Age up to which a reading is used without asking again. Arbitrary."""
ANSWER_SECONDS = 0.05
"""Time that a plan waits for an answer, which mostly takes less than a millisecond."""
MAX_SHORTAGE_BYTES = 64 << 20
"""A reading that is lower by less changes nothing: the device's reserve is larger."""
MAX_UNUSED_FRACTION = 1 / 16
"""A reading that is higher by less changes nothing: with each change, all plans are dropped."""


def steady_memory(previous: int | None, reading: int) -> int:
    """Return the bytes to plan with: `previous`, unless `reading` is clearly different. Pure."""
    if previous is None:
        return reading
    most = previous + max(MAX_SHORTAGE_BYTES, int(MAX_UNUSED_FRACTION * previous))
    return previous if previous - MAX_SHORTAGE_BYTES <= reading <= most else reading


@dataclass(eq=False)
class _Wait:
    """A plan that waits for the answers of `devices`."""

    devices: set[str]
    callback: Callable[[], None]
    timer: Timer | None = None


class MemoryReadings:
    """When devices were read last, and the plans that wait for answers.

    Parameters
    ----------
    ask : callable
        Asks a device, whose answer is passed to `on_reading`.
    """

    def __init__(self, loop: Loop, ask: Callable[[str], None]) -> None:
        self._loop = loop
        self._ask = ask
        self._read_at: dict[str, float] = {}
        self._asked_at: dict[str, float] = {}
        """Of devices that haven't answered yet."""
        self._waits: list[_Wait] = []

    def on_reading(self, device: str) -> None:
        """Note an answer, also one that wasn't asked for."""
        self._read_at[device] = time.monotonic()
        self._forget_question(device)

    def on_end(self, devices: Iterable[str]) -> None:
        """Expect no answers from devices whose process has ended."""
        for device in devices:
            self._read_at.pop(device, None)
            self._forget_question(device)

    def refresh(self, devices: Iterable[str], callback: Callable[[], None]) -> None:
        """Call back once no reading is old, or after ANSWER_SECONDS; at once if none is."""
        now = time.monotonic()
        old = {
            device
            for device in devices
            if now - self._read_at.get(device, float("-inf")) > MAX_AGE_SECONDS
        }
        for device in old - self._asked_at.keys():
            self._asked_at[device] = now
            self._ask(device)
        # One that has been silent for longer may hang: no further plan waits for it.
        awaited = {name for name in old if now - self._asked_at[name] < ANSWER_SECONDS}
        if not awaited:
            callback()
            return
        wait = _Wait(awaited, callback)
        wait.timer = self._loop.call_later(ANSWER_SECONDS, lambda: self._end(wait))
        self._waits.append(wait)

    def _forget_question(self, device: str) -> None:
        if self._asked_at.pop(device, None) is None:
            return
        for wait in list(self._waits):
            wait.devices.discard(device)
            if not wait.devices:
                self._end(wait)

    def _end(self, wait: _Wait) -> None:
        if wait in self._waits:
            self._waits.remove(wait)
            if wait.timer is not None:
                wait.timer.cancel()
            wait.callback()
