"""Ilic & Sousa 2012: a GPU and three cores, 256 planes of 512 x 512, no earlier measurements.

The paper prints shares, chunks and speed-ups, but no times. Its lists of chunks imply that copies
in and out take 0.552 and 0.441 of a kernel's time. The machine here is fitted to the shares and
times that follow from them: a plane's kernel takes 1.45 ms on the GPU and 11.6 or 14.6 ms on a
core, starting a copy 0.05 ms and a kernel 0.10 ms. CUFFT's batches are assumed to become 3.5 times
as slow from 105 to 110 planes (the cliff), because overlap can't explain why a single call was up
to 4.6 times as slow as the paper's chunks. 112 planes fit in the GPU's memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from hetsched.device import DeviceInfo
from hetsched.memory import MemoryDemand
from hetsched.models import Affine, DeviceModel, PiecewiseLinear, SpeedFunction
from hetsched.models.confidence import robust_median
from hetsched.models.fits import rising
from hetsched.models.samples import run_samples
from hetsched.partition import Balancer
from hetsched.partition.distribution import Shares
from hetsched.plans import DevicePlan, Overlap, timeline
from hetsched.plans.paper import factoring, multi_installment
from hetsched.simulate.curves import Paging
from hetsched.simulate.machine import (
    SimulatedDevice,
    SimulatedMachine,
    chunk_timings,
    ideal_plan,
    makespan,
)
from hetsched.simulate.runs import Cell, ExperimentResult, LoopTrace, Table, drive, exact_times

LOAD = 256
PLANE = 4 << 20
MEMORY = MemoryDemand(input_bytes=PLANE, work_bytes=PLANE, output_bytes=0, limit=112 * 2 * PLANE)
"""In place, with a work area of the same size: sums of the printed lists stay below 112."""
TOLERANCE = 0.08
"""Ours; the paper doesn't print its tolerance."""
MAX_RUNS = 30
REMEMBERED = 30
"""Times of each size whose median counts; ours, too."""


@dataclass(frozen=True)
class IlicSetting:
    overlap: Overlap = Overlap.SINGLE  # SINGLE: one copy engine, as the paper's GPU has
    cliff: bool = True  # large batches are slower

    def gpu(self) -> DeviceModel:
        """Return the GPU's model; `total` is that of a single chunk, with sequential phases."""
        # Without the fixed costs, the paper's steps result in chunks of 3 and 5 planes.
        kernel: SpeedFunction = Affine(0.10e-3, 1.45e-3)
        if self.cliff:
            kernel = Paging(kernel, capacity=105.0, factor=3.5, width=5 / 105)
        copies = Affine(0.05e-3, 0.552 * 1.45e-3), Affine(0.05e-3, 0.441 * 1.45e-3)
        return DeviceModel(_SequentialPhases((copies[0], kernel, copies[1])), kernel, *copies)


STANDARD = IlicSetting()
"""The paper's machine."""


def cores() -> list[SpeedFunction]:
    return [Affine(0.0, pace) for pace in (11.612e-3, 14.606e-3, 14.606e-3)]


@dataclass(frozen=True)
class GpuStep:
    """The GPU in one run of the paper's algorithm, and its partial model after that run."""

    plan: DevicePlan
    seconds: float
    one_by_one: float  # seconds of the same chunks without overlap
    single: float  # seconds of the same planes in one chunk
    total: tuple[tuple[float, float], ...]  # psi_t after the run: the approximation points
    repeats: int  # accuracy points: repeated sizes so far


@dataclass(frozen=True)
class IlicOutcome:
    """The result of one method. `steps`: of the paper's algorithm; empty for single chunks."""

    setting: IlicSetting
    trace: LoopTrace
    steps: tuple[GpuStep, ...] = ()


def run_paper_steps(
    setting: IlicSetting = STANDARD, *, tolerance: float = TOLERANCE
) -> IlicOutcome:
    """Run the paper's algorithm: split by measured psi_t, cut the GPU's share by steps."""
    gpu, time_of = _LearningGpu(setting), exact_times(cores())
    models = [gpu, *(PiecewiseLinear() for _ in cores())]
    balancer = Balancer(LOAD, len(models), "geometric", tolerance, models=models)
    trace = drive(
        balancer,
        [setting.gpu().total, *cores()],
        MAX_RUNS,
        lambda shares: [gpu.run(shares[0]), *time_of(shares[1:])],
    )
    return IlicOutcome(setting, trace, tuple(gpu.steps))


def run_single_chunks(
    setting: IlicSetting = STANDARD,
    *,
    method: str = "geometric",
    tolerance: float = TOLERANCE,
) -> IlicOutcome:
    """Run the paper's baseline: the GPU's share in one chunk, even if it exceeds the memory."""
    machines = [setting.gpu().total, *cores()]
    is_constant = method == "constant"
    balancer = Balancer(LOAD, len(machines), method, tolerance, stop_when_seen=not is_constant)
    # Constant speeds never converge: as many runs as in the paper.
    trace = drive(balancer, machines, 8 if is_constant else MAX_RUNS)
    return IlicOutcome(setting, trace)


def machine(setting: IlicSetting = STANDARD) -> SimulatedMachine:
    """Make the machine with exactly known curves, for the product's planner."""
    gpu = DeviceInfo(
        name="gpu0", kind="cuda", identity="gpu0", link=True, engines=setting.overlap.value
    )
    devices = [SimulatedDevice(gpu, setting.gpu(), MEMORY)]
    for index, core in enumerate(cores()):
        info = DeviceInfo(name=f"cpu{index}", kind="cpu", identity=f"cpu{index}")
        demand = replace(MEMORY, limit=None)
        devices.append(SimulatedDevice(info, DeviceModel(core, core), demand))
    return SimulatedMachine(LOAD, tuple(devices))


class _LearningGpu:
    """The GPU as the Balancer's model: psi_t measured so far, learnt from its own chunks."""

    def __init__(self, setting: IlicSetting) -> None:
        self._overlap, self._exact = setting.overlap, setting.gpu()
        self._curves = {name: PiecewiseLinear() for name in ("total", "compute", "h2d", "d2h")}
        # By curve and size; a PiecewiseLinear that learns forgets sooner.
        self._times: dict[str, dict[float, list[float]]] = {name: {} for name in self._curves}
        self.steps: list[GpuStep] = []

    @property
    def points(self) -> Any:
        return self._curves["total"].points

    def time(self, x: Any, /) -> Any:
        return self._curves["total"].time(x)

    def speed(self, x: Any, /) -> Any:
        return self._curves["total"].speed(x)

    def run(self, share: int) -> float:
        plan = factoring(share, MEMORY)
        if self.steps:
            learnt = DeviceModel(*self._curves.values())
            plan = multi_installment(share, learnt, MEMORY, overlap=self._overlap)
        played = timeline(plan, self._exact, self._overlap)
        chunks = chunk_timings(played)
        for sample in run_samples(chunks, plan.sub_distributions, share, played.makespan):
            if sample.curve in self._times:
                self._times[sample.curve].setdefault(sample.units, []).append(sample.seconds)
        for name, times in self._times.items():
            units = np.array(sorted(times))
            latest = [times[x][-REMEMBERED:] for x in units.tolist()]
            medians = rising(
                np.array(list(map(robust_median, latest))), np.array(list(map(len, latest)))
            )
            self._curves[name] = PiecewiseLinear().through(units, medians)
        observations = list(map(len, self._times["total"].values()))
        step = GpuStep(
            plan,
            played.makespan,
            timeline(plan, self._exact, Overlap.NONE).makespan,
            float(self._exact.total.time(share)),
            tuple(map(tuple, self.points.tolist())),
            sum(observations) - len(observations),
        )
        self.steps.append(step)
        return played.makespan


@dataclass(frozen=True)
class _SequentialPhases:
    phases: tuple[SpeedFunction, ...]

    def time(self, x: Any, /) -> Any:
        return sum(phase.time(x) for phase in self.phases)

    def speed(self, x: Any, /) -> Any:
        return x / self.time(x)


# ---- beside the paper's figures

SOURCE = "Ilic & Sousa 2012, HeteroPar 2011"


class PublishedRun(NamedTuple):
    """A run of the paper: shares, the GPU's chunks, points and repeats so far, and its gain."""

    shares: Shares
    chunks: tuple[tuple[int, ...], ...]
    points: int
    repeats: int | None
    gain: float


PAPER_RUNS = (
    PublishedRun((64, 64, 64, 64), ((32, 16, 8, 4, 2, 1, 1),), 7, 1, 1.4),
    PublishedRun(
        (181, 29, 23, 23), ((8, 14, 18, 20, 9, 1), (8, 14, 18, 20, 21, 21, 9)), 15, None, 4.6
    ),
    PublishedRun((199, 23, 17, 17), ((14, 26, 36, 16, 7, 3), (14, 26, 36, 16, 5)), 23, None, 4.5),
    PublishedRun(
        (205, 21, 15, 15), ((14, 26, 36, 16, 7, 3), (14, 26, 36, 16, 7, 3, 1)), 25, 28, 4.3
    ),
)
PAPER_STEPS, IDEAL = "paper's steps", "best plans"
FUNCTIONAL, CONSTANT = "single, functions", "single, constants"
PAPER_METHODS: dict[str, tuple[Cell, ...]] = {
    PAPER_STEPS: (4, None, None),
    FUNCTIONAL: (10, "over 2", 4.3),
    CONSTANT: ("never", 2.2, 3.2),
}
"""Runs, time of the final shares and of all runs over those of the paper's steps: section 5.1."""


def run_experiment(*, tolerance: float = TOLERANCE) -> ExperimentResult:
    engines = (Overlap.SINGLE, Overlap.FULL)
    settings = [IlicSetting(overlap, cliff) for overlap in engines for cliff in (True, False)]
    outcomes = {
        setting: {
            PAPER_STEPS: run_paper_steps(setting, tolerance=tolerance),
            FUNCTIONAL: run_single_chunks(setting, tolerance=tolerance),
            CONSTANT: run_single_chunks(setting, method="constant", tolerance=tolerance),
        }
        for setting in settings
    }
    steps, dual_steps = (outcomes[settings[i]][PAPER_STEPS] for i in (0, 2))
    tables = (
        _runs(steps),
        _chunks(steps),
        _gains(steps, "one copy engine", True),
        _gains(dual_steps, "two copy engines", False),
        _methods(outcomes),
    )
    return ExperimentResult("ilic", SOURCE, tables)


def _runs(outcome: IlicOutcome) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for at, (run, step) in enumerate(zip(outcome.trace.runs, outcome.steps, strict=True)):
        paper = PAPER_RUNS[at] if at < len(PAPER_RUNS) else None
        shares, theirs = (" ".join(map(str, r.shares)) if r else None for r in (run, paper))
        points, repeats = (paper.points, paper.repeats) if paper else (None, None)
        rows.append((at + 1, shares, theirs, len(step.total), points, step.repeats, repeats,
                     1e3 * run.makespan, run.spread))  # fmt: skip
    return Table.of(
        f"GPU and three cores, {LOAD} planes: {outcome.trace.reason}",
        "run; shares; paper's shares; points; paper's points; repeats; paper's repeats; ms;"
        " spread",
        rows,
    )


def _chunks(outcome: IlicOutcome) -> Table:
    """Tabulate the chunks, with the paper's lists timed on the simulated machine."""
    gpu, overlap = outcome.setting.gpu(), outcome.setting.overlap
    rows: list[tuple[Cell, ...]] = []
    for at, step in enumerate(outcome.steps):
        published: tuple[Cell, ...] = (None, None)
        if at < len(PAPER_RUNS):
            plan = DevicePlan(PAPER_RUNS[at].chunks)
            seconds = timeline(plan, gpu, overlap).makespan
            published = _lists(plan.sub_distributions), plan.share / seconds
        chunks, speed = _lists(step.plan.sub_distributions), step.plan.share / step.seconds
        rows.append((at + 1, chunks, published[0], speed, published[1]))
    header = "run; chunks; paper's chunks; planes/s; paper's planes/s"
    return Table.of("Chunks of the GPU's share", header, rows, names=3)


def _lists(sub_distributions: Iterable[Iterable[int]]) -> str:
    return " ".join("{" + " ".join(map(str, chunks)) + "}" for chunks in sub_distributions)


def _gains(outcome: IlicOutcome, engines: str, is_published: bool) -> Table:
    without_cliff = replace(outcome.setting, cliff=False).gpu()
    rows: list[tuple[Cell, ...]] = []
    for at, (run, step) in enumerate(zip(outcome.trace.runs, outcome.steps, strict=True)):
        share = run.shares[0]
        gain_without = float(without_cliff.total.time(share)) / step.seconds
        published = PAPER_RUNS[at].gain if is_published and at < len(PAPER_RUNS) else None
        rows.append((at + 1, share, 1e3 * step.seconds, step.single / step.one_by_one,
                     step.one_by_one / step.seconds, step.single / step.seconds, published,
                     gain_without))  # fmt: skip
    return Table.of(
        f"Speed-up of the GPU's chunks over a single one, {engines}",
        "run; share; ms; by smaller chunks; by overlap; together; paper; without the cliff",
        rows,
    )


def _all_runs(outcome: IlicOutcome) -> float:
    return sum(run.makespan for run in outcome.trace.runs)


def _methods(outcomes: Mapping[IlicSetting, Mapping[str, IlicOutcome]]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for setting, methods in outcomes.items():
        engines, cliff = setting.overlap.value, "yes" if setting.cliff else "no"
        reference = methods[PAPER_STEPS]
        seconds = reference.trace.final.makespan
        for name, outcome in methods.items():
            best = outcome.trace.final if outcome.trace.reason else outcome.trace.best
            runs: Cell = len(outcome.trace.runs) if outcome.trace.reason else "never"
            rows.append((
                engines, cliff, name, best.shares[0], 1e3 * best.makespan, runs,
                best.makespan / seconds, _all_runs(outcome) / _all_runs(reference),
                *(PAPER_METHODS[name] if setting == STANDARD else (None, None, None)),
            ))  # fmt: skip
        subject = machine(setting)
        plan = ideal_plan(subject)
        ideal, share = makespan(subject.play(plan)), plan.shares["gpu0"]
        rows.append((
            engines, cliff, IDEAL, share, 1e3 * ideal, None, ideal / seconds, *[None] * 4,
        ))  # fmt: skip
    header = (
        "engines; cliff; method; GPU's share; ms; runs; time / steps'; all runs / steps';"
        " paper's runs; paper's time; paper's all runs"
    )
    return Table.of("Methods; best plans: all curves known", header, rows, 3)
