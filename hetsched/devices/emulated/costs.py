"""Configured costs of an emulated device's operations, and its random stalls."""

from __future__ import annotations

import random

from hetsched.config import Cost, DeviceConfig
from hetsched.devices.base import DeviceJob

STALL_FACTOR = 20.0
"""Factor by which a stall lengthens an operation."""


class ModelledCosts:
    """Modelled seconds of the operations of one job.

    Phases are "h2d", "compute", "d2h", and "host_overhead", the processor time that driving the
    device takes, which delays no operation.

    Parameters
    ----------
    config : DeviceConfig
    job : DeviceJob
    input_bytes, output_bytes : int
        Bytes copied per unit.
    """

    def __init__(
        self, config: DeviceConfig, job: DeviceJob, input_bytes: int = 0, output_bytes: int = 0
    ) -> None:
        self._costs = {
            "h2d": config.h2d,
            "compute": config.compute,
            "d2h": config.d2h,
            "host_overhead": config.host_overhead,
        }
        self._bytes = {"h2d": input_bytes, "d2h": output_bytes}
        self._job = job
        self._seed = config.seed
        self._stall_chance = config.stalls
        self._computed: dict[tuple[str, int], float] = {}

    def seconds(self, phase: str, chunk: int, units: int) -> float:
        """Return one operation's seconds. Whether it stalls doesn't depend on earlier ones."""
        seconds = self._computed.get((phase, units))
        if seconds is None:
            seconds = self._computed[phase, units] = self._modelled(phase, units)
        if self._stall_chance > 0:
            draw = random.Random(f"{self._seed}/{chunk}/{phase}").random()
            return seconds * STALL_FACTOR if draw < self._stall_chance else seconds
        return seconds

    def host_overhead(self, units: int) -> float | None:
        """Return modelled seconds of processor time; None if not configured."""
        if self._costs["host_overhead"] is None:
            return None
        return self._modelled("host_overhead", units)

    def _modelled(self, phase: str, units: int) -> float:
        cost: Cost | None = self._costs[phase]
        if cost is None:
            return 0.0
        flops = self._job.workload.flops(self._job.params, units) / units
        return cost.seconds(units, self._bytes.get(phase, 0), flops)
