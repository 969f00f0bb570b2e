"""SIGKILL of device processes at random moments of iterative jobs, which go on with the others.

Each job must give the result of an undisturbed one, and repeat at most 2 % of its work and one
iteration: its arrays are in shared memory, which outlives the processes.
"""

from __future__ import annotations

import contextlib
import math
import os
import random
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

import hetsched
from benchmarks.results import Bar, Result
from hetsched.client.job import Job
from hetsched.errors import HetschedError
from hetsched.job import Running
from robustness.counted_solvers import Counters, pause_for
from robustness.daemon import CLI, Daemon, daemon
from robustness.scale import Scale

MODULE = "robustness.counted_solvers:"
LOSS = " were lost and repeated"
"""The end of a job's note, after which the devices have gone back to what was saved."""
END_SECONDS = 120.0
MAX_DELAY = 0.8
"""The latest kill, as a fraction of an undisturbed job's time."""
KILL_ALL = 0.2
"""Fraction of the jobs during which all device processes are killed at once."""
MAX_REPEATED = 0.02
"""Fraction of a job's work, besides one iteration."""
ACCURACY = 1e-7
"""Of the results, relative to their largest element: sums are in another order."""


MIN_LOSSES = 0.2
"""Of kills, if a device with its own memory is the victim. Arbitrary: a job of unknown length
keeps no rows from the others in its first 50 iterations, of which 2 % are less than one."""


@dataclass(frozen=True)
class Machine:
    """What runs the jobs: a configuration, variables of the environment, the daemon's program.

    `victim`: the device whose process each kill hits, while it has rows; "": any.
    """

    config: str
    variables: Mapping[str, str] = field(default_factory=dict)
    module: str = CLI
    victim: str = ""


MACHINE = Machine(
    """
[[device]]
kind = "cpu"

[[device]]
kind = "emulated"
name = "emu0"
clock = "real"
compute = { gap = "20us", rate = "20Gflop/s" }
"""
)
"""Cores in one process, an emulated device in another one."""


@dataclass(frozen=True)
class Solver:
    """A job that takes about a second; sizes for `make robust`, and for the tests."""

    workload: str
    params: Mapping[str, object]
    small: Mapping[str, object]


SOLVERS = (
    Solver("CountedJacobi", {"n": 1500, "tolerance": 1e-13}, {"n": 300, "tolerance": 1e-13}),
    Solver("CountedPcg", {"n": 125000, "tolerance": 1e-10}, {"n": 8000, "tolerance": 1e-10}),
    Solver(
        "CountedKMeans",
        {"count": 50000, "dimensions": 8, "clusters": 16, "tolerance": 0, "dtype": "float64"},
        {"count": 5000, "dimensions": 4, "clusters": 8, "tolerance": 0, "dtype": "float64"},
    ),
    Solver(
        "CountedHeat",
        {"grid": "512x512", "steps": 800, "dtype": "float64"},
        {"grid": "128x128", "steps": 3000, "dtype": "float64"},
    ),
)


QUICK = ("CountedHeat",)
"""For the tests: no compiled kernels, which each new process compiles for seconds."""
TEST_SECONDS = 20.0
"""How long a job of a test lasts, at least, on any machine, unless a process of it is killed."""
MAX_JOBS = 20
"""For each kill: some end before it."""


@dataclass
class Undisturbed:
    """What a job gives if nothing happens to it."""

    outputs: dict[str, np.ndarray]
    iterations: int
    load: int
    seconds: float


@dataclass
class Counts:
    """What became of the jobs of one solver; `repeated`: iterations in each.

    `losses`: kills after which the others had to go back to what was saved.
    """

    kills: int = 0
    losses: int = 0
    late: int = 0
    wrong: int = 0
    failed: list[str] = field(default_factory=list)
    repeated: list[float] = field(default_factory=list)
    excess: list[float] = field(default_factory=list)
    status: int | None = 0


def measure(scale: Scale) -> Result:
    return kill_often(
        Result(
            "iteration_kills",
            "SIGKILL of device processes during iterative jobs",
            ("solver", "kills", "after the end", "wrong", "failed", "repeated iterations, most"),
        ),
        MACHINE,
        scale,
        kills=scale.of(2, 40, 100),
    )


def kill_often(result: Result, machine: Machine, scale: Scale, kills: int) -> Result:
    """Run jobs of all solvers on `machine`; add figures and bars to `result` and return it."""
    solvers = [s for s in SOLVERS if scale.name != "test" or s.workload in QUICK]
    each = kills // len(solvers)
    chance = random.Random(scale.seed)
    counts = {s.workload: _kill_during(s, machine, scale, chance, each) for s in solvers}
    add_figures(result, counts, kills, has_losses=bool(machine.victim))
    return result


def _kill_during(
    solver: Solver, machine: Machine, scale: Scale, chance: random.Random, kills: int
) -> Counts:
    """Run jobs of one solver under a daemon of their own: deaths in several kinds of jobs would
    bar a device from all of them. Deaths are noticed without deadlines, which keep their defaults.
    """
    count = Counts()
    least = scale.of(TEST_SECONDS, 0.0, 0.0)
    losses = scale.of(1, 0, 0) if machine.victim else 0  # else there are kills enough
    variables = dict(machine.variables)
    with daemon(machine.config, variables, start=False, module=machine.module) as served:
        counters = Counters(served.folder / "counters")
        served.environment |= counters.environment
        served.start()
        with served.client(timeout=END_SECONDS) as client:
            expected = _undisturbed(client, solver, scale)
            for _ in range(MAX_JOBS * kills):
                if count.kills >= kills and count.losses >= losses:
                    break
                before = counters.rows()
                counters.pause_each(pause_for(least, expected.seconds, expected.iterations))
                job = _submit(client, solver, scale)
                _kill(served, machine, job, expected, chance, count)
                counters.pause_each(0.0)
                _check(job, expected, count)
                _count_repeated(job, expected, count, counters.rows() - before)
        count.status = served.stop()
    return count


def _params(solver: Solver, scale: Scale) -> Mapping[str, object]:
    return solver.small if scale.name == "test" else solver.params


def _submit(client: hetsched.Client, solver: Solver, scale: Scale) -> Job:
    return client.submit(MODULE + solver.workload, seed=scale.seed, **_params(solver, scale))


def _undisturbed(client: hetsched.Client, solver: Solver, scale: Scale) -> Undisturbed:
    """Run a job three times, so that its duration is that with learnt models."""
    for _ in range(3):
        job = _submit(client, solver, scale)
        outputs = {name: np.array(array) for name, array in job.result(END_SECONDS).items()}
    report = job.report
    assert report is not None and report.iterations is not None and report.seconds is not None
    return Undisturbed(outputs, report.iterations, report.load, report.seconds)


def _kill(
    served: Daemon,
    machine: Machine,
    job: Job,
    expected: Undisturbed,
    chance: random.Random,
    count: Counts,
) -> None:
    """Kill a device process, or all of them, while the job iterates."""
    while not job.done() and not (is_iterating(job) and _has_rows(job, machine.victim)):
        time.sleep(0.001)
    time.sleep(chance.random() * MAX_DELAY * expected.seconds)
    if job.done():
        count.late += 1
        return
    count.kills += 1
    is_all = chance.random() < KILL_ALL
    processes = served.device_processes("" if is_all else machine.victim)
    for process in processes if is_all else [chance.choice(processes)]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)


def _has_rows(job: Job, victim: str) -> bool:
    """Return whether the device, if it is a certain one, has rows of the job."""
    state = job.progress()
    return not victim or (
        isinstance(state, Running)
        and any(device.share for device in state.devices if device.device == victim)
    )


def is_iterating(job: Job) -> bool:
    """Return whether the job has completed an iteration, and goes on."""
    state = job.progress()
    return isinstance(state, Running) and state.iterations_per_second is not None


def _check(job: Job, expected: Undisturbed, count: Counts) -> None:
    try:
        result = job.result(END_SECONDS)
    except HetschedError as error:
        count.failed.append(f"{type(error).__name__}: {error}")
        return
    report = job.report
    assert report is not None
    count.losses += any(note.endswith(LOSS) for note in report.notes)
    iterations = report.iterations or 0
    agree = abs(iterations - expected.iterations) <= 1 and all(
        is_close(np.asarray(result[name]), array) for name, array in expected.outputs.items()
    )
    count.wrong += not agree


def _count_repeated(job: Job, expected: Undisturbed, count: Counts, rows: int) -> None:
    iterations = job.report.iterations or 0
    computed = rows / expected.load
    count.repeated.append(computed - iterations)
    count.excess.append(computed - iterations - 1 - MAX_REPEATED * iterations)


def is_close(values: np.ndarray, expected: np.ndarray) -> bool:
    """Return whether results agree, as far as sums in another order allow."""
    scale = float(np.abs(expected).max()) or 1.0
    return bool(np.abs(values - expected).max() <= ACCURACY * scale)


def add_figures(
    result: Result, counts: Mapping[str, Counts], kills: int, *, has_losses: bool
) -> None:
    """Add a row for each solver, and the bars for `kills` in all; `has_losses`: those, too."""
    for solver, count in counts.items():
        cells = [count.kills, count.late, count.wrong, len(count.failed)]
        if has_losses:
            cells.insert(1, count.losses)
        most = max(count.repeated, default=0.0)
        result.rows.append((solver.removeprefix("Counted"), *map(str, cells), f"{most:.2f}"))
    result.data.append(
        {name: {"repeated": c.repeated, "failed": c.failed} for name, c in counts.items()}
    )
    _add_bars(result, kills, list(counts.values()))
    if has_losses:
        losses = sum(count.losses for count in counts.values())
        least = math.ceil(MIN_LOSSES * kills)
        result.bars.append(Bar("kills that lost rows of its memory", losses, least))


def _add_bars(result: Result, kills: int, counts: Sequence[Counts]) -> None:
    unclean = sum(count.status != 0 for count in counts)
    excess = max([0.0, *(value for count in counts for value in count.excess)])
    result.bars += [
        Bar("kills", sum(count.kills for count in counts), kills),
        Bar("wrong results", sum(count.wrong for count in counts), 0, at_least=False),
        Bar("jobs that failed", sum(len(count.failed) for count in counts), 0, at_least=False),
        Bar(
            "iterations repeated beyond one and 2 % of a job's",
            round(excess, 3),
            0,
            at_least=False,
        ),
        Bar("daemons that didn't stop in order", unclean, 0, at_least=False),
    ]
