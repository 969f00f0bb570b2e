"""The whole daemon in a separate process: real engine, device processes and clients."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil
import pytest
from real_daemon import SERVE, RealDaemon, environment, serving

from hetsched.client.client import Client
from hetsched.errors import TryAgain
from hetsched.job import JobState, Running, ended
from hetsched.store.journal.journal import Journal

CONFIG = """
[[device]]
kind = "cpu"
count = 1

[arena]
limit = "256MiB"
results_for = "0s"
warm_for = "0s"
"""

SLOW = """
[[device]]
kind = "emulated"
clock = "real"
compute = { unit = "20ms" }
"""

FOUR_TIMES_FIFTY = """
import sys
import numpy as np
from hetsched.client.client import Client
rng = np.random.default_rng(int(sys.argv[2]))
with Client(sys.argv[1]) as client:
    planes = [rng.random((rng.integers(1, 9), 16, 16)).astype("complex64") for _ in range(50)]
    jobs = [client.submit("fft", x, direction="forward") for x in planes]
    for x, job in zip(planes, jobs):
        assert np.allclose(job.result(60), np.fft.fft2(x), atol=1e-3), job
print("right")
"""


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[RealDaemon]:
    with serving(tmp_path, CONFIG) as daemon:
        yield daemon


@dataclass(frozen=True)
class Possessions:
    """Descriptors, threads and processes of the daemon, the first, and its device processes."""

    descriptors: list[int]
    threads: list[int]
    processes: list[int]

    def exceed(self, before: Possessions) -> bool:
        """Whether there is more than `before`, threads of the daemon's bounded pool apart.

        Less is no leak: something may have been about to close.
        """
        assert self.threads[0] < 20
        if self.processes != before.processes:
            return True
        pairs = [
            *zip(self.descriptors, before.descriptors, strict=True),
            *zip(self.threads[1:], before.threads[1:], strict=True),
        ]
        return any(now > then for now, then in pairs)


def possessions(daemon: RealDaemon) -> Possessions:
    everyone = family(daemon)
    return Possessions(
        [process.num_fds() for process in everyone],
        [process.num_threads() for process in everyone],
        [process.pid for process in everyone],
    )


def family(daemon: RealDaemon) -> list[psutil.Process]:
    return [daemon.ps, *daemon.ps.children(recursive=True)]


def job_done(folder: Path) -> None:
    """One small job; the daemon has then also noticed the end of earlier clients."""
    with Client(folder, timeout=60) as client:
        x = np.ones((4, 16, 16), "complex64")
        assert client.submit("fft", x).result(60)[0, 0, 0] == 256


def test_two_hundred_jobs_of_four_clients_leave_nothing_behind(daemon: RealDaemon) -> None:
    job_done(daemon.folder)
    job_done(daemon.folder)
    before = settled(daemon)
    clients = [
        subprocess.Popen(
            [sys.executable, "-c", FOUR_TIMES_FIFTY, daemon.folder, str(seed)],
            stdout=subprocess.PIPE,
        )
        for seed in range(4)
    ]
    assert [client.communicate(timeout=100)[0] for client in clients] == [b"right\n"] * 4
    job_done(daemon.folder)
    until(daemon, lambda: not possessions(daemon).exceed(before))


def test_a_client_killed_during_a_job_leaves_nothing_behind(tmp_path: Path) -> None:
    with serving(tmp_path, CONFIG + SLOW) as daemon:
        job_done(daemon.folder)
        before = settled(daemon)
        code = (
            "import os, sys, numpy as np; from hetsched.client.client import Client;"
            "c = Client(sys.argv[1]); x = c.empty((8, 16, 16)); x[:] = 1;"
            "j = c.submit('fft', x); os.kill(os.getpid(), 9)"
        )
        killed = subprocess.run([sys.executable, "-c", code, daemon.folder], check=False)
        assert killed.returncode == -signal.SIGKILL
        with Client(daemon.folder) as client:
            until(daemon, lambda: ended(client.show(2)))
        job_done(daemon.folder)
        until(daemon, lambda: not possessions(daemon).exceed(before))


def test_sigterm_ends_the_running_job_at_a_chunks_edge_and_exits_0(tmp_path: Path) -> None:
    with serving(tmp_path, SLOW) as daemon, Client(daemon.folder, reconnect=0) as client:
        children = daemon.ps.children(recursive=True)
        x = client.empty((500, 8, 8))
        running, waiting = (client.submit("fft", x) for _ in range(2))
        until_computing(client, running.id)
        assert daemon.stop() == 0
        for job in (running, waiting):
            with pytest.raises(TryAgain, match="stopping"):
                job.result(60)
        assert psutil.wait_procs(children, 60)[1] == []
    left = {path.name for path in tmp_path.iterdir()}
    assert not left & {"control.sock", "session.sock"}


def test_a_running_job_is_cancelled_at_a_chunks_edge(tmp_path: Path) -> None:
    with serving(tmp_path, SLOW) as daemon, Client(daemon.folder) as client:
        job = client.submit("fft", batch="400x8x8")
        until_computing(client, job.id)
        job.cancel()
        with pytest.raises(CancelledError):
            job.result(60)
        assert client.submit("fft", batch="2x8x8").result(60).shape == (2, 8, 8)


def test_a_killed_daemon_is_detected_and_another_can_start(tmp_path: Path) -> None:
    with serving(tmp_path, SLOW) as daemon, Client(daemon.folder, reconnect=0) as client:
        children = daemon.ps.children(recursive=True)
        job = client.submit("fft", batch="500x8x8")
        daemon.stop(signal.SIGKILL)
        with pytest.raises(TryAgain, match=f"job 1 is out of reach.*pid {daemon.process.pid}"):
            job.result(60)
        assert psutil.wait_procs(children, 60)[1] == []
    (tmp_path / "notify.sock").unlink()
    with serving(tmp_path, CONFIG) as daemon, Client(daemon.folder) as client:
        assert client.job(1).result(60).shape == (500, 8, 8)
        job_done(daemon.folder)


def test_durable_jobs_continue_after_an_orderly_stop(tmp_path: Path) -> None:
    with serving(tmp_path, SLOW) as daemon, Client(daemon.folder, timeout=60) as client:
        running, waiting = (client.submit("fft", batch="50x8x8") for _ in range(2))
        until_computing(client, running.id)
        assert daemon.stop() == 0
        (tmp_path / "notify.sock").unlink()
        # The jobs may end before their client is back.
        with serving(tmp_path, CONFIG.replace('results_for = "0s"', 'results_for = "60s"')):
            assert [job.result(60).shape for job in (running, waiting)] == [(50, 8, 8)] * 2
            assert (running.id, waiting.id) == (1, 2)


def test_a_journal_of_a_newer_version_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    path = tmp_path / "state" / "journal.db"
    Journal.open(path, lambda callback: None).close(60)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 99")
    before = path.read_bytes()
    done = subprocess.run(
        SERVE, env=environment(tmp_path), capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 78
    assert "newer hetsched" in done.stderr
    assert path.read_bytes() == before


def test_a_second_daemon_reports_the_pid_of_the_first(daemon: RealDaemon) -> None:
    second = subprocess.run(
        SERVE, env=environment(daemon.folder), capture_output=True, text=True, check=False
    )
    assert second.returncode == 78
    assert f"pid {daemon.process.pid}" in second.stderr.splitlines()[-1]
    job_done(daemon.folder)


def test_a_runtime_path_too_long_is_refused(tmp_path: Path) -> None:
    variables = environment(tmp_path / ("x" * 100))
    done = subprocess.run(SERVE, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 78
    assert "runtime path too long" in done.stderr


def test_a_runtime_folder_open_to_others_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    variables = environment(tmp_path)
    done = subprocess.run(SERVE, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 78
    assert f"chmod 700 {tmp_path}" in done.stderr


def until(daemon: RealDaemon, condition: Callable[[], bool]) -> None:
    """Wait until `condition` holds, for a minute at most."""
    for _ in range(1200):
        if condition():
            return
        with contextlib.suppress(psutil.TimeoutExpired):
            daemon.ps.wait(0.05)
    raise AssertionError(f"it never came to that; now {possessions(daemon)}")


def settled(daemon: RealDaemon) -> Possessions:
    """What the daemon has once it has given all shared memory back."""
    until(daemon, lambda: not any(map(segments, family(daemon))))
    return possessions(daemon)


def segments(process: psutil.Process) -> int:
    """Descriptors of shared memory that `process` has."""
    count = 0
    for fd in Path(f"/proc/{process.pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed since it was listed
            count += "memfd:hetsched" in os.readlink(fd)
    return count


def until_computing(client: Client, number: int) -> None:
    """Wait until job `number` computes."""
    computing = threading.Event()

    def heard(state: JobState) -> None:
        if isinstance(state, Running) and state.stage == "computing":
            computing.set()

    client.follow(number, heard)
    assert computing.wait(60)
