"""What operations of an emulated device cost, by its configuration; and random stalls."""

from __future__ import annotations

import random

from hetsched.config import Cost, DeviceConfig
from hetsched.devices.base import DeviceJob
from hetsched.devices.slots import SlotMap

STALL = 20.0
"""A stalled operation lasts so many times as long."""


class Costs:
    """Modelled seconds of the operations of one job; phases are "h2d", "compute", "d2h".

    And "host_overhead": processor time that nothing waits for.
    """

    def __init__(self, config: DeviceConfig, job: DeviceJob, slots: SlotMap) -> None:
        self._costs = {
            "h2d": config.h2d,
            "compute": config.compute,
            "d2h": config.d2h,
            "host_overhead": config.host_overhead,
        }
        self._bytes = {"h2d": slots.input_bytes, "d2h": slots.output_bytes}
        self._job = job
        self._seed = config.seed
        self._stalls = config.stalls
        self._known: dict[tuple[str, int], float] = {}

    def seconds(self, phase: str, chunk: int, units: int) -> float:
        """Of one operation. The stall of a chunk's phase doesn't depend on what ran before."""
        seconds = self._known.get((phase, units))
        if seconds is None:
            seconds = self._known[phase, units] = self._modelled(phase, units)
        if self._stalls > 0:
            draw = random.Random(f"{self._seed}/{chunk}/{phase}").random()
            return seconds * STALL if draw < self._stalls else seconds
        return seconds

    def host_overhead(self, units: int) -> float | None:
        """Modelled seconds of processor time; None: not configured."""
        return (
            None
            if self._costs["host_overhead"] is None
            else self._modelled("host_overhead", units)
        )

    def _modelled(self, phase: str, units: int) -> float:
        cost: Cost | None = self._costs[phase]
        if cost is None:
            return 0.0
        flops = self._job.workload.flops(self._job.params, units) / units
        return cost.seconds(units, self._bytes.get(phase, 0), flops)
