"""What is known of one variant on one device, beside the same neighbours: samples, and the model.

Nothing but medians of the last five runs of each size: a device that changes is known after three
runs, one wild run changes nothing, and a run beside other processes, or the first of a process, is
one of five.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
from msgspec.structs import replace

from hetsched.models.confidence import robust_median
from hetsched.models.functions import DeviceModel, PiecewiseLinear
from hetsched.models.phases import PhaseCurve
from hetsched.models.samples import MIN_SHARE, CurveName, Sample, medians
from hetsched.models.windows import (
    CERTAIN_ERRORS,
    MAX_SIZES,
    MEDIAN_VARIANCE,
    MIN_NOISE,
    Windows,
    noise_deviation,
)


class History:
    """The last samples of each curve. A DeviceModel made of them never changes.

    `runs`: all ever observed. `samples`: by run, of earlier processes.
    """

    def __init__(self, runs: int = 0, samples: Iterable[Sample] = ()) -> None:
        self.runs = runs
        self._curves: dict[CurveName, Windows] = {}
        self._models: dict[bool, DeviceModel] = {}
        for sample in samples:
            if sample.curve not in self._curves:
                self._curves[sample.curve] = self._new_windows(sample.curve)
            self._curves[sample.curve].put(sample)

    def add(self, samples: Iterable[Sample], at: float = 0.0) -> None:
        """Add the samples of one run, learnt `at` seconds since the epoch."""
        self.runs += 1
        self._models.clear()
        changed: dict[CurveName, Windows] = {}
        for sample in medians(samples):
            if sample.curve not in changed:
                known = self._curves.get(sample.curve)
                # Models keep the one before.
                new = self._new_windows(sample.curve) if known is None else known.copy()
                self._curves[sample.curve] = changed[sample.curve] = new
            changed[sample.curve].put(replace(sample, run=self.runs, at=at))
        for windows in changed.values():
            windows.follow_change()

    def _new_windows(self, curve: CurveName) -> Windows:
        # Totals of a device with a link don't correct each other: their plans differ.
        return Windows(max_sizes=MAX_SIZES, corrects=not (curve == "total" and self.link))

    @property
    def link(self) -> bool:
        return "h2d" in self._curves or "d2h" in self._curves

    @property
    def nbytes(self) -> int:
        # Estimate: without samples, and of its models
        return 4000 + sum([windows.nbytes for windows in self._curves.values()])

    def samples(self) -> list[Sample]:
        """Return all samples in use, by run; a History made of them is equal."""
        every = [sample for windows in self._curves.values() for sample in windows]
        return sorted(every, key=lambda sample: (sample.run, sample.curve == "total"))

    def windows(self, curve: CurveName) -> Windows | None:
        """Return the evidence of one curve (don't modify it); None: there is none."""
        return self._curves.get(curve)

    def model(self, link: bool | None = None) -> DeviceModel | None:
        """`link`: None: as observed."""
        if "total" not in self._curves:
            return None
        link = self.link if link is None else link
        if link not in self._models:
            self._models[link] = self._new_model(link)
        return self._models[link]

    def _new_model(self, link: bool) -> DeviceModel:
        total, compute = PiecewiseLinear(self._curves["total"]), self._phase("compute")
        if not link:
            call = 0.0 if compute is None else compute.call_seconds()
            return DeviceModel(total, compute or total, call_seconds=call)
        h2d, d2h = self._phase("h2d"), self._phase("d2h")
        duplex = self._duplex("h2d_beside", h2d), self._duplex("d2h_beside", d2h)
        return DeviceModel(total, compute or total, h2d, d2h, duplex=duplex)

    def _phase(self, curve: CurveName) -> PhaseCurve | None:
        return PhaseCurve(self._curves[curve]) if curve in self._curves else None

    def _duplex(self, curve: CurveName, one_way: PhaseCurve | None) -> float:
        """Return the share of its rate that a direction keeps while the other one is busy.

        1 unless it is below by `CERTAIN_ERRORS`: a share below 1 makes planning slower.
        """
        if one_way is None or curve not in self._curves:
            return 1.0
        beside = self._curves[curve].evidence.times
        expected = zip(one_way.time(np.array(list(beside))).tolist(), beside.values(), strict=True)
        ratios = [alone / seconds for alone, times in expected for seconds in times]
        share = robust_median(ratios)
        noise = max(noise_deviation([ratios]), MIN_NOISE)
        alone_count = sum(knot.count for knot in one_way.knots())
        error = noise * math.sqrt(MEDIAN_VARIANCE * (1 / len(ratios) + 1 / alone_count))
        return max(share, MIN_SHARE) if share < 1 - CERTAIN_ERRORS * error else 1.0
