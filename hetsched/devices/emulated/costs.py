"""Configured costs of an emulated device's operations, and its random stalls."""

from __future__ import annotations

import random

from hetsched.config import Cost, DeviceConfig
from hetsched.devices.base import DeviceJob

STALL_FACTOR = 20.0
"""Factor by which a stall lengthens an operation."""


class ModelledCosts:
    """Modelled seconds of the operations of one job.

    Phases are "h2d", "compute" and "d2h".

    Parameters
    ----------
    config : DeviceConfig
    job : DeviceJob
    """

    def __init__(self, config: DeviceConfig, job: DeviceJob) -> None:
        self._costs = {
            "h2d": config.h2d,
            "compute": config.compute,
            "d2h": config.d2h,
        }
        self._job = job
        self._seed = config.seed
        self._stall_chance = config.stalls
        self._computed: dict[tuple[str, int, int], float] = {}

    def seconds(self, phase: str, number: int, units: int, nbytes: int = 0) -> float:
        """Return the seconds of an operation, which copies `nbytes`.

        Whether it stalls depends on its number, not on earlier ones.
        """
        key = (phase, units, nbytes)
        seconds = self._computed.get(key)
        if seconds is None:
            seconds = self._computed[key] = self._modelled(*key)
        if self._stall_chance > 0:
            draw = random.Random(f"{self._seed}/{number}/{phase}").random()
            return seconds * STALL_FACTOR if draw < self._stall_chance else seconds
        return seconds

    def _modelled(self, phase: str, units: int, nbytes: int) -> float:
        cost: Cost | None = self._costs[phase]
        if cost is None:
            return 0.0
        flops = self._job.workload.flops(self._job.params, units) / units
        return cost.seconds(units, nbytes / units, flops)
