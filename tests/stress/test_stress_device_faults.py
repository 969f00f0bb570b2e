"""Device processes that are killed, stopped, crash, hang, exit or raise: jobs go on elsewhere."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from served import CORES, Daemon, serving

import hetsched
from hetsched.errors import HetschedError

pytestmark = pytest.mark.stress
CONFIG = '[deadlines]\nstart = "5s"\nstep = "20s"\nchunk = "2s"\nstop = "12s"\n' + CORES
SIGNALS = {"SIGKILL": signal.SIGKILL, "SIGSTOP": signal.SIGSTOP}
DEADLY = ("kill", "exit", "segfault")
SILENT = ("hang", "spin", "stop", "SIGSTOP")
"""These end with a deadline; the others at once."""
RAISING = ("error", "SystemExit", "memory")
"""These fail their job, and no other fault does."""
FAULTS = (*SIGNALS, *DEADLY, *SILENT[:3], *RAISING)
END_SECONDS = 150.0
MAX_SECONDS = 1.0
"""From a death or an exception to the end of the next job, which takes milliseconds."""
MAX_SILENT_SECONDS = 22.0
"""The same from a silence: a chunk's deadline, or a step's."""


def device_processes(daemon: Daemon) -> list[psutil.Process]:
    """Return the processes of devices, once there are any."""
    while True:
        found = []
        for process in daemon.family():
            with contextlib.suppress(psutil.Error):
                if process.name().startswith("hetsched cpu"):
                    found.append(process)
        if found:
            return found
        time.sleep(0.01)


class Round:
    """A job in which `fault` happens, and another one behind it."""

    def __init__(self, daemon: Daemon, client: hetsched.Client, chance: Any, marker: Path) -> None:
        self.daemon, self.client, self.chance, self.marker = daemon, client, chance, marker

    def submit(self, **options: Any) -> tuple[Any, float]:
        units = self.chance.randint(1, 200)
        x = self.client.empty((units, 4), "float64")
        x[...] = self.chance.random()
        job = self.client.submit("toys:Faulty", x, units=units, verify=True, **options)
        return job, 2 * float(x[0, 0]) + 1

    def end(self, submitted: tuple[Any, float]) -> str:
        job, value = submitted
        try:
            return "done" if (job.result(END_SECONDS) == value).all() else "wrong"
        except HetschedError as error:
            return f"failed: {error}"

    def run(self, fault: str) -> tuple[str, str, float | None]:
        """Return both jobs' ends, and the seconds from the fault to the second end."""
        if fault not in SIGNALS:
            steps = (
                ("prepare", "compute", "check") if fault in (*DEADLY, *SILENT) else ("compute",)
            )
            options = {"fault": fault, "step": self.chance.choice(steps)}
            job = self.submit(**options, marker=str(self.marker))
        else:
            job = self.submit()
            time.sleep(self.chance.random() * 0.02)
            victim = self.chance.choice(device_processes(self.daemon))
            os.kill(victim.pid, SIGNALS[fault])
            self.marker.touch()
        following = self.submit()
        ends = self.end(job), self.end(following)
        seconds = time.time() - self.marker.stat().st_mtime if self.marker.exists() else None
        if fault == "SIGSTOP":  # if no job has needed it, it mustn't delay the next round
            with contextlib.suppress(psutil.Error):
                victim.resume()
        return *ends, seconds


def test_device_faults_cost_no_other_job(
    scaled: Callable[[float], int], record_property: Any, tmp_path: Path
) -> None:
    chance, seconds, ends = random.Random(0), defaultdict(list), Counter[str]()
    faults = [*FAULTS, *chance.choices(FAULTS, k=scaled(20))][: scaled(30)]
    with serving(CONFIG) as daemon, daemon.client() as client:
        for number, fault in enumerate(faults):
            round = Round(daemon, client, chance, tmp_path / str(number))
            end, next_end, took = round.run(fault)
            assert next_end == "done", fault
            assert end == "done" or (fault in RAISING and end.startswith("failed: ")), (fault, end)
            ends[end.partition(":")[0]] += 1
            if took is not None:
                seconds["silence" if fault in SILENT else "death or exception"].append(took)
        assert daemon.stop() == 0
    for what, figure in ends.items():
        record_property(what, figure)
    for kind, figures in seconds.items():
        record_property(f"seconds to the end of the next job after a {kind}", max(figures))
    assert max(seconds["death or exception"]) <= MAX_SECONDS
    assert max(seconds["silence"]) <= MAX_SILENT_SECONDS
