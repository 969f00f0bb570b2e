"""A grid over hosts: the same bits as on one host, whoever dies, comes, or submits it again."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hetsched
from hetsched import errors
from hetsched.cluster.regions import Box
from hetsched.errors import DataError, TryAgain, UsageError
from hetsched.hosts import channel
from hetsched.hosts.client import ClusterClient
from hetsched.hosts.grid_messages import Layout, Results
from hetsched.hosts.tcp import Link, TcpHosts
from tests.hosts.conftest import LBM, TOKEN, Cluster, HostProcess

SHAPE = (180, 150)
STEPS = 1500
BORDER = "dirichlet,periodic"


@pytest.fixture(scope="module")
def initial() -> np.ndarray:
    return np.random.default_rng(1).random(SHAPE, np.float32)


@pytest.fixture(scope="module")
def expected(initial: np.ndarray) -> np.ndarray:
    with hetsched.Local() as local:
        job = local.submit("heat", initial, steps=STEPS, border=BORDER)
        final: np.ndarray = job.result()["final"].copy()
        return final


class After:
    """Calls `then` once hosts have done `sweeps` of a job, and written `checkpoints`.

    On a thread, as hosts must go on.
    """

    def __init__(self, sweeps: int, then: Callable[[], Any], checkpoints: int = 0) -> None:
        self._sweeps, self._checkpoints = sweeps, checkpoints
        self.thread = threading.Thread(target=then)

    def __call__(self, outcome: Any) -> None:
        done = sum(work.sweeps for work in outcome.work.values()) >= self._sweeps
        is_due = done and outcome.checkpoints >= self._checkpoints
        if is_due and self.thread.ident is None:
            self.thread.start()


def test_a_grid_over_hosts_has_the_same_bits(
    cluster: Cluster, initial: np.ndarray, expected: np.ndarray, tmp_path: Path
) -> None:
    client, _, _ = cluster
    given, path = initial.copy(), tmp_path / "final.npy"
    assert client.submit("heat", initial, out={"": path}, steps=9).result(120)["final"] == str(
        path
    )
    assert np.load(path).shape == SHAPE
    job = client.submit(
        "heat", given, out={"final": given}, steps=STEPS, border=BORDER, verify=True
    )
    result = job.result(120)
    assert result["final"] is given
    np.testing.assert_array_equal(given, expected)
    assert result["steps"].tolist() == [STEPS]
    text = job.explain()
    assert f"{STEPS} steps of 180x150 cells" in text
    assert "host1" in text


def test_a_plug_in_that_hosts_import_has_the_same_bits_too(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(LBM)
    monkeypatch.setenv("PYTHONPATH", str(LBM))
    job = {"rows": 48, "cols": 40, "steps": 30, "seed": 3}
    with hetsched.Local() as local:  # first: hosts find on disk what it compiles
        expected = local.submit("hetsched_lbm:Lbm", **job).result()
        for name, values in cluster[0].submit("hetsched_lbm:Lbm", **job).result(120).items():
            np.testing.assert_array_equal(values, expected[name])


@pytest.mark.parametrize(
    "end",
    [
        lambda process: process.signal(signal.SIGKILL),
        lambda process: process.signal(signal.SIGSTOP),
        lambda process: process.close(),
    ],
    ids=["killed", "stopped", "ended"],
)
def test_a_grid_goes_on_without_a_host_that_ends(
    cluster: Cluster, initial: np.ndarray, expected: np.ndarray, end: Callable[[HostProcess], None]
) -> None:
    client, _, processes = cluster
    follow = After(6, lambda: end(processes[1]), checkpoints=1)
    job = client.submit("heat", initial, steps=STEPS, border=BORDER, every=0.01, follow=follow)
    np.testing.assert_array_equal(job.result(120)["final"], expected)
    follow.thread.join()
    outcome: Any = job.outcome
    assert outcome.work["host1"].lost
    assert outcome.checkpoints > 0
    assert outcome.again < STEPS


def test_a_host_that_comes_gets_cells(
    cluster: Cluster,
    start_host: Callable[..., HostProcess],
    initial: np.ndarray,
    expected: np.ndarray,
) -> None:
    client, hosts, _ = cluster
    address = start_host().address
    follow = After(4, lambda: hosts.join("host2", address, TOKEN, None))
    job = client.submit("heat", initial, steps=STEPS, border=BORDER, follow=follow)
    np.testing.assert_array_equal(job.result(120)["final"], expected)
    assert job.outcome is not None
    assert job.outcome.work["host2"].sweeps > 0  # type: ignore[union-attr]


SCRIPT = """
import json, sys
import numpy as np
from hetsched.hosts.client import ClusterClient
from hetsched.hosts.tcp import TcpHosts
addresses, token, border, steps = json.loads(sys.argv[1])
initial = np.load(sys.argv[2])
hosts = TcpHosts()
for i, address in enumerate(addresses):
    hosts.join(f"host{i}", tuple(address), token, None)
def follow(outcome):
    if outcome.checkpoints > 1:
        print("saved", flush=True)
ClusterClient(hosts).submit(
    "heat", initial, steps=steps, border=border, every=0.01, follow=follow
).result()
print("done", flush=True)
"""


def test_a_job_goes_on_from_what_hosts_have_when_its_client_has_died(
    start_host: Callable[..., HostProcess],
    tmp_path: Any,
    initial: np.ndarray,
    expected: np.ndarray,
) -> None:
    processes = [start_host() for _ in range(2)]
    np.save(tmp_path / "initial.npy", initial)
    arguments = json.dumps([[each.address for each in processes], TOKEN, BORDER, 3 * STEPS])
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT, arguments, str(tmp_path / "initial.npy")],
        stdout=subprocess.PIPE,
        env={**os.environ, "HETSCHED_STATE_DIR": str(tmp_path)},
    ) as script:
        assert script.stdout is not None
        assert script.stdout.readline() == b"saved\n"
        script.kill()
    hosts = TcpHosts()
    for i, each in enumerate(processes):
        hosts.join(f"host{i}", each.address, TOKEN, None)
    with ClusterClient(hosts) as client:
        steps = 4 * STEPS
        job = client.submit("heat", initial, steps=steps, border=BORDER)
        final = job.result(120)["final"]
        outcome: Any = job.outcome
        assert outcome.continued > 0
        other = client.submit("heat", initial + 1, steps=STEPS, border=BORDER)
        other.result(120)
        assert other.outcome.continued == 0  # type: ignore[union-attr]
    with hetsched.Local() as local:
        whole = local.submit("heat", initial, steps=steps, border=BORDER).result()["final"]
        np.testing.assert_array_equal(final, whole)


def test_hosts_that_come_back_under_each_others_names_get_their_own_cells(
    cluster: Cluster,
    start_host: Callable[..., HostProcess],
    initial: np.ndarray,
    expected: np.ndarray,
) -> None:
    client, hosts, processes = cluster
    third = start_host()
    hosts.join("host2", third.address, TOKEN, None)

    def swap() -> None:
        links = hosts.links()
        for name in ("host1", "host2"):
            links[name].give_up("a cable was pulled")
        hosts.join("host1", third.address, TOKEN, None)
        hosts.join("host2", processes[1].address, TOKEN, None)

    follow = After(9, swap)
    job = client.submit("heat", initial, steps=STEPS, border=BORDER, every=0.01, follow=follow)
    np.testing.assert_array_equal(job.result(60)["final"], expected)
    follow.thread.join()


def test_late_results_of_a_job_that_has_ended_end_no_connection() -> None:
    hosts = TcpHosts()
    ours, theirs = socket.socketpair()
    link = Link("host0", hosts, ours, ("", 0, ""))
    link.channel.start()
    late = Results(1, 1, Box(0, 4, 0, 4), (Layout("final", "float64", (4, 4)),))
    with theirs:
        channel.send_now(theirs, late)
        theirs.sendall(bytes(4 * 4 * 8))
        record = errors.to_record(DataError("the next message"))
        channel.send_now(theirs, channel.Failed(2, 0, 0, record))
        assert "the next message" in str(hosts.event(10).error)
        link.channel.close()


def test_what_a_grid_over_hosts_refuses(cluster: Cluster, initial: np.ndarray) -> None:
    client, _, _ = cluster
    with pytest.raises(UsageError, match="heat with these parameters runs on one host"):
        client.submit("heat", initial, steps=9, tolerance=0.1)
    with pytest.raises(UsageError, match="a grid of 2x150 is too small for several hosts"):
        client.submit("heat", initial[:2], steps=9).result(60)
    with pytest.raises(DataError, match=r"generating \w+ .* are free"):
        client.submit("heat", grid="1000000x1000000", steps=10)
    bad = initial.copy()
    bad[3, 4] = np.nan
    with pytest.raises(DataError, match=r"initial: row .* has a NaN") as failure:
        client.submit("heat", bad, steps=9).result(60)
    assert any("host" in note for note in failure.value.__notes__)


def test_without_hosts_a_grid_ends_with_try_again(
    cluster: Cluster, initial: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, _, processes = cluster
    monkeypatch.setattr("hetsched.cluster.stencil.PATIENCE", 0.5)
    follow = After(4, lambda: [each.signal(signal.SIGKILL) for each in processes])
    job = client.submit("heat", initial, steps=100 * STEPS, border=BORDER, follow=follow)
    with pytest.raises(TryAgain, match="no host is left"):
        job.result(60)
