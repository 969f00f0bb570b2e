"""How long the path of a job is: calls of functions below `hetsched/` and `workloads/`.

    python -m benchmarks.job_path     lists the files, too

Warm jobs, one after the other, are counted from submission to result in the client, the daemon and
its device processes, with what the daemon does between them; files are those of functions that run
in at least every second job. Planning and learning are counted in this process.
"""

from __future__ import annotations

import os
import runpy
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import hetsched_workloads

import hetsched
from benchmarks.planning_time import machine
from benchmarks.serving import daemon
from hetsched.planner import learning
from hetsched.planner.learning import DeviceRun, Run
from hetsched.planner.planner import Planner

RECORDER = Path(__file__).parent / "call_recorder"
PACKAGES = (hetsched, hetsched_workloads)
WARM_UP_JOBS, COUNTED_JOBS = 80, 20
"""After the first all variants have been tried, and good plans are repeated."""
MARK = "====\n"

Calls = Counter[tuple[str, ...]]
"""(File, function) -> how often it was called, in all processes."""


def jobs() -> list[Calls]:
    """Count what each of the warm jobs calls."""
    with tempfile.TemporaryDirectory(prefix="hs-") as folder:
        log, switch = Path(folder, "calls"), Path(folder, "switch")
        log.touch()
        switch.write_bytes(bytes(1))
        on = os.open(switch, os.O_RDWR)
        os.environ |= {
            "HETSCHED_CALLS_LOG": str(log),
            "HETSCHED_CALLS_SWITCH": str(switch),
            "HETSCHED_CALLS_ROOTS": os.pathsep.join(each.__path__[0] for each in PACKAGES),
            "PYTHONPATH": str(RECORDER),
        }
        runpy.run_path(str(RECORDER / "sitecustomize.py"))  # the client's threads begin later
        with daemon() as served, log.open("a") as calls:
            x, y = (served.client.empty((1, 64, 64), "complex64") for _ in "xy")
            x[...] = 1
            for number in range(WARM_UP_JOBS + COUNTED_JOBS):
                if number == WARM_UP_JOBS:
                    time.sleep(2.0)
                os.pwrite(on, bytes([number >= WARM_UP_JOBS]), 0)
                served.client.submit("fft", x, out=y).result(timeout=60)
                os.pwrite(on, bytes(1), 0)
                if number >= WARM_UP_JOBS:
                    print(end=MARK, file=calls, flush=True)
        sys.setprofile(None)
        parts = log.read_text(encoding="utf-8").split(MARK)[:COUNTED_JOBS]
    return [Counter(tuple(line.split("\t")[1:]) for line in part.splitlines()) for part in parts]


def usual_files(counted: list[Calls]) -> list[str]:
    """Return the files of functions that run in at least every second job."""
    files = Counter(file for job in counted for file in {file for file, _ in job})
    return sorted(file for file, count in files.items() if 2 * count >= len(counted))


def planning() -> dict[str, int]:
    """Count calls to plan a machine anew, and to learn from a run."""
    found = {}
    for what, subject in (("two cores", machine(64, 0, 2, 0)), ("a GPU", machine(256, 1, 2, 0))):
        planner, candidates = Planner(subject.load), subject.candidates(subject.true_models)
        plan = planner.next(candidates)
        again = Planner(subject.load)
        found[f"calls of a plan, {what}"] = calls_of(lambda: again.next(candidates))  # noqa: B023
        infos = {device.name: device.info for device in subject.devices}
        played = subject.play(plan)
        devices = {
            a.device: DeviceRun(a, infos[a.device], played.get(a.device, ()))
            for a in plan.assignments
        }
        run = Run(plan, devices, [*infos.values()])
        found[f"calls to learn a run, {what}"] = calls_of(lambda: learning.learn(run))  # noqa: B023
    return found


def calls_of(action: Callable[[], object]) -> int:
    """Count the calls of our functions in this thread."""
    count = 0

    def record(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event == "call" and "/hetsched/" in frame.f_code.co_filename

    sys.setprofile(record)
    try:
        action()
    finally:
        sys.setprofile(None)
    return count


def main() -> None:
    counted = jobs()
    files = usual_files(counted)
    figures = {
        "calls of a warm job": statistics.median(job.total() for job in counted),
        "files of a warm job": len(files),
        **planning(),
    }
    print("\n".join(f"{what}: {value:.4g}" for what, value in figures.items()))
    print("\n".join(files))


if __name__ == "__main__":
    main()
