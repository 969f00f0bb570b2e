"""Looks for missing devices again: on request, and after 1, 2, 4, ... minutes.

An optional GPU may appear when its driver is loaded; a process that failed to start may succeed
later. Probing takes tens of milliseconds and may hang in a driver, so it runs in a thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from hetsched.config import Config
from hetsched.devices.probe import probe
from hetsched.devices.process_spec import Probe
from hetsched.engine.health.failure_tally import bar_seconds
from hetsched.engine.processes.fleet import Fleet
from hetsched.engine.threads.step import Step
from hetsched.engine.threads.worker_pool import WorkerPool
from hetsched.transport.loop import Loop
from hetsched.transport.timers import Timer

log = logging.getLogger(__name__)


class DeviceSearch:
    """Completes a fleet with devices of its configuration that were missing."""

    def __init__(self, config: Config, fleet: Fleet, threads: WorkerPool, loop: Loop) -> None:
        self._config = config
        self._fleet = fleet
        self._threads = threads
        self._loop = loop
        self._timer: Timer | None = None
        self._searches = 0

    def schedule(self) -> None:
        """Search later if a device is missing, unless that is already planned."""
        if self._timer is None and self._fleet.absent:
            self._timer = self._loop.call_later(bar_seconds(self._searches), self._on_time)

    def search(self, on_done: Callable[[], None]) -> None:
        """Search now, then call back: devices that were found are starting."""

        def on_probed(result: Probe | None, error: BaseException | None) -> None:
            try:
                if result is None:
                    log.warning("devices can't be probed: %s", error)
                else:
                    self._use(result)
            finally:
                on_done()  # or nothing would search again

        self._threads.submit(self._probe, on_probed)

    def close(self) -> None:
        """Cancel the next search."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _probe(self, step: Step) -> Probe:
        step.enter("probing the devices of the configuration")
        return probe(self._config)

    def _use(self, result: Probe) -> None:
        names = self._fleet.update(result)
        if names:
            log.info("new devices: %s", ", ".join(names))
            self._searches = 0
        self._fleet.retry_abandoned()

    def _on_time(self) -> None:
        self._timer = None
        self._searches += 1
        self.search(self.schedule)
