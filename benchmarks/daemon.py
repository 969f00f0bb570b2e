"""What durability costs: a job's acknowledgement, and a restart with many jobs in the journal."""

from __future__ import annotations

import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from benchmarks import contest
from benchmarks.contest import Found, Measured, milliseconds
from benchmarks.serving import HETSCHED, PATIENCE, connected, places

TITLE = "Durable jobs"
CASES = ("durable job", "restart with 1000 jobs", "restart with 10000 jobs")
QUICK = CASES[:2]
ROUNDS = 5
JOBS = 200
COLUMNS = ("case", "whole, ms", "write and fsync of 4 KiB, ms")
CONFIG = '[queue]\nlimit = 100000\nper_client = 100000\n[[device]]\nkind = "cpu"\n'


def measure(case: str, rounds: int) -> contest.Benchmarks:
    with tempfile.TemporaryDirectory(prefix="hs-") as folder, places(folder):
        config = Path(folder) / "queue.toml"
        config.write_text(CONFIG)
        if case == "durable job":
            return contest.race(case, {"jobs": lambda: acknowledgements(config)}, rounds)
        jobs = int(case.split()[2])
        submit(config, jobs)
        return contest.race(case, {"restart": lambda: restart(config, jobs)}, rounds)


def serve(config: Path) -> subprocess.Popen[bytes]:
    with config.with_name("log").open("ab") as log:
        return subprocess.Popen([HETSCHED, "serve", "--config", str(config)], stderr=log)


def submit(config: Path, jobs: int) -> None:
    """Leave so many jobs in the journal, on hold."""
    process = serve(config)
    with connected(process) as client:
        for _ in range(jobs):
            client.submit("fft", batch="1x8x8", hold=True)
    end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait(PATIENCE)


def acknowledgements(config: Path) -> Measured:
    """Measure the submission of jobs one after the other, and what the disk needs for it."""
    whole, disk = [], []
    process = serve(config)
    with connected(process) as client, config.with_name("page").open("wb", buffering=0) as file:
        for _ in range(JOBS):
            start = time.perf_counter()
            client.submit("fft", batch="1x8x8", hold=True)
            middle = time.perf_counter()
            file.write(bytes(4096))
            os.fsync(file.fileno())
            whole.append(middle - start)
            disk.append(time.perf_counter() - middle)
        client.cancel_all()
    end(process)
    return Measured({"whole": statistics.median(whole), "disk": statistics.median(disk)})


def restart(config: Path, jobs: int) -> Measured:
    """Measure from the start of a daemon after a kill until its first answer."""
    start = time.perf_counter()
    process = serve(config)
    with connected(process) as client:
        seconds = time.perf_counter() - start
        assert len(client.status(("held",))) == jobs
    end(process)
    return Measured({"whole": seconds})


def row(case: str, found: Found, facts: object) -> tuple[str, ...]:
    return (
        case,
        milliseconds(found["whole"]),
        milliseconds(found["disk"]) if "disk" in found else "",
    )
