"""The clocks of an emulated core (a device without a link): computations take modelled time."""

from __future__ import annotations

import threading
import time

from hetsched.config import DeviceConfig
from hetsched.device import Chunk
from hetsched.devices.base import DeviceJob, IterativeJob
from hetsched.devices.cpu.stages import StageClock
from hetsched.devices.emulated.costs import ModelledCosts
from hetsched.devices.emulated.stage_clock import stage_clock
from hetsched.errors import InternalError

MAX_BACK_TO_BACK_SECONDS = 500e-6
"""A computation that begins so soon after the previous one's modelled end counts from that end:
oversleeping and sending are artefacts of the emulation and must not add up. Arbitrary."""


class _ModelledCoreClock:
    def __init__(self, config: DeviceConfig) -> None:
        self._config = config
        self._costs: ModelledCosts | None = None

    def begin(self, job: DeviceJob | None) -> None:
        self._costs = None if job is None else ModelledCosts(self._config, job)

    def busy_seconds(self) -> float | None:
        return None  # modelled time passes, whatever else uses the core

    def stage_clock(self, job: IterativeJob) -> StageClock:
        return stage_clock(self._config, job)

    def _seconds(self, chunk: Chunk) -> float:
        assert self._costs is not None
        return self._costs.seconds("compute", chunk.id, chunk.count)


class _ModelledCore:
    """An emulated core, which computes one chunk at a time, whichever job it belongs to."""

    def __init__(self) -> None:
        self._end = 0.0
        self._lock = threading.Lock()

    def compute(self, start: float, seconds: float) -> float:
        """Return the end of a computation that begins at `start` or when the core is free."""
        with self._lock:
            self._end = max(start, self._end) + seconds
            return self._end


class RealCoreClock(_ModelledCoreClock):
    """A clock that sleeps until the modelled end; work that takes longer is late."""

    _last_end = 0.0

    def __init__(self, config: DeviceConfig, core: _ModelledCore | None = None) -> None:
        super().__init__(config)
        self._core = core or _ModelledCore()

    def now(self) -> float:
        now = time.monotonic()
        is_back_to_back = 0 <= now - self._last_end < MAX_BACK_TO_BACK_SECONDS
        return self._last_end if is_back_to_back else now

    def end_of(self, chunk: Chunk, start: float) -> tuple[float, int]:
        end = self._core.compute(start, self._seconds(chunk))
        remaining = end - time.monotonic()
        if remaining > 0:
            time.sleep(remaining)
        else:
            end = time.monotonic()
        self._last_end = end
        return end, int(remaining < 0)

    def beside(self) -> RealCoreClock:
        return RealCoreClock(self._config, self._core)


class VirtualCoreClock(_ModelledCoreClock):
    """A clock with computed time, which starts at 0 with each job."""

    _now = 0.0

    def begin(self, job: DeviceJob | None) -> None:
        super().begin(job)
        self._now = 0.0

    def now(self) -> float:
        return self._now

    def end_of(self, chunk: Chunk, start: float) -> tuple[float, int]:
        self._now = start + self._seconds(chunk)
        return self._now, 0

    def beside(self) -> VirtualCoreClock:
        raise InternalError("the times of a virtual clock are those of one job")
