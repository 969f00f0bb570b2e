"""The tail of a job on cores whose speed varies.

256 units that take 100 ms on cores of one process. In each run the logarithm of each core's speed
is drawn anew. The loop learns the variation and plans the tail; the dispatcher and the rule of
taking are the product's, in virtual time. A run counts by its time over the ideal: the load over
the sum of the speeds in that run. "Today" is the same loop with nothing to take: stealing alone.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean

from benchmarks.learning.dispatched import ChunkSeconds, run_dispatched
from benchmarks.results import Bar, Result
from hetsched.device import Chunk, DeviceInfo
from hetsched.memory import MemoryDemand
from hetsched.models import Affine, DeviceModel
from hetsched.planner.records import JobPlan
from hetsched.simulate.learning import learn
from hetsched.simulate.machine import ChunkTimings, SimulatedDevice, SimulatedMachine

UNITS, SECONDS = 256, 0.1
"""Load, and its time on cores of the mean speed."""
RUNS, COUNTED_FROM = 40, 16
"""Runs of each seed; the first that counts: by then the variation is known."""
VARIATION = 0.1
MAX_OVER_IDEAL = {2: 1.01, 8: 1.03, 16: 1.05}
"""By the number of cores."""
MAX_OVER_TODAY = 1.005
"""Without variation."""
MAX_COST_RATIO = 20.0
MEAN_COST = (MAX_COST_RATIO - 1) / math.log(MAX_COST_RATIO)
"""Mean of `MAX_COST_RATIO` to the power of a number between 0 and 1."""


@dataclass(frozen=True)
class VaryingCores(SimulatedMachine):
    """Equal cores of one process, whose speed is drawn for each run; `ideals` of all runs.

    `variation`: standard deviation of the logarithm of a core's speed.
    """

    variation: float = 0.0
    ideals: list[float] | None = None

    def play(
        self, plan: JobPlan, noise: float = 0.0, rng: random.Random | None = None
    ) -> dict[str, ChunkTimings]:
        """Run `plan` through the dispatcher, at the mean speed without `rng`."""
        paces = {}
        for device in self.devices:
            pace = float(device.model.total.time(1.0))
            deviation = rng.gauss(0.0, self.variation) if rng is not None else 0.0
            paces[device.name] = pace * math.exp(deviation)
        if rng is not None and self.ideals is not None:
            self.ideals.append(self.load / sum(1 / pace for pace in paces.values()))
        return run_dispatched(plan, _at(paces))


def _at(paces: Mapping[str, float]) -> dict[str, ChunkSeconds]:
    def core(pace: float) -> ChunkSeconds:
        return lambda chunk, start: pace * chunk.count

    return {name: core(pace) for name, pace in paces.items()}


def cores(count: int, variation: float, *, has_tail: bool = True) -> VaryingCores:
    """Return a machine of so many equal cores; without a tail each counts as a process."""
    curve = Affine(0.0, SECONDS * count / UNITS)
    demand = MemoryDemand(input_bytes=1 << 20, work_bytes=0, output_bytes=1 << 20)
    process = "cpu0" if has_tail else ""
    devices = tuple(
        SimulatedDevice(
            DeviceInfo(name=f"cpu{number}", kind="cpu", identity="core", tail_group=process),
            DeviceModel(curve, curve),
            demand,
        )
        for number in range(count)
    )
    return VaryingCores(UNITS, devices, variation=variation, ideals=[])


def ratios(
    count: int, variation: float, seed: int, runs: int = RUNS, *, has_tail: bool = True
) -> list[float]:
    """Return each run's time over its ideal."""
    machine = cores(count, variation, has_tail=has_tail)
    assert machine.ideals is not None
    learning = learn(machine, runs, 0.0, seed)
    return [run.measured / ideal for run, ideal in zip(learning, machine.ideals, strict=True)]


def mean_ratio(
    count: int, variation: float, seeds: int, runs: int = RUNS, *, has_tail: bool = True
) -> float:
    """Return the mean over all seeds and the runs that count."""
    counted_from = min(COUNTED_FROM, runs) - 1
    trials = [ratios(count, variation, s, runs, has_tail=has_tail) for s in range(seeds)]
    return fmean(ratio for trial in trials for ratio in trial[counted_from:])


@dataclass(frozen=True)
class IrregularUnits(VaryingCores):
    """Equal cores, and units whose costs vary 20-fold, drawn for each run."""

    def play(
        self, plan: JobPlan, noise: float = 0.0, rng: random.Random | None = None
    ) -> dict[str, ChunkTimings]:
        """Run `plan`; without `rng` with units of the mean cost."""
        if rng is None:
            return super().play(plan)
        pace = float(self.devices[0].model.total.time(1.0))
        costs = [pace * MAX_COST_RATIO ** rng.random() / MEAN_COST for _ in range(self.load)]
        if self.ideals is not None:
            self.ideals.append(sum(costs) / len(self.devices))

        def seconds(chunk: Chunk, start: float) -> float:
            return sum(costs[chunk.first : chunk.first + chunk.count])

        return run_dispatched(plan, {device.name: seconds for device in self.devices})


def irregular_ratio(count: int, seeds: int, runs: int = RUNS, *, has_tail: bool = True) -> float:
    """Return the mean over the ideal with irregular units."""
    values: list[float] = []
    for seed in range(seeds):
        plain = cores(count, 0.0, has_tail=has_tail)
        machine = IrregularUnits(plain.load, plain.devices, ideals=[])
        learning = learn(machine, runs, 0.0, seed)
        assert machine.ideals is not None
        pairs = zip(learning, machine.ideals, strict=True)
        values += [run.measured / ideal for run, ideal in pairs][min(COUNTED_FROM, runs) - 1 :]
    return fmean(values)


def measure(seeds: int) -> Result:
    columns = ("cores", "variation", "with a tail", "today", "bar")
    result = Result("learning_tail", "Learning: the tail of a job of 100 ms, 256 units", columns)
    for count, bar in MAX_OVER_IDEAL.items():
        for variation in (VARIATION, 0.0):
            tail = mean_ratio(count, variation, seeds)
            today = mean_ratio(count, variation, seeds, has_tail=False)
            value = tail if variation else tail / today
            limit = bar if variation else MAX_OVER_TODAY
            what = "over the ideal" if variation else "over today"
            row = (str(count), f"{variation:.0%}", f"{tail:.4f}", f"{today:.4f}")
            result.rows.append((*row, f"{limit:g} {what}"))
            result.data.append(
                {"cores": count, "variation": variation, "tail": tail, "today": today}
            )
            title = f"{count} cores, variation {variation:.0%}: {what}, mean of {seeds} seeds"
            result.bars.append(Bar(title, value, limit, at_least=False))
    for count in MAX_OVER_IDEAL:
        figures = [irregular_ratio(count, seeds, has_tail=flag) for flag in (True, False)]
        result.rows.append(
            (str(count), "irregular units", *(f"{figure:.4f}" for figure in figures), "")
        )
        result.data.append(
            {"cores": count, "irregular": True, "tail": figures[0], "today": figures[1]}
        )
    return result
