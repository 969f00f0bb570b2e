"""Copies of 64 KiB to 256 MiB: one way, both ways at once; pinned and pageable memory."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

import numpy as np

from benchmarks.gpu.common import MIB, Report, Span, mapped, open_runtime
from hetsched.devices.accelerator.runtime import Copy, Runtime

SIZES = [64 << 10, 256 << 10, MIB, 4 * MIB, 16 * MIB, 64 * MIB, 256 * MIB]
REPEAT = 7


@dataclass(frozen=True)
class Rates:
    """Bytes per second."""

    h2d: float
    d2h: float
    h2d_duplex: float
    d2h_duplex: float


class Link:
    """The link between pinned host buffers and the device."""

    def __init__(self, runtime: Runtime, nbytes: int) -> None:
        self.runtime = runtime
        self.hosts = [mapped(nbytes), mapped(nbytes)]
        self.block = runtime.allocate(2 * nbytes)
        self.half = nbytes
        self.queues = (runtime.queue(), runtime.queue())
        self.spans = [Span(runtime, queue) for queue in self.queues]

    def pin(self) -> None:
        for host in self.hosts:
            self.runtime.pin(host)

    def unpin(self) -> None:
        for host in self.hosts:
            self.runtime.unpin(host)

    def run(self, nbytes: int, directions: tuple[int, ...]) -> list[float]:
        """Return the median bytes per second in each of `directions`, all at the same time."""
        count = max(2, min(64, 256 * MIB // nbytes)) if nbytes < self.half else 2
        samples = []
        for _ in range(REPEAT):
            for index in directions:
                self.spans[index].start()
            for _ in range(count):
                for index in directions:
                    self._copy(index, nbytes)
            for index in directions:
                self.spans[index].stop()
            samples.append([count * nbytes / self.spans[i].seconds() for i in directions])
        return [statistics.median(rates) for rates in zip(*samples, strict=True)]

    def rates(self, nbytes: int) -> Rates:
        (h2d,) = self.run(nbytes, (0,))
        (d2h,) = self.run(nbytes, (1,))
        duplex = self.run(nbytes, (0, 1))
        return Rates(h2d, d2h, duplex[0], duplex[1])

    def _copy(self, index: int, nbytes: int) -> None:
        copy = Copy(self.block, index * self.half, self.hosts[index][:nbytes])
        if index == 0:
            self.queues[0].copy_in([copy], 1)
        else:
            self.queues[1].copy_out([copy], 1)


def measure(report: Report) -> None:
    runtime = open_runtime(report.dry)
    sizes = SIZES[:3] if report.dry else SIZES
    link = Link(runtime, sizes[-1])
    for host in link.hosts:
        host[:] = 1
    for size in sizes[::2]:
        rates = link.rates(size)
        report.row("pageable", nbytes=size, h2d=rates.h2d, d2h=rates.d2h)
    link.pin()
    for size in sizes:
        report.row("pinned", nbytes=size, **vars(link.rates(size)))
    link.unpin()
    report.put(intact=bool(np.all(link.hosts[0] == 1)))
