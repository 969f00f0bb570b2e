"""A job on an accelerator over the simulated runtime."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from toys import Toy

from hetsched.device import ChunkTimes, DeviceInfo
from hetsched.devices.accelerator.device import Accelerator
from hetsched.devices.base import DeviceJob
from hetsched.testing.devices import cut, drive
from hetsched.testing.simulated import StrictRuntime
from hetsched.testing.toys import Affine, Make, ToyJob, ToyParams
from hetsched.workload import Variant

GPU = DeviceInfo(name="gpu0", kind="cuda", identity="simulated GPU", link=True)


class Bench(ToyJob):
    """A job in chunks of `chunk` units, and its device."""

    def __init__(
        self,
        runtime: StrictRuntime | None = None,
        units: int = 12,
        chunk: int = 2,
        slots: int = 3,
        make: Make | None = None,
        folder: Path | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(Affine(make), ToyParams(units), folder)
        self.runtime = runtime or StrictRuntime()
        self.chunk, self.slots = chunk, slots
        self.device = Accelerator(GPU, self.runtime, **settings)

    def job(self, **settings: Any) -> DeviceJob:
        return self.described("cpu", self.chunk, self.slots, **settings)

    def run(self, job: DeviceJob | None = None) -> list[ChunkTimes]:
        whole, rest = divmod(self.load, self.chunk)
        chunks = cut([self.chunk] * whole + [rest] * (rest > 0))
        times = drive(self.device, job or self.job(), chunks)
        return [times[number] for number in sorted(times)]


class Racing(Toy):
    """Has two variants that work, and one that doesn't."""

    def variants(self, kind: str) -> Sequence[Variant]:
        (working,), (_, broken) = super().variants(kind), Affine().variants(kind)
        return [working, Variant("other", "1", working.make), broken]
