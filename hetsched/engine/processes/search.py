"""Looks for missing devices again, on request: a driver may have been loaded since."""

from __future__ import annotations

import logging
from collections.abc import Callable

from hetsched.config import Config
from hetsched.devices.probe import probe
from hetsched.devices.process_spec import Probe
from hetsched.engine.processes.fleet import Fleet
from hetsched.engine.threads import Pool, Step

log = logging.getLogger(__name__)


def search_devices(
    config: Config, fleet: Fleet, threads: Pool, on_done: Callable[[], None]
) -> None:
    """Start missing devices that are there now, and processes that failed to; then call back.

    In a thread: probing takes tens of milliseconds and may hang in a driver.
    """

    def work(step: Step) -> Probe:
        step.enter("probing the devices of the configuration")
        return probe(config)

    def on_probed(found: Probe | None, error: BaseException | None) -> None:
        try:
            if found is None:
                log.warning("devices can't be probed: %s", error)
                return
            if names := fleet.update(found):
                log.info("new devices: %s", ", ".join(names))
            fleet.retry_abandoned()
        finally:
            on_done()

    threads.submit(work, on_probed)
