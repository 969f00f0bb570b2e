"""Clients that die, don't read, or send nonsense trouble nobody but themselves."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from served import Daemon, Gate, await_state, computes, refused, serving, until

import hetsched

TOY = "toys:Toy"
TWENTY = """
import sys
import numpy as np
import hetsched
seed, folder = sys.argv[2:]
rng = np.random.default_rng(int(seed))
with hetsched.Client(sys.argv[1], timeout=60) as client:
    jobs = []
    for number in range(20):
        x = rng.random((rng.integers(1, 9), 16, 16)).astype("complex64")
        source, out = (f"{folder}/{seed}-{number}{what}.npy" for what in ("", "-out"))
        np.save(source, x)
        files = {"arrays": source, "out": out}
        jobs.append((x, client.submit("fft", **files if number % 2 else {"arrays": x})))
    for x, job in jobs:
        y = job.result(60)
        y = y if isinstance(y, np.ndarray) else np.load(y)
        assert np.allclose(y, np.fft.fft2(x), atol=1e-3), job
print("right")
"""
DIES = """
import os, sys
import hetsched
client = hetsched.Client(sys.argv[1], timeout=60)
x = client.empty((40, 4), "float64")
x[...] = 1
received = client.submit("toys:Toy", x, units=40).result(60)
unsent = client.empty((40, 4), "float64")
job = client.submit("toys:Toy", x, units=40, gate=sys.argv[2], log=sys.argv[3], name="ran")
print(job.id, flush=True)
os.kill(os.getpid(), 9)
"""


def segments(daemon: Daemon) -> int:
    """Shared arrays that the daemon has open."""
    count = 0
    for descriptor in Path(f"/proc/{daemon.process.pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            count += "memfd:hetsched " in os.readlink(descriptor)
    return count


def mapped(daemon: Daemon) -> int:
    """Shared arrays that its device processes have mapped."""
    maps = (Path(f"/proc/{process.pid}/maps").read_text() for process in daemon.family())
    return sum(text.count("memfd:hetsched ") for text in maps)


def test_jobs_of_several_clients_beside_a_large_one_are_right_and_leave_nothing(
    small: Daemon, tmp_path: Path
) -> None:
    assert small.works()
    with small.client() as client:
        large = client.submit("toys:Slow", np.ones((500, 4)), units=500, milliseconds=10)
        clients = [small.script(TWENTY, str(seed), str(tmp_path)) for seed in range(3)]
        assert [client.communicate(timeout=120)[0] for client in clients] == ["right\n"] * 3
        assert (large.result(60) == 3).all()
        del large
    assert small.works()
    until(lambda: segments(small) == 0)


def test_a_dead_clients_job_ends_and_its_memory_is_free(
    small: Daemon, gate: Gate, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    client = small.script(DIES, str(gate.path), str(log))
    number = int(client.communicate(timeout=60)[0])
    assert client.returncode == -signal.SIGKILL
    gate.open()
    assert small.call("wait", str(number)).code in (0, 130)
    assert small.works()
    until(lambda: segments(small) == 0)


def test_a_forked_child_cannot_use_its_parents_client(small: Daemon) -> None:
    code = (
        "import os, sys, hetsched\n"
        "with hetsched.Client(sys.argv[1], timeout=60) as client:\n"
        "    child = os.fork()\n"
        "    if not child:\n"
        "        try:\n"
        "            client.ping()\n"
        "        except Exception as error:\n"
        "            os._exit(error.code)\n"
        "    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), client.ping().pid)\n"
    )
    out, _ = small.script(code).communicate(timeout=60)
    assert out.split() == ["2", str(small.process.pid)]


def test_without_a_daemon_a_client_says_where_it_looked(tmp_path: Path) -> None:
    with refused(69, str(tmp_path)):
        hetsched.Client(tmp_path)


def test_shared_memory_in_use_is_75_and_free_again_later(small: Daemon) -> None:
    with small.client() as client:
        assert small.works()
        assert mapped(small) > 0
        arrays = [client.empty(1 << 23, "float64") for _ in range(3)]
        with refused(75):
            client.empty(1 << 24, "float64")
        until(lambda: mapped(small) == 0)
        del arrays
        with refused(65):
            client.empty(1 << 30, "float64")
        assert until(lambda: fits(client))


def fits(client: hetsched.Client) -> bool:
    try:
        return client.empty(1 << 24, "float64").shape == (1 << 24,)
    except Exception:
        return False


def test_any_client_may_follow_and_cancel_another_ones_job(small: Daemon, gate: Gate) -> None:
    with small.client() as client, small.client() as other:
        job = client.submit(TOY, units=4, gate=str(gate.path))
        same = other.job(job.id)
        computes(same)
        other.cancel(job.id)
        gate.open()
        await_state(job, lambda state: type(state).__name__ == "Failed")
        assert job.cancelled()
        until(same.cancelled)


def test_few_descriptors_refuse_or_delay_clients_and_it_recovers() -> None:
    with serving(prefix=("prlimit", "--nofile=64")) as daemon:
        with contextlib.ExitStack() as stack, pytest.raises(Exception) as caught:
            for _ in range(64):
                stack.enter_context(daemon.client(timeout=5))
        refusal: Any = caught.value
        assert refusal.code in (69, 75)
        assert until(daemon.works)
        assert daemon.stop() == 0
