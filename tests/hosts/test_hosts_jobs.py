"""Jobs over real host processes on loopback: right results, whatever becomes of a host."""

from __future__ import annotations

import contextlib
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.ndimage
from served import until

import hetsched
from hetsched import errors
from hetsched.cluster.coordinator import HostWork, Outcome
from hetsched.hosts import channel
from hetsched.hosts.client import ClusterClient
from hetsched.hosts.tcp import TcpHosts
from tests.hosts.conftest import TOKEN, Cluster, HostProcess


def planes(count: int, side: int = 64) -> np.ndarray:
    rng = np.random.default_rng(count)
    return rng.standard_normal((count, side, side)) + 1j


def test_jobs_and_functions_on_arrays_and_files(cluster: Cluster, tmp_path: Path) -> None:
    client, *_ = cluster
    x = planes(60)
    np.save(tmp_path / "x.npy", x)

    job = client.submit("fft", x, direction="forward")
    np.testing.assert_allclose(job.result(60), np.fft.fft2(x), atol=1e-9)
    assert "60 units in" in job.explain()
    assert "host1" in job.explain()

    out = np.empty_like(x)
    client.submit("fft", x, out=out).result(60)
    np.testing.assert_allclose(out, np.fft.fft2(x), atol=1e-9)

    in_place = x.copy()
    assert client.submit("fft", in_place, out=in_place).result(60) is in_place
    np.testing.assert_allclose(in_place, out, atol=1e-9)

    path = client.submit("fft", tmp_path / "x.npy", out=tmp_path / "y.npy").result(60)
    np.testing.assert_allclose(np.load(path), np.fft.fft2(x), atol=1e-9)
    assert sorted(p.name for p in tmp_path.glob("*.npy")) == ["x.npy", "y.npy"]

    rng = np.random.default_rng(1)
    c, a, b = rng.random((70, 30)), rng.random((70, 20)), rng.random((20, 30))
    result = client.submit("matrix_update", {"C": c, "A": a, "B": b}).result(60)
    np.testing.assert_allclose(result, c + a @ b)
    assert client.submit("fft", batch=(9, 16, 16)).result(60).shape == (9, 16, 16)

    image = rng.random((31, 40))
    for mode in ("wrap", "constant"):
        options: dict[str, Any] = {"axis": 1, "overlap": 2, "mode": mode, "size": 5}
        np.testing.assert_allclose(
            client.map(scipy.ndimage.uniform_filter1d, image, **options),
            hetsched.map(scipy.ndimage.uniform_filter1d, image, **options),
        )
    np.testing.assert_allclose(client.map("numpy:sqrt", image), np.sqrt(image))


def test_errors_name_the_host_and_the_units_and_leave_the_hosts_usable(
    cluster: Cluster, tmp_path: Path
) -> None:
    client, *_ = cluster
    with pytest.raises(errors.DataError, match="must have as many") as caught:
        client.map(scipy.ndimage.zoom, np.ones((4, 4)), zoom=2)
    assert any(note.startswith("on host") for note in caught.value.__notes__)
    for faulty, error in [
        (lambda: client.submit("fft", planes(3), direction="up").result(60), errors.UsageError),
        (lambda: client.submit("fft", tmp_path / "no.npy"), errors.InputMissing),
        (lambda: client.submit("fft", planes(3), out=np.empty(2)).result(60), errors.DataError),
        (lambda: client.submit("fft", planes(3), out=tmp_path / "y.tif"), errors.UsageError),
        (lambda: client.submit("heat", planes(3)), errors.Unavailable),
        (lambda: client.map(lambda b: b, planes(3)), errors.UsageError),
        (lambda: client.map("no_such_module:f", planes(3)), errors.UsageError),
    ]:  # fmt: skip
        with pytest.raises(error):
            faulty()
    assert not [*tmp_path.glob("*.npy"), *tmp_path.glob(".*")]
    np.testing.assert_allclose(client.map("numpy:sqrt", np.ones(5)), np.ones(5))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
def test_a_lost_hosts_units_are_computed_elsewhere_and_it_may_return(
    cluster: Cluster, start_host: Callable[..., HostProcess], number: int
) -> None:
    client, hosts, processes = cluster
    x = np.random.default_rng(0).random((400, 50))
    ended: list[Outcome] = []
    struck: list[bool] = []

    def strike(outcome: Outcome) -> None:
        if not struck and outcome.work.get("host1", HostWork()).parts:
            struck.append(True)
            processes[1].signal(number)
        ended[:] = [outcome]

    np.testing.assert_array_equal(client.map("numpy:sqrt", x, follow=strike), np.sqrt(x))
    work = ended[0].work
    assert work["host0"].units + work["host1"].units == 400
    assert ended[0].again <= 2 * 400 / 8  # the parts that it had
    until(lambda: list(client.hosts()) == ["host0"])

    hosts.join("host2", start_host().address, TOKEN, None)
    np.testing.assert_array_equal(client.map("numpy:sqrt", x, follow=strike), np.sqrt(x))
    assert ended[0].work["host2"].units


def test_a_host_that_joins_in_mid_run_takes_its_share(
    cluster: Cluster, start_host: Callable[..., HostProcess]
) -> None:
    client, hosts, _ = cluster
    newcomer, x = start_host(), np.random.default_rng(0).random((400, 50))
    ended: list[Outcome] = []

    def join(outcome: Outcome) -> None:
        if not ended:
            ended.append(outcome)
            hosts.join("host2", newcomer.address, TOKEN, None)

    np.testing.assert_array_equal(client.map("numpy:sqrt", x, follow=join), np.sqrt(x))
    assert ended[0].work["host2"].units


def test_a_cancelled_job_leaves_the_hosts_free(cluster: Cluster) -> None:
    client, *_ = cluster
    x = planes(40)
    job = client.submit("fft", x, follow=lambda outcome: job.cancel())
    with pytest.raises(errors.Cancelled):
        job.result(60)
    np.testing.assert_array_equal(client.map("numpy:abs", x), np.abs(x))


class _Heard:
    """Collects what a host sends to a client that speaks the protocol by hand."""

    def __init__(self) -> None:
        self.messages: list[Any] = []

    def buffers(self, message: Any) -> tuple[memoryview, ...]:
        return ()

    def take(self, message: Any) -> None:
        self.messages.append(message)

    def lost(self, reason: str) -> None:
        self.messages.append(reason)


def test_strangers_other_versions_and_garbage_are_refused(
    start_host: Callable[..., HostProcess],
) -> None:
    host = start_host()
    hosts = TcpHosts()
    with pytest.raises(errors.NotPermitted, match="wrong token"):
        hosts.join("host", host.address, "another token", None)

    for hello, code in [
        (channel.Hello("0.0.0", TOKEN), 76),
        (channel.Hello(hetsched.__version__, "x"), 77),
    ]:
        heard = _Heard()
        link = channel.Channel(socket.create_connection(host.address), heard)
        link.send(hello)
        link.start()
        link.join()
        refused, _ = heard.messages
        assert refused.error.code == code
    for text in (b"\xff" * 64, b"\0\0\0\4" + b"\xc1" * 4, b"GET / HTTP/1.1\r\n\r\n"):
        with socket.create_connection(host.address, 20) as connection:
            connection.sendall(text)
            with contextlib.suppress(ConnectionResetError):
                assert connection.recv(1) == b""
    heard = _Heard()
    link = channel.Channel(socket.create_connection(host.address), heard)
    link.send(channel.See("/etc/hostname", "x"))  # before the hello
    link.start()
    link.join()
    assert [m for m in heard.messages if not isinstance(m, str)] == []

    hosts.join("host", host.address, TOKEN, None)
    with ClusterClient(hosts) as client:
        assert client.submit("fft", planes(4)).result(60).shape == (4, 64, 64)
    closed = socket.create_server(("127.0.0.1", 0))
    with pytest.raises(errors.Unavailable):
        address = closed.getsockname()
        closed.close()
        hosts.join("nobody", address, TOKEN, None)
