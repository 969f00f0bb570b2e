"""Device processes that are stopped, hang or end in any stage: their job goes on elsewhere."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cores import needs_two_cores
from real_daemon import serving

import hetsched
from hetsched.client.client import Client
from hetsched.config import parse
from hetsched.engine.processes import device_process
from hetsched.errors import JobFailed, TryAgain
from hetsched.job import JobState, Running

TESTS = Path(__file__).parent.parent
FAULTY = "faulty_workload:Faulty"
pytestmark = needs_two_cores
CORES = """
[deadlines]
silence = "700ms"
fence = "500ms"
chunk = "1s"
unpredicted_chunk = "1s"
prepare = "2s"
fill = "2s"
check = "2s"

[[device]]
kind = "cpu"
count = 2
hardware_threads = true
"""
SLOW = """
[[device]]
kind = "emulated"
clock = "real"
compute = { unit = "1ms" }
"""


@pytest.fixture(scope="module")
def local() -> Iterator[hetsched.Local]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(TESTS))
        with hetsched.Local(parse(CORES + SLOW, "test"), learn=False) as local:
            yield local


def works(local: hetsched.Local) -> bool:
    x = np.ones((40, 4))
    return bool((local.submit(FAULTY, x, units=40).result(timeout=60) == 3).all())


@pytest.mark.parametrize("step", ["prepare", "fill", "compute", "check"])
def test_a_process_that_is_stopped_is_replaced(
    local: hetsched.Local, tmp_path: Path, step: str
) -> None:
    marker = str(tmp_path / "stopped")

    job = local.submit(FAULTY, units=40, fault="stop", step=step, marker=marker, verify=True)

    assert job.result(timeout=60).shape == (40, 4)
    reasons = ("no sign of life for 700 ms", "takes longer than")  # whichever is first
    assert any(reason in note for note in job.report.notes for reason in reasons)
    assert works(local)


@pytest.mark.parametrize("step", ["prepare", "fill", "compute", "check"])
@pytest.mark.parametrize("fault", ["hang", "spin"])
def test_a_process_that_hangs_is_replaced(
    local: hetsched.Local, tmp_path: Path, step: str, fault: str
) -> None:
    marker = str(tmp_path / "hung")

    job = local.submit(FAULTY, units=40, fault=fault, step=step, marker=marker, verify=True)

    assert job.result(timeout=60).shape == (40, 4)
    assert any("takes longer than" in note for note in job.report.notes)


@pytest.mark.parametrize("fault", ["segfault", "exit", "kill"])
def test_a_kernel_that_ends_its_process_costs_no_job(
    local: hetsched.Local, tmp_path: Path, fault: str
) -> None:
    marker = str(tmp_path / "ended")

    job = local.submit(FAULTY, units=40, fault=fault, marker=marker, verify=True)

    assert job.result(timeout=60).shape == (40, 4)


@pytest.mark.parametrize("fault", ["SystemExit", "recursion", "memory", "unprintable"])
def test_a_kernel_that_raises_anything_fails_its_job_only(
    local: hetsched.Local, fault: str
) -> None:
    with pytest.raises(JobFailed, match="the kernel failed"):
        local.submit(FAULTY, units=40, fault=fault).result(timeout=60)

    assert works(local)


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait until `condition` holds, for a minute at most."""
    pause = threading.Event()
    assert any(condition() or pause.wait(0.01) for _ in range(6000))


def when_computing(action: Callable[[int], None]) -> Callable[[JobState], None]:
    def follow(state: JobState) -> None:
        if isinstance(state, Running) and state.stage == "computing":
            action(state.job)

    return follow


@pytest.mark.parametrize("fault", ["hang", "stop"])
def test_a_job_on_a_stuck_device_can_be_cancelled(local: hetsched.Local, fault: str) -> None:
    follow = when_computing(local.cancel)

    job = local.submit(FAULTY, units=40, fault=fault, follow=follow)

    with pytest.raises(CancelledError):
        job.result(timeout=60)
    assert works(local)


def silent_emulated(spec: Any, fd: int) -> subprocess.Popen[bytes]:
    """A process that never says hello in place of that of an emulated device."""
    if spec.package != "hetsched.devices.emulated":
        return original_spawn(spec, fd)
    command = [sys.executable, "-c", "import time; time.sleep(1000)"]
    return subprocess.Popen(command, stderr=subprocess.PIPE)


original_spawn = device_process._spawn


@pytest.mark.parametrize(("hello", "devices"), [("1h", "cpu"), ("8s", "cpu,emulated")])
def test_a_process_that_never_says_hello_blocks_no_job(
    monkeypatch: pytest.MonkeyPatch, hello: str, devices: str
) -> None:
    """A job on the cores doesn't wait for it at all, one on all devices until the deadline."""
    monkeypatch.setenv("PYTHONPATH", str(TESTS))
    monkeypatch.setattr(device_process, "_spawn", silent_emulated)
    config = CORES.replace("[deadlines]", f'[deadlines]\nexit = "1s"\nhello = "{hello}"') + SLOW

    with hetsched.Local(parse(config, "test"), learn=False) as local:
        job = local.submit(FAULTY, np.ones((40, 4)), units=40, devices=devices)
        assert (job.result(timeout=60) == 3).all()


@pytest.mark.parametrize(
    ("fault", "step"),
    [("hang", "compute"), ("stop", "compute"), ("stop", "prepare"), ("hang", "fill")],
)
def test_a_daemon_with_a_stuck_device_ends_at_sigterm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str, step: str
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(TESTS))
    marker = tmp_path / "stuck"
    with serving(tmp_path, CORES) as daemon, Client(str(tmp_path), reconnect=0) as client:
        options = {"fault": fault, "step": step, "marker": str(marker), "recurs": True}
        job = client.submit(FAULTY, units=40, **options)
        wait_until(marker.exists)

        daemon.process.terminate()

        assert daemon.process.wait(60) == 0
        with pytest.raises((TryAgain, JobFailed)):  # it may have been tried often enough
            job.result(timeout=60)
