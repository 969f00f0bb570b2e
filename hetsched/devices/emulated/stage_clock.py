"""The clocks of iterations on emulated devices: stages take modelled time.

An iteration takes the modelled seconds of a device that computes its rows; its stages have equal
parts of them, and so do those of the start and of the end. With a link, what other devices read or
write passes over it (`iterations.row_transfers`), and in each iteration the rows that don't fit
into the device's memory. Only the computation in the home arrays is real.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from hetsched.config import Cost, DeviceConfig
from hetsched.devices.base import IterativeJob, StageSeconds
from hetsched.devices.cpu.stages import StageClock
from hetsched.devices.emulated.costs import ModelledCosts
from hetsched.errors import DataError
from hetsched.iterations.home import Part
from hetsched.iterations.row_transfers import RowRange, RowTransfers
from hetsched.workload import Rows, Stage


def stage_clock(config: DeviceConfig, job: IterativeJob) -> StageClock:
    """Return the clock of an emulated device for a job."""
    model = _StageModel(config, job)
    return VirtualStageClock(model) if config.clock == "virtual" else RealStageClock(model)


class _StageModel:
    """The modelled seconds of stages on one device."""

    def __init__(self, config: DeviceConfig, job: IterativeJob) -> None:
        params = job.job.params
        self._costs = ModelledCosts(config, job.job)
        self._numbers = {s.name: n for n, s in enumerate(job.workload.iteration(params))}
        self._h2d, self._d2h = config.h2d, config.d2h
        self._capacity = _capacity(config, job)
        self._transfers = RowTransfers(job.workload, params)
        self._rows: Rows | None = None

    def seconds(self, part: Part, stage: Stage, iteration: int, rows: Rows) -> StageSeconds:
        """Return the seconds of a stage."""
        stages = max(1, len(self._numbers))
        number = iteration * stages + self._numbers.get(stage.name, 0)
        compute = self._costs.seconds("compute", number, rows.count) / stages
        has_link = self._h2d is not None
        transfer = self._transfer(part, stage, iteration, rows) if has_link else 0.0
        return StageSeconds(compute, transfer)

    def _transfer(self, part: Part, stage: Stage, iteration: int, rows: Rows) -> float:
        transfers = self._transfers
        if rows != self._rows:
            self._rows = rows
            transfers.forget()
        streamed = max(0, rows.count - self._capacity)
        bytes_in, bytes_out = transfers.streamed_bytes(stage)
        to_device = transfers.to_device(stage, part, iteration, rows)
        to_host = transfers.to_host(stage, part, iteration, rows)
        transfers.on_written(stage, part, iteration)
        return _copy(self._h2d, to_device, streamed, streamed * bytes_in) + _copy(
            self._d2h, to_host, streamed, streamed * bytes_out
        )


def _capacity(config: DeviceConfig, job: IterativeJob) -> int:
    """Return the rows that fit into the device's memory."""
    limit = config.memory_bytes() if config.link else None
    if limit is None:
        return job.load
    try:
        return replace(job.job.demand, limit=limit).max_chunk(job.load)
    except DataError:
        return 0


def _copy(cost: Cost | None, ranges: Sequence[RowRange], streamed: int, nbytes: int) -> float:
    """Return the modelled seconds of one copy of these rows and of `streamed` further ones."""
    rows = streamed * (nbytes > 0) + sum(rows.count for rows in ranges)
    total = nbytes + sum(rows.nbytes for rows in ranges)
    return cost.seconds(rows, total / rows, 0.0) if cost is not None and rows else 0.0


class VirtualStageClock:
    """A stage takes no time beside its modelled seconds."""

    is_virtual = True

    def __init__(self, model: _StageModel) -> None:
        self._model = model

    def now(self) -> float:
        return 0.0

    def end(
        self, part: Part, stage: Stage, iteration: int, rows: Rows, start: float
    ) -> StageSeconds:
        return self._model.seconds(part, stage, iteration, rows)


class RealStageClock:
    """Sleeps until the modelled end of each stage; work that takes longer is late."""

    is_virtual = False

    def __init__(self, model: _StageModel) -> None:
        self._model = model

    def now(self) -> float:
        return time.monotonic()

    def end(
        self, part: Part, stage: Stage, iteration: int, rows: Rows, start: float
    ) -> StageSeconds:
        modelled = self._model.seconds(part, stage, iteration, rows)
        remaining = start + modelled.compute + modelled.transfer - time.monotonic()
        if remaining > 0:
            time.sleep(remaining)
            return modelled
        return StageSeconds(modelled.compute - remaining, modelled.transfer)
