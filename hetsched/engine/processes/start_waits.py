"""Callbacks that wait until processes have started."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from hetsched.engine.processes.hosted_process import HostedProcess

log = logging.getLogger(__name__)


class StartWaits:
    """Calls back when conditions on processes become true."""

    def __init__(self) -> None:
        self._waiting: list[tuple[Callable[[], bool], Callable[[], None]]] = []

    def call_when(self, is_time: Callable[[], bool], callback: Callable[[], None]) -> None:
        """Call `callback` once ``is_time()``, possibly at once."""
        if is_time():
            callback()
        else:
            self._waiting.append((is_time, callback))

    def recheck(self) -> None:
        """Check all conditions after a process has started or ended.

        An exception in one callback doesn't keep the others waiting.
        """
        waiting, self._waiting = self._waiting, []
        for is_time, callback in waiting:
            try:
                self.call_when(is_time, callback)
            except Exception:
                log.exception("unexpected error after the start or end of a device process")


def have_started_or_failed(hosts: Iterable[HostedProcess]) -> bool:
    """Return whether each process is or was ready, or has failed to start once."""
    return all(host.was_ready or host.failed_starts > 0 or host.is_unusable for host in hosts)


def is_settled(hosts: Iterable[HostedProcess], *, with_restarts: bool = False) -> bool:
    """Return whether it is certain which of these processes are usable.

    `with_restarts`: also of those that restart while others are ready.
    """
    if with_restarts:
        return not any(host.is_starting for host in hosts)
    hosts = [host for host in hosts if not host.on_demand]
    if any(host.is_ready for host in hosts):
        return have_started_or_failed(hosts)
    return all(host.is_unusable for host in hosts)
