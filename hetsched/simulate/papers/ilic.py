"""Ilic & Sousa 2012: a GPU and three cores, 256 planes of 512 x 512, nothing known beforehand.

The paper prints shares, chunks and speed-ups, but no times. Its lists of chunks imply that copies
in and out take 0.552 and 0.441 of a kernel's time; of the machine here, fitted to shares and times
that follow from them, a plane's kernel takes 1.45 ms on the GPU and 11.6 and 14.6 ms on a core;
starting a copy 0.05 ms and a kernel 0.10 ms. CUFFT's batches are assumed to become 3.5 times as
slow from 105 to 110 planes (the cliff): that a single call was up to 4.6 times as slow as the
paper's chunks can't come from overlap. 112 planes fit into the GPU's memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from hetsched.device import ChunkTimes, DeviceInfo
from hetsched.errors import UsageError
from hetsched.memory import MemoryDemand
from hetsched.models import Affine, DeviceModel, PiecewiseLinear, SpeedFunction
from hetsched.models.evidence.samples import run_samples
from hetsched.partition import Balancer
from hetsched.planner.job_planner import Candidate, plan_job
from hetsched.plans import DevicePlan, Overlap, timeline
from hetsched.plans.best_plan import compare_plans
from hetsched.plans.paper.factoring import factoring
from hetsched.plans.paper.multi_installment import installments
from hetsched.simulate.curves import Paging
from hetsched.simulate.runs import Shares, Trace, drive, measured

LOAD = 256
KERNEL, COPY_IN, COPY_OUT = 1.45e-3, 0.552 * 1.45e-3, 0.441 * 1.45e-3
"""Seconds a plane."""
START_KERNEL, START_COPY = 0.10e-3, 0.05e-3
"""Seconds, whatever the size: with none, the steps of the paper find chunks of 3 and 5 planes."""
CORES = (11.612e-3, 14.606e-3, 14.606e-3)
"""Seconds a plane on each."""
CLIFF, SLOWER, WIDTH = 105.0, 3.5, 5 / 105
"""Planes of a batch from which on it is slower; so many times; over which part of that."""
MIB = 1 << 20
MEMORY = MemoryDemand(input_bytes=4 * MIB, work_bytes=4 * MIB, output_bytes=0, limit=112 * 8 * MIB)
"""In place, with a work area of the same size: sums of the printed lists stay below 112."""
TOLERANCE = 0.08
"""The paper doesn't print its own."""
MOST_RUNS, CONSTANT_RUNS = 30, 8
"""At most; of constant speeds, which never end, as many as the paper had."""
MOST_NOISE = 0.3
CURVES = ("total", "compute", "h2d", "d2h")
"""As a DeviceModel takes them."""


@dataclass(frozen=True)
class Setting:
    """The machine.

    Attributes
    ----------
    overlap : Overlap
        SINGLE: one copy engine, as the paper's GPU has; FULL: two.
    cliff : bool
        Whether large batches are slower.
    """

    overlap: Overlap = Overlap.SINGLE
    cliff: bool = True

    def gpu(self) -> DeviceModel:
        """The GPU; `total` is that of a single chunk, one phase after the other."""
        kernel: SpeedFunction = Affine(START_KERNEL, KERNEL)
        if self.cliff:
            kernel = Paging(kernel, CLIFF, SLOWER, WIDTH)
        copies = Affine(START_COPY, COPY_IN), Affine(START_COPY, COPY_OUT)
        return DeviceModel(_Sum((copies[0], kernel, copies[1])), kernel, *copies)


STANDARD = Setting()
"""The paper's."""


def cores() -> list[SpeedFunction]:
    """The three cores."""
    return [Affine(0.0, pace) for pace in CORES]


@dataclass(frozen=True)
class Step:
    """What the GPU did in one run of the paper's algorithm, and knew after it.

    Attributes
    ----------
    plan : DevicePlan
    seconds : float
    one_by_one : float, seconds
        The same chunks without any overlap.
    single : float, seconds
        The same planes in one chunk.
    total : tuple of (float, float), units and seconds
        psi_t as known now: the approximation points.
    repeats : int
        Further observations of known sizes, so far: the accuracy points.
    fallback : str or None
        Why the plan isn't that of the paper's steps.
    """

    plan: DevicePlan
    seconds: float
    one_by_one: float
    single: float
    total: tuple[tuple[float, float], ...]
    repeats: int
    fallback: str | None

    @property
    def gain(self) -> float:
        """How many times as fast as a single chunk: `size_gain` times `overlap_gain`."""
        return self.single / self.seconds

    @property
    def size_gain(self) -> float:
        """Of it, by smaller chunks alone."""
        return self.single / self.one_by_one

    @property
    def overlap_gain(self) -> float:
        """Of it, by copies during kernels."""
        return self.one_by_one / self.seconds


@dataclass(frozen=True)
class Outcome:
    """`steps`: of the paper's algorithm; empty for methods of single chunks."""

    setting: Setting
    trace: Trace
    steps: tuple[Step, ...] = ()

    @property
    def seconds(self) -> float:
        """Of all runs together."""
        return sum(run.makespan for run in self.trace.runs)


def chunked(
    setting: Setting = STANDARD,
    *,
    tolerance: float = TOLERANCE,
    noise: float = 0.0,
    seed: int = 0,
) -> Outcome:
    """The paper's algorithm: psi_t as measured splits the load, its steps cut the GPU's share.

    Parameters
    ----------
    setting : Setting
    tolerance : float
    noise : float
        Standard deviation of the logarithm of every time.
    seed : int

    Raises
    ------
    UsageError
        Tolerance or noise that can't be.
    """
    if not 0 <= noise <= MOST_NOISE:
        raise UsageError(f"noise: {noise}, it must be 0 to {MOST_NOISE}")
    rng = np.random.default_rng(seed)
    disturbed = _disturbed(noise, rng)
    gpu, three = _Gpu(setting, disturbed), [disturbed(core) for core in cores()]
    models = [gpu, *(PiecewiseLinear() for _ in three)]
    balancer = Balancer(LOAD, len(models), "geometric", tolerance, models=models)

    def run(shares: Shares) -> Sequence[float]:
        return [gpu.run(shares[0]), *cast("list[float]", measured(three)(shares[1:]))]

    trace = drive(balancer, run, MOST_RUNS)
    return Outcome(setting, trace, tuple(gpu.steps))


def single_chunks(
    setting: Setting = STANDARD,
    *,
    method: str = "geometric",
    tolerance: float = TOLERANCE,
) -> Outcome:
    """What the paper compares itself with: the GPU's share in one chunk, whatever its memory.

    Parameters
    ----------
    setting : Setting
    method : str
        "geometric": by speed functions (the paper's [10]). "constant": by the last run's speeds,
        without any memory of splits (its [6]).
    tolerance : float
    """
    machines = [setting.gpu().total, *cores()]
    constant = method == "constant"
    balancer = Balancer(LOAD, len(machines), method, tolerance, stop_when_seen=not constant)
    trace = drive(balancer, measured(machines), CONSTANT_RUNS if constant else MOST_RUNS)
    return Outcome(setting, trace)


@dataclass(frozen=True)
class Known:
    """What the planner makes of the machine when all its curves are known.

    Attributes
    ----------
    shares : tuple of int, units
    plan : DevicePlan
        The GPU's.
    seconds : float
        Of all devices together.
    bound : float, seconds
        No plan for the GPU's share takes less.
    """

    shares: Shares
    plan: DevicePlan
    seconds: float
    bound: float


def known(setting: Setting = STANDARD) -> Known:
    """The product's split of the load, and the best plan for the GPU's share."""
    gpu, three = setting.gpu(), cores()
    models = [gpu, *(DeviceModel(core, core) for core in three)]
    found = plan_job(LOAD, [_candidate(i, one, setting) for i, one in enumerate(models)])
    given = {one.device: one.plan.share for one in found.assignments}
    shares = tuple(given.get(_name(i), 0) for i in range(len(models)))
    best = compare_plans(shares[0], gpu, MEMORY, overlap=setting.overlap)
    busy = cast("list[float]", measured(three)(shares[1:]))
    return Known(shares, best.plan, max(best.seconds, *busy), best.bound)


def _name(index: int) -> str:
    return f"cpu{index - 1}" if index else "gpu0"


def _candidate(index: int, model: DeviceModel, setting: Setting) -> Candidate:
    link = index == 0
    info = DeviceInfo(
        name=_name(index),
        kind="cuda" if link else "cpu",
        identity=_name(index),
        link=link,
        engines=setting.overlap.value if link else 0,
    )
    demand = MEMORY if link else replace(MEMORY, limit=None)
    return Candidate(info, demand, {"": model}, {"": 1})


class _Gpu:
    """The GPU to the Balancer: psi_t as known so far. It learns from its own chunks."""

    def __init__(self, setting: Setting, disturbed: _Disturbed) -> None:
        self._overlap = setting.overlap
        self._exact = exact = setting.gpu()
        self._real = replace(
            exact,
            compute=disturbed(exact.compute),
            h2d=disturbed(exact.h2d),
            d2h=disturbed(exact.d2h),
        )
        self._curves = {name: PiecewiseLinear() for name in CURVES}
        self.steps: list[Step] = []

    @property
    def points(self) -> Any:
        """(n, 2) float64, units and seconds, of psi_t."""
        return self._curves["total"].points

    def time(self, x: Any, /) -> Any:
        """Seconds of `x` units (number or array), as measured. Raises UsageError before that."""
        return self._curves["total"].time(x)

    def speed(self, x: Any, /) -> Any:
        """Units a second at `x` units (number or array)."""
        return self._curves["total"].speed(x)

    def run(self, share: int) -> float:
        """Plan `share` by what is known, run it, and learn; seconds."""
        plan, fallback = factoring(share, MEMORY), None
        if self.steps:
            found = installments(
                share, DeviceModel(*self._curves.values()), MEMORY, overlap=self._overlap
            )
            plan, fallback = found.plan, found.fallback
        ran = timeline(plan, self._real, self._overlap)
        chunks = [
            (
                one.units,
                ChunkTimes(copy_in=one.copy_in, compute=one.compute, copy_out=one.copy_out),
            )
            for one in ran.chunks
        ]
        for sample in run_samples(chunks, plan.sub_distributions, share, ran.makespan):
            self._curves[sample.curve].observe(sample.units, sample.seconds)
        total = self._curves["total"]
        step = Step(
            plan,
            ran.makespan,
            timeline(plan, self._exact, Overlap.NONE).makespan,
            float(self._exact.total.time(share)),
            tuple(map(tuple, total.points.tolist())),
            total.repeats,
            fallback,
        )
        self.steps.append(step)
        return ran.makespan


@dataclass(frozen=True)
class _Sum:
    """Phases one after the other."""

    phases: tuple[SpeedFunction, ...]

    def time(self, x: Any, /) -> Any:
        """Seconds for `x` units (number or array)."""
        return sum(phase.time(x) for phase in self.phases)

    def speed(self, x: Any, /) -> Any:
        """Units a second at `x` > 0 units (number or array)."""
        return x / self.time(x)


@dataclass(frozen=True)
class _Noisy:
    """`curve`, each answer of which is off by another factor."""

    curve: SpeedFunction
    noise: float
    rng: np.random.Generator

    def time(self, x: Any, /) -> Any:
        """Seconds for `x` units (number or array)."""
        return self.curve.time(x) * np.exp(self.noise * self.rng.standard_normal(np.shape(x)))

    def speed(self, x: Any, /) -> Any:
        """Units a second at `x` > 0 units (number or array)."""
        return x / self.time(x)


_Disturbed = Callable[[Any], Any]


def _disturbed(noise: float, rng: np.random.Generator) -> _Disturbed:
    return lambda curve: _Noisy(curve, noise, rng) if noise else curve
