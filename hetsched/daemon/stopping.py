"""How the daemon stops: a ladder of signals, and a deadline for every step.

SIGTERM and SIGINT: no new jobs; running ones stop after their current chunks. A second one, or the
deadline `stop` of the configuration: the device processes are killed, with the same outcome for
jobs. SIGHUP, when the terminal closes, is a first SIGTERM, however often it comes. SIGQUIT keeps
the kernel's default action, which works even if this process is stuck; the device processes end
with it.
"""

from __future__ import annotations

import contextlib
import enum
import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator

from hetsched.daemon.systemd import ServiceManager
from hetsched.transport.loop import Loop

log = logging.getLogger(__name__)

KILL_SECONDS = 3.0
"""Time for jobs to end after the device processes were killed. Arbitrary."""
STEP_SECONDS = 8.0
"""Time for each step after the loop has ended. Arbitrary."""
EXIT_STUCK = 70
"""Exit status when a step doesn't end: the exit code of a bug."""

Callback = Callable[[], None]


class StopStage(enum.Enum):
    """How far the stop has come."""

    SERVING = "serving"
    DRAINING = "draining"
    KILLING = "killing"
    STOPPED = "stopped"


class StopLadder:
    """Escalates from stage to stage, on signals and on deadlines. Lives on the loop's thread.

    Parameters
    ----------
    drain : callable
        drain(on_drained): accept no more jobs, stop running ones between chunks, then call back.
    kill : callable
        Kill the device processes, for good.
    drain_seconds : float, seconds
        Time for running jobs to reach a chunk boundary. Less than TimeoutStopSec of the unit.
    """

    def __init__(
        self,
        loop: Loop,
        manager: ServiceManager,
        drain: Callable[[Callback], None],
        kill: Callback,
        drain_seconds: float = 60.0,
    ) -> None:
        self._drain_seconds = drain_seconds
        self.stage = StopStage.SERVING
        self._loop = loop
        self._manager = manager
        self._drain, self._kill = drain, kill

    def listen(self) -> None:
        """Handle signals from now on. Only on the main thread."""
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.on_signal(number, self.escalate)
        if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # as nohup sets it
            self._loop.on_signal(signal.SIGHUP, self.start)

    def start(self) -> None:
        """Begin to stop, unless that has begun."""
        if self.stage is not StopStage.SERVING:
            return
        self.stage = StopStage.DRAINING
        log.info("stopping: no new jobs, running jobs stop after their current chunks")
        self._manager.notify("STOPPING=1", "STATUS=stopping: running jobs end their chunks")
        self._loop.call_later(self._drain_seconds, self._on_drain_deadline)
        self._drain(self._stop)

    def escalate(self) -> None:
        """Begin to stop; if that has begun, stop without waiting for chunks."""
        if self.stage is StopStage.SERVING:
            self.start()
        elif self.stage is StopStage.DRAINING:
            self._kill_devices("a second signal")

    def _on_drain_deadline(self) -> None:
        if self.stage is StopStage.DRAINING:
            self._kill_devices(f"chunks still run after {self._drain_seconds:g} s")

    def _kill_devices(self, reason: str) -> None:
        self.stage = StopStage.KILLING
        log.warning("stopping now, killing the device processes: %s", reason)
        self._manager.notify("STATUS=stopping: device processes are killed")
        self._loop.call_later(KILL_SECONDS, self._on_kill_deadline)
        self._kill()

    def _on_kill_deadline(self) -> None:
        if self.stage is StopStage.KILLING:
            log.error("stopping: jobs haven't ended %g s after their devices", KILL_SECONDS)
            self._stop()

    def _stop(self) -> None:
        self.stage = StopStage.STOPPED
        self._loop.stop()


class ExitGuard:
    """Ends this process if a step of the stop takes too long; the log names the step.

    Parameters
    ----------
    last_act : callable
        Called before the exit, from another thread; its exceptions are ignored.
    """

    def __init__(
        self, last_act: Callback = lambda: None, exit_now: Callable[[int], object] = os._exit
    ) -> None:
        self._last_act = last_act
        self._exit_now = exit_now

    @contextlib.contextmanager
    def step(self, name: str, seconds: float = STEP_SECONDS) -> Iterator[None]:
        """Allow the block `seconds`."""
        timer = threading.Timer(seconds, self._expire, (name, seconds))
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def guarded(self, name: str, function: Callback, seconds: float = STEP_SECONDS) -> Callback:
        """Return `function` as a step."""

        def run() -> None:
            with self.step(name, seconds):
                function()

        return run

    def _expire(self, name: str, seconds: float) -> None:
        log.error("stopping: %s hasn't ended after %g s; exiting without it", name, seconds)
        with contextlib.suppress(Exception):
            self._last_act()
        for handler in logging.getLogger("hetsched").handlers:
            with contextlib.suppress(Exception):
                handler.flush()
        self._exit_now(EXIT_STUCK)
