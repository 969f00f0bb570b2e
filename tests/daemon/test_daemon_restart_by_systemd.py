"""A volatile job outlives its daemon and its client: systemd keeps its memory."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from real_daemon import SERVE, environment
from service_manager import NotifySocket, notify_socket, passing

from hetsched.client.client import Client
from hetsched.job import Queued

CONFIG = """
[[device]]
kind = "cpu"
count = 1
"""
WAIT = 60.0

SUBMIT_AND_DIE = """
import os, signal, sys
import numpy as np
from hetsched.client.client import Client
from hetsched.job import Queued
client = Client(sys.argv[1])
x = client.empty((4, 16, 16), "complex64")
x[...] = np.arange(1024).reshape(4, 16, 16)
job = client.submit("fft", x, out=sys.argv[2], hold=True)
client.submit("fft", batch="1x16x16", hold=True)  # durable: acknowledged after both are on disk
print(job.id, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def start(folder: Path, notified: NotifySocket) -> subprocess.Popen[bytes]:
    """Start a daemon with what systemd has stored; wait until it is ready."""
    variables = environment(folder) | {"NOTIFY_SOCKET": notified.address, "FDSTORE": "512"}
    command = [*SERVE, "--config", str(folder / "test.toml")]
    stored = {fd: name for name, fd in notified.stored.items()}
    if stored:
        command = passing(stored, command)
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(command, env=variables, stderr=log, pass_fds=[*stored])
    notified.until("READY=1")
    return process


def until_held(client: Client, job: int) -> None:
    """Wait until the new daemon's engine has the job: it is checked again first."""
    deadline = time.monotonic() + WAIT
    while not any(
        brief.job == job and isinstance(brief.state, Queued) and brief.state.reason == "held"
        for brief in client.overview().jobs
    ):
        assert time.monotonic() < deadline, client.show(job)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_job_continues_without_its_client(tmp_path: Path, number: int) -> None:
    tmp_path.chmod(0o700)
    (tmp_path / "test.toml").write_text(CONFIG)
    with notify_socket(tmp_path) as notified:
        first = start(tmp_path, notified)
        command = [sys.executable, "-c", SUBMIT_AND_DIE, str(tmp_path), str(tmp_path / "y.npy")]
        client = subprocess.run(
            command, check=False, env=environment(tmp_path), stdout=subprocess.PIPE, timeout=WAIT
        )
        assert client.returncode == -signal.SIGKILL
        notified.until("FDSTORE=1")
        first.send_signal(number)
        first.wait(WAIT)

        second = start(tmp_path, notified)
        try:
            with Client(tmp_path) as control:
                job = int(client.stdout)
                until_held(control, job)
                control.release(job)
                control.job(job).result(WAIT)
            notified.until("FDSTOREREMOVE=1")
        finally:
            second.terminate()
            assert second.wait(WAIT) == 0, (tmp_path / "log").read_text()
            for fd in notified.stored.values():
                os.close(fd)

    x = np.arange(1024).reshape(4, 16, 16)
    assert np.allclose(np.load(tmp_path / "y.npy"), np.fft.fft2(x), atol=1.0)
