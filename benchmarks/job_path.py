"""How long the path of a job is: calls of functions below `hetsched/` and `workloads/`.

    python -m benchmarks.job_path [PYTHON]     of another environment; lists the files, too

Warm jobs, one after the other, are counted from submission to result in the client, the daemon and
its device processes, with what the daemon does between them; files are those of functions that run
in at least every second job. Planning and learning are counted in this process. An idle daemon's
time is with one client, its memory after jobs and without clients.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import psutil

from benchmarks.planning_time import machine
from hetsched.planner import learning
from hetsched.planner.learning import DeviceRun, Run
from hetsched.planner.planner import Planner

RECORDER = Path(__file__).parent / "call_recorder"
WARM_UP_JOBS, COUNTED_JOBS = 80, 20
"""After the first all variants have been tried, and good plans are repeated."""
IDLE_SECONDS = 20.0
REST_SECONDS = 4.0
"""Within which a daemon that has lost its client has ended what it doesn't need."""
CONFIG = '[arena]\nwarm_for = "1s"\n[[device]]\nkind = "cpu"\n'
DRIVER = """
import sys, time
import hetsched

switch, log, warm_up, counted = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
with hetsched.Client() as client:
    x, y = (client.empty((1, 64, 64), "complex64") for _ in "xy")
    x[...] = 1
    for _ in range(warm_up):
        client.submit("fft", x, out=y).result(timeout=60)
    time.sleep(2.0)
    if not switch:
        print("idle", flush=True)
        sys.stdin.readline()
    else:
        for _ in range(counted):
            with open(switch, "r+b", buffering=0) as file, open(log, "a") as calls:
                file.write(bytes([1]))
                client.submit("fft", x, out=y).result(timeout=60)
                file.seek(0)
                file.write(bytes([0]))
                calls.write("====\\n")
"""

Calls = Counter[tuple[str, str]]
"""(File, function) -> how often it was called, in all processes."""


def jobs(python: Path) -> list[Calls]:
    """Count what each of the warm jobs calls."""
    with tempfile.TemporaryDirectory(prefix="hs-") as temporary:
        log, switch = Path(temporary, "calls"), Path(temporary, "switch")
        log.touch()
        switch.write_bytes(bytes(1))
        recorder = {
            "HETSCHED_CALLS_LOG": str(log),
            "HETSCHED_CALLS_SWITCH": str(switch),
            "HETSCHED_CALLS_ROOTS": os.pathsep.join(_roots(python)),
            "PYTHONPATH": str(RECORDER),
        }
        with _client(python, Path(temporary), str(switch), str(log), **recorder) as (_, client):
            client.wait(120)
        parts = log.read_text(encoding="utf-8").split("====\n")[:COUNTED_JOBS]
    return [Counter(tuple(line.split("\t")[1:]) for line in part.splitlines()) for part in parts]


def usual_files(counted: list[Calls]) -> list[str]:
    """Return the files of functions that run in at least every second job."""
    files = Counter(file for job in counted for file in {file for file, _ in job})
    return sorted(file for file, count in files.items() if 2 * count >= len(counted))


def idle(python: Path) -> tuple[float, float]:
    """Return an idle daemon's processor seconds a minute, with one client, and its bytes."""
    with (
        tempfile.TemporaryDirectory(prefix="hs-") as folder,
        _client(python, Path(folder), "", "") as (daemon, client),
    ):
        client.stdout.readline()
        before = _processor_seconds(daemon)
        time.sleep(IDLE_SECONDS)
        used = _processor_seconds(daemon) - before
        client.stdin.close()
        client.wait(60)
        time.sleep(REST_SECONDS)
        memory = sum(process.memory_full_info().pss for process in _family(daemon))
    return used * 60 / IDLE_SECONDS, memory


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


@contextmanager
def _client(
    python: Path, folder: Path, switch: str, log: str, **variables: str
) -> Iterator[tuple[psutil.Process, subprocess.Popen[str]]]:
    """Start a daemon, and a client that runs `DRIVER`."""
    config = folder / "config.toml"
    config.write_text(CONFIG, encoding="utf-8")
    environment = os.environ | variables | {
        "HETSCHED_CONFIG": str(config),
        "HETSCHED_RUNTIME_DIR": str(folder / "run"),
        "HETSCHED_STATE_DIR": str(folder / "state"),
    }  # fmt: skip
    hetsched, pipe = python.parent / "hetsched", subprocess.PIPE
    daemon = subprocess.Popen([hetsched, "serve"], env=environment, stderr=subprocess.DEVNULL)
    try:
        ping = [hetsched, "ping"]
        while subprocess.run(ping, env=environment, capture_output=True, check=False).returncode:
            time.sleep(0.1)
        command = [python, "-P", "-c", DRIVER, switch, log, str(WARM_UP_JOBS), str(COUNTED_JOBS)]
        with subprocess.Popen(
            command, env=environment, stdin=pipe, stdout=pipe, text=True
        ) as client:
            yield psutil.Process(daemon.pid), client
    finally:
        daemon.terminate()
        daemon.wait(60)


def _family(daemon: psutil.Process) -> list[psutil.Process]:
    return [daemon, *daemon.children(recursive=True)]


def _processor_seconds(daemon: psutil.Process) -> float:
    return sum(sum(process.cpu_times()[:2]) for process in _family(daemon))


def _roots(python: Path) -> list[str]:
    code = (
        "import hetsched, hetsched_workloads\n"
        "print(hetsched.__path__[0], hetsched_workloads.__path__[0], sep='\\n')"
    )
    done = subprocess.run([python, "-P", "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def main() -> None:
    python = Path(sys.argv[1] if len(sys.argv) > 1 else sys.executable).absolute()
    counted = jobs(python)
    files = usual_files(counted)
    seconds, memory = idle(python)
    figures = {
        "calls of a warm job": statistics.median(job.total() for job in counted),
        "files of a warm job": len(files),
        "idle daemon, ms of processor time a minute": seconds * 1000,
        "idle daemon, MiB": memory / 2**20,
        **planning(),
    }
    print("\n".join(f"{what}: {value:.4g}" for what, value in figures.items()))
    print("\n".join(files))


if __name__ == "__main__":
    main()
