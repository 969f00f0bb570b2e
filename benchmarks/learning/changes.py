"""A step is not a change, and a change is one.

Two equal cores. Shares past a cache take 1.35 times as long per unit: after ten runs at 20 units
per core come some at 29, 30 and 28, then 20 again, whose prediction must still hold. Or a core
really becomes half as fast, without such a step: after three runs the prediction follows.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

from benchmarks.results import Bar, Result
from hetsched.device import ChunkTimes, DeviceInfo
from hetsched.memory import MemoryDemand
from hetsched.models import Affine, DeviceModel
from hetsched.planner.records import JobPlan
from hetsched.simulate.learning import LearningRun, learn
from hetsched.simulate.machine import ChunkTimings, SimulatedDevice, SimulatedMachine

CORES, NOISE, UNIT = 2, 0.02, 10e-3
"""Noise of a core's run; seconds of a unit."""
CACHE_UNITS, SLOWDOWN = 24, 1.35
"""Units of a share that fit into the cache, and the time per unit of larger ones over theirs."""
USUAL, LARGER = 20, (29, 30, 28)
"""Units per core."""
CLEAN_RUNS, RUNS_TO_DETECT = 10, 3
MAX_ERROR, MAX_ERROR_AFTER_CHANGE = 0.05, 0.10
"""Of the predicted time."""


@dataclass(frozen=True)
class CachedCores(SimulatedMachine):
    """Cores whose time per unit depends on the share, if they have a `cache`.

    The last takes `slowness` times as long.
    """

    slowness: float = 1.0
    cache: bool = True

    def play(
        self, plan: JobPlan, noise: float = 0.0, rng: random.Random | None = None
    ) -> dict[str, ChunkTimings]:
        """Run `plan`; the noise is that of a whole run."""
        timings: dict[str, ChunkTimings] = {}
        for assignment in plan.assignments:
            is_beyond = self.cache and assignment.plan.share > CACHE_UNITS
            pace = UNIT * (SLOWDOWN if is_beyond else 1.0)
            pace *= self.slowness if assignment.device == self.devices[-1].name else 1.0
            pace *= math.exp(rng.gauss(0.0, noise)) if rng is not None else 1.0
            now, chunks = 0.0, []
            for units in assignment.plan.chunks:
                chunks.append((units, ChunkTimes(compute=(now, now + units * pace))))
                now += units * pace
            timings[assignment.device] = tuple(chunks)
        return timings


def machine(
    units_per_core: int = USUAL, slowness: float = 1.0, *, cache: bool = True
) -> CachedCores:
    """Return the machine with a load."""
    curve = Affine(0.0, UNIT)
    demand = MemoryDemand(input_bytes=1 << 20, work_bytes=0, output_bytes=1 << 20)
    devices = tuple(
        SimulatedDevice(
            DeviceInfo(name=f"cpu{number}", kind="cpu", identity="core"),
            DeviceModel(curve, curve),
            demand,
        )
        for number in range(CORES)
    )
    return CachedCores(CORES * units_per_core, devices, slowness=slowness, cache=cache)


def runs_at_a_step(seed: int) -> list[LearningRun]:
    """Return ten runs at the usual load, one at each of the larger ones, three usual ones."""
    sizes = [USUAL] * CLEAN_RUNS + [*LARGER] + [USUAL] * RUNS_TO_DETECT
    return learn(machine(), len(sizes), NOISE, seed, machine_in=lambda run: machine(sizes[run]))


def runs_at_a_change(seed: int) -> list[LearningRun]:
    """Return runs at the usual load; from the eleventh on, one core is half as fast."""
    return learn(
        machine(cache=False), CLEAN_RUNS + RUNS_TO_DETECT + 1, NOISE, seed,
        machine_in=lambda run: machine(slowness=1.0 if run < CLEAN_RUNS else 2.0, cache=False),
    )  # fmt: skip


def prediction_error(run: LearningRun) -> float:
    """Return the relative error of a run's prediction; infinite without one."""
    predicted = run.plan.predicted_seconds
    return math.inf if predicted is None else abs(predicted / run.noiseless - 1)


def measure(seeds: int) -> Result:
    columns = ("case", "error of the prediction, worst", "bar")
    result = Result("learning_changes", "Learning: steps and changes of speed", columns)
    step = max(
        prediction_error(run)
        for seed in range(seeds)
        for run in runs_at_a_step(seed)[CLEAN_RUNS + len(LARGER) :]
    )
    change = max(prediction_error(runs_at_a_change(seed)[-1]) for seed in range(seeds))
    for title, error, bar in (
        (f"{USUAL} units per core after larger ones past a cache", step, MAX_ERROR),
        (f"after {RUNS_TO_DETECT} runs with a core half as fast", change, MAX_ERROR_AFTER_CHANGE),
    ):
        result.rows.append((title, f"{error:.3f}", f"{bar:g}"))
        result.data.append({"case": title, "error": error})
        name = f"{title}: error of the prediction, worst of {seeds} seeds"
        result.bars.append(Bar(name, error, bar, at_least=False))
    return result
