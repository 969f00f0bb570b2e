"""Answers requests about the daemon itself: metrics, and the overview that `top` shows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from hetsched.daemon import commands
from hetsched.daemon.limits.log_limiter import LogLimiter
from hetsched.daemon.metrics.process_gauges import (
    arena_metrics,
    device_metrics,
    loop_metrics,
    process_metrics,
)
from hetsched.daemon.router import Router
from hetsched.device import DeviceInfo
from hetsched.transport.arena import Arena
from hetsched.transport.inspection.metric_records import Metric, counter
from hetsched.transport.loop import Loop
from hetsched.transport.messages import Answer, DeviceActivity, MetricList, Overviewed, Reply


class InspectedEngine(Protocol):
    """What is read of the engine."""

    def devices(self) -> tuple[tuple[DeviceInfo, ...], dict[str, str]]: ...

    def restricted_devices(self) -> dict[str, str]: ...

    def activities(self) -> tuple[DeviceActivity, ...]: ...


class Inspector:
    """Completes what the core knows of jobs. Lives on the loop's thread.

    Parameters
    ----------
    rejected : LogLimiter
        Of requests that couldn't be decoded.
    """

    def __init__(
        self,
        engine: InspectedEngine,
        arena: Arena,
        loop: Loop,
        router: Router,
        rejected: LogLimiter,
    ) -> None:
        self._engine = engine
        self._arena = arena
        self._loop = loop
        self._router = router
        self._rejected = rejected
        self.journal_metrics: Callable[[], list[Metric]] = list

    def executors(self) -> dict[type, Callable[[Any], None]]:
        """Return the function for each type of command."""
        return {
            commands.CollectMetrics: self._collect_metrics,
            commands.CollectOverview: self._collect_overview,
        }

    def _collect_metrics(self, command: commands.CollectMetrics) -> None:
        metrics = (
            *command.metrics,
            *device_metrics(*self._engine.devices()),
            *arena_metrics(self._arena),
            *self._router.metrics(),
            counter(
                "hetsched_rejected_requests",
                "Frames that weren't requests, which were dropped.",
                self._rejected.total,
            ),
            *loop_metrics(self._loop.longest_callback),
            *process_metrics(command.uptime),
            *self.journal_metrics(),
        )
        self._reply(command, MetricList(metrics))

    def _collect_overview(self, command: commands.CollectOverview) -> None:
        devices, absent = self._engine.devices()
        overview = msgspec.structs.replace(
            command.overview,
            devices=devices,
            absent=absent,
            restricted=self._engine.restricted_devices(),
            activities=self._engine.activities(),
            arena_used=self._arena.used,
            arena_limit=self._arena.limit,
        )
        self._reply(command, Overviewed(overview))

    def _reply(
        self, command: commands.CollectMetrics | commands.CollectOverview, answer: Answer
    ) -> None:
        self._router.send(command.identity, Reply(command.number, answer))
