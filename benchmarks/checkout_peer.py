"""One checkout's side of `against`: reads requests from standard input, replies with seconds.

Runs with the checkout's own Python, in its folder. Uses public names only, and `serving` and
`planning_time` of the checkout's benchmarks, so that it works in older checkouts too.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path[0] = str(Path.cwd())

from benchmarks.serving import Served, daemon  # noqa: E402 - of the current folder

COMMAND = Path(sys.prefix) / "bin/hetsched"
WARM_UP_JOBS = 30
"""Runs after which all variants have been tried and the fastest is used."""
WARM_UP_SOLVES = 3
IN_FLIGHT = 50
Answer = dict[str, float]


class Checkout:
    """The client of a daemon of this checkout."""

    def __init__(self, served: Served) -> None:
        self.client, self._pid = served.client, served.process.pid
        self._arrays: dict[str, tuple[Any, ...]] = {}

    def jobs(self, batch: str, count: int) -> Answer:
        """Return medians over `count` warm jobs: submit to result, and all but the computation.

        `daemon`: the processor time of the daemon's own process for each.
        """
        self._warm_up(batch)
        before = self._processor_seconds()
        pairs = self._run(batch, count)
        daemon = (self._processor_seconds() - before) / count
        own = statistics.median(total - running for total, running in pairs)
        total = statistics.median(total for total, _ in pairs)
        return {"total": total, "own": own, "daemon": daemon}

    def burst(self, batch: str, count: int) -> Answer:
        """Return the seconds of a job if many are in flight."""
        self._warm_up(batch)
        x, y = self._arrays[batch]
        start = time.perf_counter()
        for first in range(0, count, IN_FLIGHT):
            jobs = [self.client.submit("fft", x, out=y) for _ in range(first, first + IN_FLIGHT)]
            for job in jobs:
                job.result()
        return {"job": (time.perf_counter() - start) / count}

    def _warm_up(self, batch: str) -> None:
        if batch in self._arrays:
            return
        shape = tuple(map(int, batch.split("x")))
        self._arrays[batch] = tuple(self.client.empty(shape, "complex64") for _ in "xy")
        self._arrays[batch][0][...] = 1
        self._run(batch, WARM_UP_JOBS)

    def _processor_seconds(self) -> float:
        fields = Path(f"/proc/{self._pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def _run(self, batch: str, count: int) -> list[tuple[float, float]]:
        x, y = self._arrays[batch]
        pairs = []
        for _ in range(count):
            start = time.perf_counter()
            job = self.client.submit("fft", x, out=y)
            job.result()
            total = time.perf_counter() - start
            assert job.report is not None
            pairs.append((total, job.report.seconds or 0.0))
        return pairs

    def plan(self, load: int, gpus: int, cores: int, seed: int) -> Answer:
        """Return seconds to plan a machine that is new to the planner, and to plan it again."""
        from benchmarks import planning_time

        subject, cache = planning_time.machine(load, gpus, cores, seed), planning_time.PlanCache()
        cold, warm = (planning_time.once(subject, cache) for _ in range(2))
        return {"cold": cold, "warm": warm}

    def solve(self, workload: str, params: dict[str, Any], count: int) -> Answer:
        """Return the median of the seconds that warm jobs compute, on generated inputs."""
        if workload not in self._arrays:
            self._arrays[workload] = ()
            count += WARM_UP_SOLVES
        jobs = [self.client.submit(workload, **params) for _ in range(count)]
        for job in jobs:
            job.result()
        return {"computing": statistics.median(job.report.seconds for job in jobs)}

    def command(self, *words: str) -> Answer:
        """Return seconds of a whole `hetsched` process."""
        start = time.perf_counter()
        subprocess.run([str(COMMAND), *words], check=True, capture_output=True)
        return {"process": time.perf_counter() - start}


def main() -> None:
    with daemon() as served:
        checkout = Checkout(served)
        actions: dict[str, Callable[..., Answer]] = {
            "jobs": checkout.jobs,
            "plan": checkout.plan,
            "command": checkout.command,
            "burst": checkout.burst,
            "solve": checkout.solve,
        }
        print("ready", flush=True)
        for line in sys.stdin:
            action, arguments = json.loads(line)
            print(json.dumps(actions[action](*arguments)), flush=True)


if __name__ == "__main__":
    main()
