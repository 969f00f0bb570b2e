"""Hosts as workers of a Dask cluster: found, secured, joined by later ones."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from libraries import library
from served import call_here, until

import hetsched
from hetsched import errors
from hetsched.cli.hosts import hosts_screen

dask, distributed = library("dask"), library("distributed")
library("cryptography")

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.filterwarnings("ignore")  # of distributed's own


@pytest.fixture(scope="module")
def security() -> Any:
    return distributed.security.Security.temporary()


@pytest.fixture(scope="module")
def scheduler(security: Any) -> Iterator[Any]:
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, security=security, dashboard_address=None
    ) as started:
        yield started


def certificates(security: Any) -> dict[str, Any]:
    """Return them as a user's configuration of Dask."""
    return {
        "distributed.comm.tls.ca-file": security.tls_ca_file,
        "distributed.comm.tls.client.cert": security.tls_client_cert,
        "distributed.comm.tls.client.key": security.tls_client_key,
    }


def test_workers_are_hosts_over_tls_and_later_ones_join(scheduler: Any, security: Any) -> None:
    address = scheduler.scheduler_address
    assert address.startswith("tls://")
    with hetsched.Client(cluster=address, security=security) as client:
        x = np.random.default_rng(0).random((50, 20))
        np.testing.assert_array_equal(client.map("numpy:sqrt", x), np.sqrt(x))
        count = len(scheduler.workers)
        assert len(client.hosts()) == count
        scheduler.scale(count + 1)
        client.wait_for_hosts(count + 1, timeout=60)
        np.testing.assert_array_equal(client.map("numpy:sqrt", x), np.sqrt(x))


def test_a_killed_host_returns_and_a_stopped_worker_holds_up_nobody(
    scheduler: Any, security: Any
) -> None:
    x = np.random.default_rng(0).random((50, 20))
    address = scheduler.scheduler_address
    scheduler.scale(2)
    scheduler.wait_for_workers(2)
    with distributed.Client(address, security=security, set_as_default=False) as dask_client:
        with hetsched.Client(cluster=address, security=security) as client:
            client.wait_for_hosts(2)
            children = dask_client.run(lambda dask_worker: dask_worker.hetsched[-1].pid)
            os.kill(min(children.values()), signal.SIGKILL)
            until(lambda: len(client.hosts()) == 1)
            client.wait_for_hosts(2)
            np.testing.assert_array_equal(client.map("numpy:sqrt", x), np.sqrt(x))
        stopped = min(dask_client.run(os.getpid).values())
        os.kill(stopped, signal.SIGSTOP)
        try:
            with hetsched.Client(cluster=address, security=security, patience=1) as client:
                assert len(client.hosts()) == 1
                np.testing.assert_array_equal(client.map("numpy:sqrt", x), np.sqrt(x))
                os.kill(stopped, signal.SIGCONT)
                client.wait_for_hosts(2)
        finally:
            os.kill(stopped, signal.SIGCONT)


def test_the_command_line_runs_jobs_over_hosts(
    scheduler: Any, security: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    x, out = np.random.default_rng(0).random((6, 8, 8)), tmp_path / "y.npy"
    np.save(tmp_path / "x.npy", x)
    words = ["fft", "--input", str(tmp_path / "x.npy"), "--cluster", scheduler.scheduler_address]
    with dask.config.set(certificates(security)):
        ended = call_here(capfd, "run", *words, "--output", str(out), "--json")
        assert ended.code == 0
        report = json.loads(ended.out)
        np.testing.assert_array_equal(
            hetsched.map(np.sqrt, x, cluster=scheduler.scheduler_address), np.sqrt(x)
        )
        ended = call_here(capfd, "submit", *words)
        assert (ended.code, "over hosts" in ended.out) == (0, True)
        for flag in (["--priority", "3"], ["--detach"], ["--plot", str(tmp_path / "a.png")]):
            assert call_here(capfd, "submit", *words, *flag).code == 2
    np.testing.assert_allclose(np.load(out), np.fft.fft2(x))
    assert report["schema"] == "hetsched.hosts/1"
    assert sum(host["units"] for host in report["hosts"]) == report["load"] == 6


def test_hosts_send_each_other_cells_over_tls(scheduler: Any, security: Any) -> None:
    scheduler.scale(2)
    address, initial = scheduler.scheduler_address, np.random.default_rng(0).random((64, 48))
    with hetsched.Local() as local:  # first: hosts find on disk what it compiles
        whole = local.submit("heat", initial, steps=100).result()["final"].copy()
    with hetsched.Client(cluster=address, security=security) as client:
        client.wait_for_hosts(2, timeout=60)
        job = client.submit("heat", initial, steps=100, every="10ms")
        np.testing.assert_array_equal(job.result(120)["final"], whole)
        assert all(work.sweeps > 1 for work in job.outcome.work.values())


def test_strangers_and_other_versions_are_refused_in_one_line(
    scheduler: Any, security: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = scheduler.scheduler_address
    other = distributed.security.Security.temporary()
    plain = address.replace("tls://", "tcp://")
    mine = {"tls_ca_file": security.tls_ca_file, "tls_client_key": other.tls_client_key}
    refused, gone = (
        distributed.security.Security(tls_client_cert=certificate, **mine)
        for certificate in (other.tls_client_cert, "/nowhere/me.pem")
    )
    for given, options, code, text in [
        (address, {}, 69, "needs certificates"),
        (plain, {}, 69, "no scheduler"),
        (address, {"security": other}, 77, "TLS refused"),
        (address, {"security": refused}, 77, "TLS refused"),
        (address, {"security": gone}, 66, "/nowhere/me.pem"),
        (plain.replace("127.0.0.1", "192.0.2.1"), {}, 77, "--insecure"),
    ]:
        with pytest.raises(errors.HetschedError) as caught:
            hetsched.Client(cluster=given, **options)
        assert (caught.value.code, len(str(caught.value).splitlines())) == (code, 1)
        assert text in str(caught.value)
    monkeypatch.setattr(hetsched, "__version__", "9.9")
    with pytest.raises(errors.ProtocolError, match=r"has hetsched 0\.1\.0, you have 9\.9"):
        hetsched.Client(cluster=address, security=security)


def test_links_and_what_hosts_do_are_shown(
    scheduler: Any, security: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    address = scheduler.scheduler_address
    scheduler.scale(2)
    scheduler.wait_for_workers(2)
    with dask.config.set(certificates(security)):
        hetsched.map(np.sqrt, np.ones((50, 2)), cluster=address)
        ended = call_here(capfd, "doctor", "--cluster", address, "--json")
        assert ended.code == 0
        report = json.loads(ended.out)
        with hosts_screen(address, False) as lines:
            text = "\n".join(map(str, lines()))
    first, second = sorted(link["to"] for link in report["links"] if link["from"] == "here")
    assert {(link["from"], link["to"]) for link in report["links"]} >= {(first, second)}
    assert all(link["bandwidth"] > 0 and link["encryption"] == "TLS" for link in report["links"])
    assert first in text
    assert "idle" in text
    assert ": 2 hosts" in text


@pytest.mark.stress
def test_the_example_runs() -> None:
    command = [sys.executable, ROOT / "examples/hosts.py"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count("64 units in") == 3


@pytest.mark.parametrize(
    ("address", "error"),
    [
        ("tcp://127.0.0.1:1", errors.Unavailable),
        ("tcp://192.0.2.1:8786", errors.NotPermitted),
        ("127.0.0.1:8786", errors.UsageError),
        ("ucx://127.0.0.1:8786", errors.UsageError),
        ("tcp://127.0.0.1", errors.UsageError),
        (7, errors.UsageError),
    ],
)
def test_addresses_that_cant_be_used_are_named(address: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        hetsched.Client(cluster=address)


def test_a_process_whose_cluster_has_gone_ends_without_a_traceback() -> None:
    code = """
import distributed, numpy, hetsched
if __name__ == "__main__":
    with distributed.LocalCluster(n_workers=1, dashboard_address=None) as cluster:
        hetsched.map(numpy.sqrt, numpy.ones((9, 9)), cluster=cluster.scheduler_address)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "Traceback" not in done.stderr
