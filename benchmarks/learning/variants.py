"""Variants that race within a run.

Two cases. Neighbours: two cores and two variants whose times depend on what runs beside them; one
core that tries b beside a sees b lose, though b beside b is the best. Four variants on two cores,
with 5 % noise in every chunk, of which 1 % take 20 times as long: which one is chosen by run 5,
and what 50 runs cost over always using the fastest, both without the noise.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from benchmarks.learning import Verdict
from hetsched.device import Chunk, ChunkTimes, DeviceInfo
from hetsched.memory import MemoryDemand
from hetsched.models import Constant, DeviceModel
from hetsched.planner.records import JobPlan
from hetsched.simulate.machine import ChunkTimings, SimulatedDevice, SimulatedMachine, learn

Pace = Callable[[str, tuple[str, ...]], float]
"""(variant, variants that run on the other cores now) -> seconds per unit."""

DEMAND = MemoryDemand(input_bytes=1, work_bytes=0, output_bytes=1)


@dataclass(frozen=True)
class Disturbance:
    """Chunks that take longer: each with a probability, by a factor."""

    probability: float = 0.0
    factor: float = 1.0


@dataclass(frozen=True)
class VariantMachine(SimulatedMachine):
    """Equal cores with several variants. Without noise nothing is disturbed.

    A core's pace depends on its own variant and on what the others run at that moment, as with
    shared caches and memory, so it is played event by event.
    """

    pace: Pace = field(default=lambda variant, others: 1.0, kw_only=True)
    disturbance: Disturbance = field(default=Disturbance(), kw_only=True)

    def play(
        self, plan: JobPlan, noise: float = 0.0, rng: random.Random | None = None
    ) -> dict[str, ChunkTimings]:
        """Run `plan`, chunk by chunk on all cores at once. See `SimulatedMachine.play`."""
        variants = {a.device: a.variants for a in plan.assignments}
        waiting = {a.device: deque(a.chunks) for a in plan.assignments}
        finished: dict[str, list[tuple[int, ChunkTimes]]] = {name: [] for name in waiting}
        running: dict[str, tuple[Chunk, float]] = {}
        left: dict[str, float] = {}
        now = 0.0

        def start(name: str) -> None:
            if waiting[name]:
                chunk = waiting[name].popleft()
                running[name] = chunk, now
                left[name] = chunk.count * self._factor(noise, rng)

        for name in waiting:
            start(name)
        while running:
            used = {name: variants[name][chunk.kernel] for name, (chunk, _) in running.items()}
            paces = {
                name: self.pace(own, tuple(v for other, v in used.items() if other != name))
                for name, own in used.items()
            }
            step = min(left[name] * paces[name] for name in running)
            now += step
            for name in used:
                left[name] -= step / paces[name]
                if left[name] < 1e-9:  # but for a rounding error
                    chunk, began = running.pop(name)
                    is_cold = all(times.kernel != chunk.kernel for _, times in finished[name])
                    times = ChunkTimes(compute=(began, now), kernel=chunk.kernel, cold=is_cold)
                    finished[name].append((chunk.count, times))
                    start(name)
        return {name: tuple(chunks) for name, chunks in finished.items()}

    def _factor(self, noise: float, rng: random.Random | None) -> float:
        """Return the ratio of a chunk's time to the usual one."""
        if not noise or rng is None:
            return 1.0
        is_disturbed = rng.random() < self.disturbance.probability
        factor = self.disturbance.factor if is_disturbed else 1.0
        return factor * max(0.1, 1.0 + rng.gauss(0.0, noise))


def equal_cores(
    count: int,
    load: int,
    variants: tuple[str, ...],
    pace: Pace,
    disturbance: Disturbance | None = None,
) -> VariantMachine:
    """Return a machine of `count` equal cores."""
    model = DeviceModel(Constant(1.0), Constant(1.0))
    devices = tuple(
        SimulatedDevice(DeviceInfo(name=f"cpu{i}", kind="cpu", identity="core"), model, DEMAND)
        for i in range(count)
    )
    return VariantMachine(
        load, devices, variants, pace=pace, disturbance=disturbance or Disturbance()
    )


PAIR_TIMES = {("a", "a"): 1.25, ("a", "b"): 1.0, ("b", "a"): 1.5, ("b", "b"): 1.15}
"""(variant, variant on the other core) -> time of a unit; alone it takes 1."""
UNIT_SECONDS = 0.001
LOAD, RUNS, CHOSEN_BY = 128, 50, 5
NOISE, HICCUPS = 0.05, Disturbance(0.01, 20.0)
SAME_SPEED = 1.03
SEEDS_PER_SEED = 10
"""Seeds of the second case per seed of the command."""

Table = Callable[[random.Random], list[float]]
TABLES: dict[str, Table] = {
    "within 50 %": lambda rng: [1.0, *(rng.uniform(1.0, 1.5) for _ in range(3))],
    "4 % apart": lambda rng: [1.0, 1.04, 1.08, 1.12],
    "up to 4 times": lambda rng: [1.0, 1.4, 2.0, 4.0],
}
"""Times of the variants over the fastest one's."""


def variants(seeds: int) -> Iterator[Verdict]:
    wrong = [float(pair_variants(seed) != ("b", "b")) for seed in range(seeds)]
    yield Verdict("neighbours that don't end with b beside b", wrong, max_worst=0.0)
    for name, table in TABLES.items():
        choices = [four_variants(table, seed) for seed in range(seeds * SEEDS_PER_SEED)]
        missed = [float(not is_fastest) for is_fastest, _ in choices]
        yield Verdict(f"{name}, slower than the fastest by 3 % in run {CHOSEN_BY}", missed, 0.05)
        yield Verdict(f"{name}, cost of {RUNS} runs", [cost for _, cost in choices], 0.04)


def pair_variants(seed: int) -> tuple[str, ...]:
    """Return the variants of the two cores in the last run of the case with neighbours."""

    def pace(variant: str, others: tuple[str, ...]) -> float:
        return UNIT_SECONDS * (PAIR_TIMES[variant, others[0]] if others else 1.0)

    machine = equal_cores(2, LOAD // 2, ("a", "b"), pace)
    return _variants(learn(machine, 12, 0.02, seed)[-1].plan)


def four_variants(table: Table, seed: int) -> tuple[bool, float]:
    """Return whether run 5 uses the fastest variants, and what all runs cost over those, less 1.

    The variants are in a random order of preference.
    """
    rng = random.Random(seed)
    ratios = table(rng)
    rng.shuffle(ratios)
    times = dict(zip("abcd", ratios, strict=True))

    def pace(variant: str, others: tuple[str, ...]) -> float:
        return times[variant] * UNIT_SECONDS

    machine = equal_cores(2, LOAD, tuple(times), pace, HICCUPS)
    runs = learn(machine, RUNS, NOISE, seed)
    chosen = _variants(runs[CHOSEN_BY - 1].plan)
    best = min(ratios) * UNIT_SECONDS * LOAD / 2
    is_fastest = all(times[variant] <= SAME_SPEED * min(ratios) for variant in chosen)
    return is_fastest, sum(run.noiseless for run in runs) / (RUNS * best) - 1


def _variants(plan: JobPlan) -> tuple[str, ...]:
    return tuple(assignment.variant for assignment in plan.assignments)
