"""An emulated device without a link: a core whose computations last as long as told."""

from __future__ import annotations

import time

from hetsched.config import DeviceConfig
from hetsched.device import Chunk
from hetsched.devices.base import DeviceJob
from hetsched.devices.emulated.costs import Costs
from hetsched.devices.slots import SlotMap

BACK_TO_BACK = 500e-6
"""Seconds. A computation that begins so soon after the last one's modelled end counts from there:
oversleeping and sending are the emulation's, and must not add up. Arbitrary."""


class _ModelledPace:
    def __init__(self, config: DeviceConfig) -> None:
        self._config = config
        self._costs: Costs | None = None

    def begin(self, job: DeviceJob | None) -> None:
        self._costs = None
        if job is not None:
            self._costs = Costs(self._config, job, SlotMap((), {}, job.demand))

    def busy(self) -> float | None:
        return None  # modelled time passes whoever else uses the core

    def _seconds(self, chunk: Chunk) -> float:
        assert self._costs is not None
        return self._costs.seconds("compute", chunk.id, chunk.count)


class RealPace(_ModelledPace):
    """Sleeps until the modelled end; work that outlasts it is late."""

    _free = 0.0

    def now(self) -> float:
        now = time.monotonic()
        return self._free if 0 <= now - self._free < BACK_TO_BACK else now

    def computed(self, chunk: Chunk, start: float) -> tuple[float, int]:
        end = start + self._seconds(chunk)
        rest = end - time.monotonic()
        if rest > 0:
            time.sleep(rest)
        else:
            end = time.monotonic()
        self._free = end
        return end, int(rest < 0)


class VirtualPace(_ModelledPace):
    """Computes the time; it starts at 0 with each job."""

    _now = 0.0

    def begin(self, job: DeviceJob | None) -> None:
        super().begin(job)
        self._now = 0.0

    def now(self) -> float:
        return self._now

    def computed(self, chunk: Chunk, start: float) -> tuple[float, int]:
        self._now = start + self._seconds(chunk)
        return self._now, 0
