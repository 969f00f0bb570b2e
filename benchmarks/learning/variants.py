"""Variants that race within a run: four of them on two cores.

Every chunk has 5 % noise, and 1 % of them take 20 times as long: which variant is chosen by run 5,
and what 50 runs cost over always using the fastest, both without the noise.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from benchmarks.learning import Verdict
from hetsched.device import ChunkTimes, DeviceInfo
from hetsched.memory import MemoryDemand
from hetsched.models import Constant, DeviceModel
from hetsched.planner.records import Assignment, JobPlan
from hetsched.simulate.machine import ChunkTimings, SimulatedDevice, SimulatedMachine, learn

DEMAND = MemoryDemand(input_bytes=1, work_bytes=0, output_bytes=1)


@dataclass(frozen=True)
class VariantMachine(SimulatedMachine):
    """Equal cores with several variants; `units`: variant -> seconds of a unit.

    Without noise nothing is disturbed.
    """

    units: Mapping[str, float] = field(kw_only=True)

    def play(
        self, plan: JobPlan, noise: float = 0.0, rng: random.Random | None = None
    ) -> dict[str, ChunkTimings]:
        """Run `plan`. See `SimulatedMachine.play`."""
        return {a.device: self._played(a, noise, rng) for a in plan.assignments}

    def _played(
        self, assignment: Assignment, noise: float, rng: random.Random | None
    ) -> ChunkTimings:
        now, seen, timings = 0.0, set[int](), []
        for chunk in assignment.chunks:
            unit = self.units[assignment.variants[chunk.kernel]] * self._factor(noise, rng)
            begun, now = now, now + chunk.count * unit
            is_cold = chunk.kernel not in seen
            seen.add(chunk.kernel)
            times = ChunkTimes(compute=(begun, now), kernel=chunk.kernel, cold=is_cold)
            timings.append((chunk.count, times))
        return tuple(timings)

    def _factor(self, noise: float, rng: random.Random | None) -> float:
        """Return the ratio of a chunk's time to the usual one."""
        if not noise or rng is None:
            return 1.0
        factor = HICCUP_FACTOR if rng.random() < HICCUPS else 1.0
        return factor * max(0.1, 1.0 + rng.gauss(0.0, noise))


def equal_cores(count: int, load: int, units: Mapping[str, float]) -> VariantMachine:
    """Return a machine of `count` equal cores."""
    model = DeviceModel(Constant(1.0), Constant(1.0))
    devices = tuple(
        SimulatedDevice(DeviceInfo(name=f"cpu{i}", kind="cpu", identity="core"), model, DEMAND)
        for i in range(count)
    )
    return VariantMachine(load, devices, tuple(units), units=units)


UNIT_SECONDS = 0.001
LOAD, RUNS, CHOSEN_BY = 128, 50, 5
NOISE, HICCUPS, HICCUP_FACTOR = 0.05, 0.01, 20.0
"""Of chunks, the part that takes longer, and how much longer."""
SAME_SPEED = 1.03
SEEDS_PER_SEED = 10
"""Of the command."""

Table = Callable[[random.Random], list[float]]
TABLES: dict[str, Table] = {
    "within 50 %": lambda rng: [1.0, *(rng.uniform(1.0, 1.5) for _ in range(3))],
    "4 % apart": lambda rng: [1.0, 1.04, 1.08, 1.12],
    "up to 4 times": lambda rng: [1.0, 1.4, 2.0, 4.0],
}
"""Times of the variants over the fastest one's."""


def variants(seeds: int) -> Iterator[Verdict]:
    for name, table in TABLES.items():
        choices = [four_variants(table, seed) for seed in range(seeds * SEEDS_PER_SEED)]
        missed = [float(not is_fastest) for is_fastest, _ in choices]
        yield Verdict(f"{name}, slower than the fastest by 3 % in run {CHOSEN_BY}", missed, 0.05)
        yield Verdict(f"{name}, cost of {RUNS} runs", [cost for _, cost in choices], 0.04)


def four_variants(table: Table, seed: int) -> tuple[bool, float]:
    """Return whether run 5 uses the fastest variants, and what all runs cost over those, less 1.

    The variants are in a random order of preference.
    """
    rng = random.Random(seed)
    ratios = table(rng)
    rng.shuffle(ratios)
    units = {name: UNIT_SECONDS * each for name, each in zip("abcd", ratios, strict=True)}
    runs = learn(equal_cores(2, LOAD, units), RUNS, NOISE, seed)
    fastest = min(units.values())
    chosen = (assignment.variant for assignment in runs[CHOSEN_BY - 1].plan.assignments)
    is_fastest = all(units[variant] <= SAME_SPEED * fastest for variant in chosen)
    return is_fastest, sum(run.noiseless for run in runs) / (RUNS * fastest * LOAD / 2) - 1
