"""SIGKILL of the daemon at random moments of iterative jobs, which continue from checkpoints.

A job must give the result of an undisturbed one, however often the daemon is killed, and lose at
most the work since its last checkpoint: an interval, and the time to write one.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

import hetsched
from benchmarks.results import Bar, Result
from hetsched.client.job import Job
from hetsched.errors import HetschedError, InputMissing
from robustness.counted_solvers import Counters, pause_for
from robustness.daemon import CORES, Daemon, daemon
from robustness.iteration_kills import END_SECONDS, MODULE, Solver, is_close, is_iterating
from robustness.scale import Scale

EVERY, EVERY_IN_TESTS = 0.5, 0.1
"""Seconds between two checkpoints; tests wait for one before each kill."""
MIN_SECONDS, MIN_SECONDS_IN_TESTS = 3.0, 20.0
"""A job during which the daemon is to be killed takes at least so long, on any machine."""
WRITING = 0.3
"""Seconds that a checkpoint may take, from the pause until it is on disk."""
INTERVALS = 3
"""From the first iteration under a daemon to its end, at most. Arbitrary."""
MAX_WITHOUT_PROGRESS = 2
"""Lives of a daemon in a row that end before a checkpoint."""
MAX_JOBS = 10
"""For each kill: some end before it."""
MIN_ITERATIONS = 3
"""For a rate; with fewer, that of the undisturbed job is taken."""

SOLVERS = (
    Solver(
        "CountedJacobi",
        {"n": 1500, "omega": 0.1, "tolerance": 1e-12},
        {"n": 400, "omega": 0.02, "tolerance": 1e-10},
    ),
    Solver("CountedPcg", {"n": 343000, "tolerance": 1e-10}, {"n": 27000, "tolerance": 1e-10}),
    Solver(
        "CountedKMeans",
        {"count": 200000, "dimensions": 8, "clusters": 48, "tolerance": 0, "dtype": "float64"},
        {"count": 20000, "dimensions": 4, "clusters": 16, "tolerance": 0, "dtype": "float64"},
    ),
    Solver(
        "CountedHeat",
        {"grid": "512x512", "steps": 4000, "dtype": "float64"},
        {"grid": "128x128", "steps": 6000, "dtype": "float64"},
    ),
)


@dataclass
class Expected:
    """What an undisturbed job gives, and the iterations per second of one that is to be disturbed.

    `pause`: seconds to wait in each of its iterations.
    """

    outputs: dict[str, np.ndarray]
    iterations: int
    load: int
    rate: float
    pause: float


@dataclass
class Counts:
    """What became of the jobs of one solver; `lost`: seconds of work at each kill."""

    kills: int = 0
    jobs: int = 0
    continued: int = 0
    wrong: int = 0
    failed: list[str] = field(default_factory=list)
    lost: list[float] = field(default_factory=list)


@dataclass
class Life:
    """A daemon's life with one job.

    `after`: the iteration after which it began; `rows`: those computed by all jobs before. At the
    first complete iteration and just before the kill: time, seconds, and rows.
    """

    after: int
    rows: int
    begin: tuple[float, int] = (0.0, 0)
    end: tuple[float, int] = (0.0, 0)


def measure(scale: Scale) -> Result:
    kills = scale.of(2, 20, 50)
    chance = random.Random(scale.seed)
    solvers = SOLVERS[-1:] if scale.name == "test" else SOLVERS  # it compiles nothing
    counts = {solver.workload: Counts() for solver in solvers}
    with daemon(CORES + scale.deadlines, start=False) as served:
        counters = Counters(served.folder / "counters")
        served.environment |= counters.environment
        served.start()
        for solver in solvers:
            Killer(served, counters, solver, scale, chance, counts[solver.workload]).run(
                kills // len(solvers)
            )
        status = served.stop()
    return _result(kills, counts, status)


class Killer:
    """Runs jobs of one solver, and kills the daemon during them."""

    def __init__(
        self,
        served: Daemon,
        counters: Counters,
        solver: Solver,
        scale: Scale,
        chance: random.Random,
        counts: Counts,
    ) -> None:
        self._served, self._counters = served, counters
        self._solver, self._scale = solver, scale
        self._chance, self._counts = chance, counts
        self._started, self._without_progress = time.time(), 0
        self._is_test = scale.name == "test"
        self._every = EVERY_IN_TESTS if self._is_test else EVERY
        self._min_seconds = MIN_SECONDS_IN_TESTS if self._is_test else MIN_SECONDS
        self._checkpoint = served.folder / f"{solver.workload}.ckpt"

    def run(self, kills: int) -> None:
        """Run jobs until the daemon has been killed `kills` times."""
        expected = self._undisturbed()
        counts = self._counts
        while counts.kills < kills and counts.jobs < MAX_JOBS * kills and not counts.failed:
            self._counts.jobs += 1
            self._job(f"{self._solver.workload}-{self._counts.jobs}", expected, kills)

    def _params(self) -> Mapping[str, object]:
        return self._solver.small if self._is_test else self._solver.params

    def _submit(self, client: hetsched.Client, ident: str = "") -> Job:
        options = (
            {"id": ident, "checkpoint": self._checkpoint, "every": self._every} if ident else {}
        )
        seed = self._scale.seed
        return client.submit(
            MODULE + self._solver.workload, seed=seed, **options, **self._params()
        )

    def _undisturbed(self) -> Expected:
        with self._served.client(timeout=END_SECONDS) as client:
            for _ in range(2):
                job = self._submit(client)
                outputs = {
                    name: np.array(array) for name, array in job.result(END_SECONDS).items()
                }
            report = job.report
            assert report is not None and report.iterations and report.seconds
            rate = report.iterations / max(report.seconds, self._min_seconds)
            pause = pause_for(self._min_seconds, report.seconds, report.iterations)
            return Expected(outputs, report.iterations, report.load, rate, pause)

    def _job(self, ident: str, expected: Expected, kills: int) -> None:
        """Run one job to its end, across as many daemons as it takes."""
        life = Life(0, self._counters.rows())
        while True:
            may_kill = self._counts.kills < kills
            self._counters.pause_each(expected.pause if may_kill else 0.0)
            with self._served.client(timeout=END_SECONDS) as client:
                job = self._submit(client, ident)
                if not may_kill or not self._lives_until_kill(job, life):
                    self._check(job, expected)
                    return
                self._served.kill()
                life = self._next_life(life, job.id, expected)

    def _lives_until_kill(self, job: Job, life: Life) -> bool:
        """Wait until the daemon shall be killed; return whether the job still runs then."""
        while not is_iterating(job) and not job.done():
            time.sleep(0.002)
        life.begin = self._now()
        end = life.begin[0] + self._chance.uniform(0.0, INTERVALS * self._every)
        while not job.done() and (time.monotonic() < end or not self._may_be_killed()):
            time.sleep(0.002)
        life.end = self._now()
        return not job.done()

    def _may_be_killed(self) -> bool:
        """Return whether it is time enough: with few kills each follows a checkpoint.

        And so does the third in a row: a job that three daemons didn't survive is given up.
        """
        if self._without_progress < MAX_WITHOUT_PROGRESS and not self._is_test:
            return True
        return self._checkpoint.exists() and self._checkpoint.stat().st_mtime > self._started

    def _now(self) -> tuple[float, int]:
        return time.monotonic(), self._counters.rows()

    def _next_life(self, life: Life, number: int, expected: Expected) -> Life:
        """Start the next daemon, and count what the job has lost."""
        self._counts.kills += 1
        self._started = time.time()
        self._served.start()
        after = _continued_after(self._served.log, number)
        self._without_progress = 0 if after > life.after else self._without_progress + 1
        self._counts.continued += after > 0
        reached = life.after + (life.end[1] - life.rows) / expected.load
        computed = (life.end[1] - life.begin[1]) / expected.load
        seconds = life.end[0] - life.begin[0]
        rate = computed / seconds if computed >= MIN_ITERATIONS else expected.rate
        self._counts.lost.append((reached - after) / rate)
        return Life(after, self._counters.rows())

    def _check(self, job: Job, expected: Expected) -> None:
        try:
            result = job.result(END_SECONDS)
        except InputMissing:  # it ended just before the kill, which took its result and no work
            self._counts.kills -= 1
            self._counts.lost.pop()
            return
        except HetschedError as error:
            self._counts.failed.append(f"{type(error).__name__}: {error}")
            return
        agree = abs((job.report.iterations or 0) - expected.iterations) <= 1 and all(
            is_close(np.asarray(result[name]), array) for name, array in expected.outputs.items()
        )
        self._counts.wrong += not agree


def _continued_after(log: Path, number: int) -> int:
    """Return the iteration after which the newest daemon continues a job; 0: from the start."""
    text = log.read_text(encoding="utf-8").rpartition(" configuration: ")[2]
    matches = re.findall(rf"job {number} continues after iteration (\d+)", text)
    return int(matches[-1]) if matches else 0


def _result(kills: int, counts: Mapping[str, Counts], status: int | None) -> Result:
    result = Result(
        "checkpoint_kills",
        f"SIGKILL of the daemon during iterative jobs with a checkpoint every {EVERY} s",
        ("solver", "kills", "jobs", "continued", "wrong", "failed", "work lost, median", "most"),
    )
    for solver, count in counts.items():
        lost = sorted(count.lost) or [0.0]
        cells = count.kills, count.jobs, count.continued, count.wrong, len(count.failed)
        seconds = f"{lost[len(lost) // 2]:.2f} s", f"{lost[-1]:.2f} s"
        result.rows.append((solver.removeprefix("Counted"), *map(str, cells), *seconds))
    every = list(counts.values())
    result.data.append({name: {"lost": c.lost, "failed": c.failed} for name, c in counts.items()})
    lost = max([0.0, *(value for count in every for value in count.lost)])
    result.bars += [
        Bar("kills", sum(count.kills for count in every), kills),
        Bar("wrong results", sum(count.wrong for count in every), 0, at_least=False),
        Bar("jobs that failed", sum(len(count.failed) for count in every), 0, at_least=False),
        Bar("jobs that continued from a checkpoint",
            sum(count.continued for count in every), 1),
        Bar("seconds of work lost by a kill: an interval, and the time to write a checkpoint",
            round(lost, 3), EVERY + WRITING, at_least=False),
        Bar("exit status of the daemon", -1 if status is None else status, 0, at_least=False),
    ]  # fmt: skip
    return result
