"""What a run waits for: answers of threads and of devices, and how long."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from hetsched.engine.context import EngineContext
from hetsched.engine.threads import Step
from hetsched.errors import Cancelled, from_record, to_record

T = TypeVar("T")
OnDone = Callable[[Any, BaseException | None], None]


@dataclass(frozen=True, slots=True)
class DeviceWait:
    """A wait for a device."""

    since: float  # The start, or the last progress
    seconds: float  # The longest wait from then on
    reason: str  # Why the device is killed after that
    is_behind: bool = True  # Others wait for it, not it for others

    @property
    def end(self) -> float:
        return self.since + self.seconds


Waits = Callable[[float], Mapping[str, DeviceWait]]
"""waits(now): device -> what is awaited from it."""


def no_waits(now: float) -> Mapping[str, DeviceWait]:
    return {}


class PendingAnswers:
    """Counts of pending answers by device.

    Parameters
    ----------
    devices : iterable of str
        One entry per answer expected.
    since : float, seconds
        When the answers were requested.
    """

    def __init__(self, devices: Iterable[str], since: float) -> None:
        self._counts: dict[str, int] = {}
        for device in devices:
            self._counts[device] = self._counts.get(device, 0) + 1
        self._since = dict.fromkeys(self._counts, since)

    def __bool__(self) -> bool:
        return bool(self._counts)

    def answered(self, device: str, now: float) -> None:
        self._since[device] = now
        count = self._counts.get(device, 0)
        if count > 1:
            self._counts[device] = count - 1
        else:
            self._counts.pop(device, None)

    def progressed(self, device: str, now: float) -> None:
        self._since[device] = now

    def restart(self, now: float) -> None:
        """Count the time of all waits from `now` on."""
        self._since = dict.fromkeys(self._counts, now)

    def drop(self, devices: Iterable[str]) -> None:
        """Expect no further answers from `devices`."""
        for device in devices:
            self._counts.pop(device, None)

    def waits(self, seconds: float, reason: str) -> dict[str, DeviceWait]:
        return {d: DeviceWait(self._since[d], seconds, reason) for d in self._counts}


async def answer_of(begin: Callable[[OnDone], object]) -> Any:
    """Return what `begin` passes to its callback, perhaps at once; raises the error it passes."""
    future = asyncio.get_running_loop().create_future()

    def on_done(value: Any, error: BaseException | None) -> None:
        if future.done():  # the job was cancelled meanwhile
            return
        if error is None:
            future.set_result(value)
        elif isinstance(error, Exception) and not isinstance(error, StopIteration):
            future.set_exception(error)
        else:  # a future refuses these, and a task would end the loop with them
            future.set_exception(from_record(to_record(error)))

    begin(on_done)
    return await future


class HeldTask:
    """Releases what a task of the pool uses once its thread can't use it any more.

    The pool may answer a task that it never starts, and one whose thread hangs.

    `release`: called once, on the loop's thread.
    """

    def __init__(self, context: EngineContext, release: Callable[[], None]) -> None:
        self._context = context
        self._release = release
        self._lock = threading.Lock()
        self._has_begun = self._is_given_up = False

    def run(self, function: Callable[[Step], T], step: Step) -> T:
        """Run `function` in the task's thread. Raises Cancelled if the task has been answered."""
        with self._lock:
            if self._is_given_up:
                raise Cancelled("given up before it began")
            self._has_begun = True
        try:
            return function(step)
        finally:
            with contextlib.suppress(RuntimeError):  # the loop has ended, and with it the arena
                self._context.loop.call_soon_threadsafe(self._release)

    def answered(self) -> None:
        """Note that the pool has answered the task. On the loop's thread."""
        with self._lock:
            is_unused = not (self._has_begun or self._is_given_up)
            self._is_given_up = True
        if is_unused:
            self._release()


def submit_held(
    context: EngineContext,
    function: Callable[[Step], Any],
    on_done: OnDone,
    release: Callable[[], None],
    deadline: float,
) -> None:
    """Run `function` in a thread of the pool; `release` what it uses once it can't use it."""
    task = HeldTask(context, release)

    def answered(value: Any, error: BaseException | None) -> None:
        task.answered()
        on_done(value, error)

    context.disk.submit(lambda step: task.run(function, step), answered, deadline=deadline)
