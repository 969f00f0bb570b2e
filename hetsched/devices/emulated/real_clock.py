"""The real clock: operations really copy and compute, and last until their modelled end.

One thread runs the model of the streams; one thread per engine does the real work. Ends are
absolute deadlines of the model, so a thread that wakes up late delays nothing else. Real work runs
as soon as its dependencies are done, ahead of the model: on a shared core a thread may wait longer
to be scheduled than a copy lasts, and only work that is really too slow should count as late.
"""

from __future__ import annotations

import ctypes
import threading
import time
from queue import SimpleQueue

from hetsched.devices.emulated.streams import Operation, Streams
from hetsched.devices.emulated.virtual_clock import Work

_PR_SET_TIMERSLACK = 29


class RealClock:
    """Runs operations as they are issued. Its threads inherit the cores of its creator."""

    def __init__(self, engines: int, duplex: tuple[float, float]) -> None:
        self._streams = Streams(engines, duplex)
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._ended = threading.Condition(self._lock)
        self._worked = threading.Condition(self._lock)
        self._closing = False
        count = {2: 3, 1: 2, 0: 1}[engines]
        self._queues: list[SimpleQueue[tuple[Operation, Work] | None]] = [
            SimpleQueue() for _ in range(count)
        ]
        self._threads = [threading.Thread(target=self._follow, name="clock", daemon=True)]
        for engine, queue in enumerate(self._queues):
            name = f"engine{engine}"
            self._threads.append(
                threading.Thread(target=self._work, args=(queue,), name=name, daemon=True)
            )
        for thread in self._threads:
            thread.start()

    def reset(self) -> None:
        pass

    def earliest_start(self, after_wait: bool) -> float:
        return time.monotonic()

    def issue(self, operation: Operation, work: Work) -> None:
        operation.ready = False
        with self._lock:
            self._streams.issue(operation)
            self._changed.notify()
        self._queues[self._streams.engine(operation)].put((operation, work))

    def wait(self, operation: Operation) -> None:
        with self._lock:
            while operation.ended is None:
                self._ended.wait()

    def close(self) -> None:
        """End the threads once they have finished their current work."""
        with self._lock:
            self._closing = True
            self._changed.notify()
        for queue in self._queues:
            queue.put(None)
        for thread in self._threads:
            thread.join()

    def _follow(self) -> None:
        precise_sleep()
        with self._lock:
            while not self._closing:
                self._advance(time.monotonic())
                due = self._streams.next_time()
                self._changed.wait(None if due is None else max(0.0, due - time.monotonic()))

    def _advance(self, now: float) -> None:
        if any(ends for _, ends in list(self._streams.advance(now))):
            self._ended.notify_all()

    def _work(self, queue: SimpleQueue[tuple[Operation, Work] | None]) -> None:
        while self._do(queue.get()):
            pass

    def _do(self, item: tuple[Operation, Work] | None) -> bool:
        """Do one piece of real work without keeping a reference; False at the end marker."""
        if item is None:
            return False
        operation, work = item
        with self._lock:
            while not all(dependency.ready for dependency in operation.after):
                self._worked.wait()
        try:
            work.run(work.sources)
        except Exception as error:
            operation.error = error
        with self._lock:
            now = time.monotonic()
            self._advance(now)  # otherwise lateness would depend on which thread runs first
            self._streams.done(operation, now)
            self._worked.notify_all()
            if operation.late:
                self._changed.notify()
        return True


def precise_sleep() -> None:
    """Make the calling thread's timers fire on time rather than up to 50 us late."""
    ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)
