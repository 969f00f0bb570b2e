"""Device processes that die, stop, hang or crash cost no job; the next one is right, too."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from served import CORES, Daemon, Gate, refused, serving, until

import hetsched

TOY, FAULTY = "toys:Toy", "toys:Faulty"
IMPATIENT = (
    """
[deadlines]
step = "3s"
chunk = "1s"
stop = "6s"
"""
    + CORES
)


@pytest.fixture(scope="module")
def impatient() -> Iterator[Daemon]:
    with serving(IMPATIENT) as daemon:
        yield daemon


@pytest.fixture
def client(impatient: Daemon) -> Iterator[hetsched.Client]:
    with impatient.client() as client:
        yield client


def works(client: hetsched.Client) -> bool:
    return bool((client.submit(TOY, np.ones((40, 4)), units=40).result(60) == 3).all())


def test_all_processes_may_be_killed_between_jobs(daemon: Daemon) -> None:
    with daemon.client() as client:
        assert works(client)
        for process in daemon.family():
            process.kill()
        assert works(client)
        assert daemon.process.poll() is None


def test_an_interrupt_of_a_terminal_ends_no_device_process(daemon: Daemon) -> None:
    with daemon.client() as client:
        assert works(client)
        family = daemon.family()
        for process in family:
            process.send_signal(signal.SIGINT)
        assert works(client)
        assert daemon.family() == family


STEPS = ("prepare", "fill", "compute", "check")


@pytest.mark.parametrize(
    ("fault", "step"),
    [("exit", "compute"), ("segfault", "compute"), *(("kill", step) for step in STEPS)],
)
def test_a_process_that_dies_in_any_step_costs_no_job(
    client: hetsched.Client, tmp_path: Path, fault: str, step: str
) -> None:
    marker = tmp_path / "died"
    job = client.submit(
        FAULTY, units=40, seed=1, fault=fault, step=step, marker=str(marker), verify=True
    )
    assert job.result(60).shape == (40, 4)
    assert marker.exists()
    if (fault, step) == ("kill", "compute"):
        assert job.report is not None
        assert any("SIGKILL" in note for note in job.report.notes), job.report.notes
    assert works(client)


@pytest.mark.parametrize(
    ("fault", "step"),
    [("stop", "compute"), ("spin", "compute"), *(("hang", step) for step in STEPS)],
)
def test_a_process_that_gives_no_sign_is_replaced(
    client: hetsched.Client, tmp_path: Path, fault: str, step: str
) -> None:
    marker = str(tmp_path / "hung")
    job = client.submit(FAULTY, units=40, fault=fault, step=step, marker=marker, verify=True)
    assert job.result(60).shape == (40, 4)
    assert works(client)


@pytest.mark.parametrize(
    "step",
    [
        "prepare",
        "compute",
        *(pytest.param(step, marks=pytest.mark.stress) for step in ("fill", "check")),
    ],
)
def test_a_job_on_a_stuck_device_can_be_cancelled(
    client: hetsched.Client, tmp_path: Path, step: str
) -> None:
    marker = tmp_path / "stuck"
    job = client.submit(FAULTY, units=40, fault="hang", step=step, marker=str(marker), verify=True)
    until(marker.exists)
    job.cancel()
    with pytest.raises(CancelledError):
        job.result(60)
    assert works(client)


@pytest.mark.parametrize(("fault", "step"), [("hang", "compute"), ("stop", "prepare")])
def test_a_daemon_with_a_stuck_device_ends_at_sigterm(
    tmp_path: Path, fault: str, step: str
) -> None:
    marker = tmp_path / "stuck"
    with serving(IMPATIENT) as daemon, daemon.client(reconnect=0) as client:
        client.submit(FAULTY, units=40, fault=fault, step=step, marker=str(marker), recurs=True)
        until(marker.exists)
        assert daemon.stop() == 0


TWO = (
    IMPATIENT.replace("[deadlines]", '[deadlines]\nstart = "5s"')
    + 'count = 1\n[[device]]\nkind = "emulated"\ncompute = { unit = "1ms" }\n'
)


def test_a_process_that_is_stuck_at_its_start_delays_no_other_device(gate: Gate) -> None:
    with serving(TWO) as daemon, daemon.client() as client:
        job = client.submit(TOY, units=4, devices="emu0", gate=str(gate.path))
        (victim,) = until(gate.pids)
        before = {process.pid for process in daemon.family()}
        os.kill(victim, signal.SIGKILL)
        replaced = until(lambda: [p for p in daemon.family() if p.pid not in before])
        for process in replaced:
            process.suspend()
        gate.open()
        assert client.submit(TOY, units=1, devices="cpu0").result(60).shape == (1, 4)
        assert job.result(60).shape == (4, 4)


def test_kernels_that_crash_or_hang_everywhere_cost_other_jobs_no_device() -> None:
    with serving(IMPATIENT) as daemon, daemon.client() as client:
        with refused(1, "SIGSEGV"):
            client.submit(FAULTY, np.ones((40, 4)), units=40, fault="segfault").result(60)
        assert works(client)
        with refused(1):
            client.submit(TOY, units=40, fault="hang").result(60)
        client.submit("matrix_update", rows=64, cols=64, inner=64, verify=True).result(60)
        assert daemon.call("devices", "--json").json["absent"] == {}


def test_a_plug_in_that_hangs_in_the_daemon_delays_its_own_job_only() -> None:
    with serving('[deadlines]\ndisk = "4s"\n' + CORES) as daemon, daemon.client() as client:
        with ThreadPoolExecutor() as threads:
            hanging = threads.submit(client.submit, "toys:Hanging")
            with daemon.client() as other:
                assert works(other)
            with refused(75):
                hanging.result()
        assert works(client)
        assert daemon.stop() == 0


def test_a_file_result_is_complete_though_a_process_died(
    client: hetsched.Client, gate: Gate, tmp_path: Path
) -> None:
    folder = tmp_path / "results"
    folder.mkdir()
    job = client.submit(TOY, out=folder / "y.npy", units=40, seed=5, gate=str(gate.path))
    os.kill(until(gate.pids)[0], signal.SIGKILL)
    gate.open()
    job.result(60)
    expected = client.submit(TOY, units=40, seed=5).result(60)
    assert np.array_equal(np.load(folder / "y.npy"), expected)
    assert [path.name for path in folder.iterdir()] == ["y.npy"]
