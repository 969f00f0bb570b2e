"""Jobs over real host processes on loopback: right results, whatever becomes of a host."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import scipy
from served import until

import hetsched
from hetsched import errors
from hetsched.cluster.coordinator import HostWork, Outcome
from hetsched.hosts import channel
from hetsched.hosts.client import ClusterClient
from hetsched.hosts.shared_files import place_in
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
    with pytest.raises(errors.JobFailed) as caught:  # its text has several lines
        client.map("numpy.testing:assert_array_equal", np.ones(4), desired=0)
    assert "\n" not in str(caught.value)
    for faulty, error in [
        (lambda: client.submit("fft", planes(3), direction="up").result(60), errors.UsageError),
        (lambda: client.submit("fft", planes(3), memory_limit=0).result(60), errors.UsageError),
        (lambda: client.map("numpy:sqrt", np.ones(9), memory=0), errors.UsageError),
        (lambda: client.submit("fft", tmp_path / "no.npy"), errors.InputMissing),
        (lambda: client.submit("fft", planes(3), out=np.empty(2)).result(60), errors.DataError),
        (lambda: client.submit("fft", planes(3), out=tmp_path / "y.tif"), errors.UsageError),
        (lambda: client.submit("kmeans", np.ones((9, 2)), clusters=2), errors.UsageError),
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


def test_a_cancelled_job_leaves_the_hosts_free_and_its_out_alone(cluster: Cluster) -> None:
    client, *_ = cluster
    x, out = planes(40), planes(40)
    job = client.submit("fft", x, out=out, follow=lambda outcome: job.cancel())
    with pytest.raises(errors.Cancelled):
        job.result(60)
    out[:] = 7
    np.testing.assert_array_equal(client.map("numpy:abs", x), np.abs(x))
    assert (out == 7).all()


def test_ctrl_c_ends_a_map_on_the_hosts(cluster: Cluster) -> None:
    client, *_ = cluster
    ended: list[Outcome] = []
    is_caught = threading.Event()

    def interrupt(outcome: Outcome) -> None:
        if not ended:
            os.kill(os.getpid(), signal.SIGINT)
            is_caught.wait(60)
        ended[:] = [outcome]

    x = np.random.default_rng(0).random((400, 50))
    with pytest.raises(KeyboardInterrupt):
        client.map("numpy:sqrt", x, follow=interrupt)
    is_caught.set()
    np.testing.assert_array_equal(client.map("numpy:abs", x), x)
    assert sum(work.units for work in ended[0].work.values()) < 400


def test_jobs_that_never_run_end_and_leave_no_files(cluster: Cluster, tmp_path: Path) -> None:
    client, *_ = cluster
    may_go_on = threading.Event()
    np.save(tmp_path / "x.npy", planes(5))
    first = client.submit("fft", planes(40), follow=lambda _: may_go_on.wait(60))
    shortened = client.submit("fft", tmp_path / "x.npy")
    os.truncate(tmp_path / "x.npy", 5000)
    waiting = [client.submit("fft", planes(5), out=tmp_path / f"y{i}.npy") for i in range(2)]
    assert waiting[0].cancel()
    may_go_on.set()
    first.result(60)
    with pytest.raises(errors.DataError, match="truncated"):
        shortened.result(60)
    assert waiting[1].result(60) == str(tmp_path / "y1.npy")

    may_go_on.clear()
    last = client.submit("fft", planes(40), follow=lambda _: may_go_on.wait(60))
    waiting = [client.submit("fft", planes(5), out=tmp_path / "z.npy")]
    closer = threading.Thread(target=client.close)
    closer.start()
    with pytest.raises(CancelledError):
        waiting[0].result(60)
    may_go_on.set()
    closer.join()
    with pytest.raises(errors.Cancelled):
        last.result(60)
    with pytest.raises(errors.UsageError, match="closed"):
        client.submit("fft", planes(5), out=tmp_path / "z.npy")
    assert sorted(p.name for p in tmp_path.iterdir() if p.is_file()) == ["x.npy", "y1.npy"]


def test_results_that_dont_fit_together_fail_the_job_not_the_hosts(cluster: Cluster) -> None:
    client, *_ = cluster
    x = np.linspace(1, -1, 400)
    with pytest.raises((errors.DataError, errors.JobFailed)):  # complex for negative ones
        client.map("numpy:emath.sqrt", x)
    assert len(client.hosts()) == 2
    np.testing.assert_array_equal(client.map("numpy:abs", x), np.abs(x))


def test_a_forks_child_is_refused(cluster: Cluster) -> None:
    client, *_ = cluster
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # from Python 3.12 on: there are other threads
        child = os.fork()
    if child == 0:
        with contextlib.suppress(errors.UsageError):
            client.map("numpy:abs", np.ones(3))
            os._exit(1)
        client.close()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    np.testing.assert_array_equal(client.map("numpy:abs", np.ones(3)), np.ones(3))


def test_a_fifo_holds_up_no_host(cluster: Cluster, tmp_path: Path) -> None:
    *_, processes = cluster
    os.mkfifo(tmp_path / "fifo")
    question = channel.See(7, str(tmp_path / "fifo"), "text")
    with channel.greet("host", processes[0].address, TOKEN, None, 20.0) as connection:
        channel.send_now(connection, question)
        answer = channel.receive_now(connection, 20)
    assert answer == channel.Seen(7, False)


def test_functions_write_where_the_caller_wants(cluster: Cluster, tmp_path: Path) -> None:
    client, *_ = cluster
    x, out = np.random.default_rng(0).random((50, 20)), np.empty((50, 20), "float32")
    assert client.map("numpy:sqrt", x, out=out, dtype="float32", devices="cpu") is out
    np.testing.assert_allclose(out, np.sqrt(x), rtol=1e-6)
    assert client.map("numpy:sqrt", x, out=tmp_path / "y.npy") == tmp_path / "y.npy"
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), np.sqrt(x))
    np.testing.assert_array_equal(client.map("numpy:square", tmp_path / "y.npy"), np.sqrt(x) ** 2)
    fraction, whole = client.map("numpy:modf", 9 * x)
    np.testing.assert_array_equal(fraction + whole, 9 * x)
    with pytest.raises(errors.DataError):
        client.map("numpy:sqrt", x, shape=(50, 21))


@pytest.mark.parametrize("suffix", [".h5", ".tif", ".zarr"])
def test_inputs_and_results_are_files_of_any_format(
    cluster: Cluster, tmp_path: Path, suffix: str
) -> None:
    pytest.importorskip({".h5": "h5py", ".tif": "tifffile", ".zarr": "zarr"}[suffix])
    client, *_ = cluster
    x = np.random.default_rng(0).random((40, 8, 8), "float32")
    first, second = tmp_path / f"x{suffix}", tmp_path / f"y{suffix}"
    hetsched.map(np.array, x, out=first)
    client.map("numpy:sqrt", first, out=second)
    np.testing.assert_array_equal(client.map("numpy:array", second), np.sqrt(x))
    found = client.submit("fft", first, out=tmp_path / "z.npy").result(60)
    np.testing.assert_allclose(np.load(found), np.fft.fft2(x), atol=1e-3)


def test_hosts_write_their_own_rows_and_a_late_one_leaves_other_files_alone(
    cluster: Cluster, tmp_path: Path
) -> None:
    *_, processes = cluster
    target = np.lib.format.open_memmap(tmp_path / "y.npy", "w+", "float64", (9, 3))
    place = place_in(target)
    part = channel.Part(
        1, "numpy:sqrt", {}, {}, channel.Mapped(0, 0, None), 4, 2,
        (channel.Layout("0", "float64", (2, 3)),), {"": place},
    )  # fmt: skip
    with channel.greet("host", processes[0].address, TOKEN, None, 20.0) as connection:
        for inode, path in [(place.inode, place.path), (place.inode + 1, "")]:
            message = msgspec.structs.replace(
                part, out={"": msgspec.structs.replace(place, inode=inode)}
            )
            channel.send_now(connection, message)
            connection.sendall(channel.bytes_of(np.full((2, 3), 4.0)))
            done = channel.receive_now(connection, 20)
            assert done.results == (channel.Layout("", "float64", (2, 3), path),)
    np.testing.assert_array_equal(target[4:6], 2)
    assert not target[:4].any()
    assert not target[6:].any()


@pytest.mark.parametrize("job", ["function", "workload"])
def test_hosts_read_their_own_rows(cluster: Cluster, tmp_path: Path, job: str) -> None:
    client, *_ = cluster
    np.save(tmp_path / "x.npy", planes(40))
    np.save(tmp_path / "other.npy", np.ones(3))

    def replace(_: Outcome) -> None:
        with contextlib.suppress(FileNotFoundError):
            (tmp_path / "other.npy").rename(tmp_path / "x.npy")

    texts = "isn't the coordinator's file|is truncated|has been shortened"  # depending on when
    with pytest.raises(errors.DataError, match=texts):
        if job == "function":
            client.map("numpy:abs", tmp_path / "x.npy", follow=replace)
        else:
            client.submit("fft", tmp_path / "x.npy", follow=replace).result(60)


def test_strangers_other_versions_and_garbage_are_refused(
    start_host: Callable[..., HostProcess],
) -> None:
    host = start_host()
    hosts = TcpHosts()
    for hello, code in [
        (channel.Hello("0.0.0", TOKEN), 76),
        (channel.Hello(hetsched.__version__, "x"), 77),
        (channel.See(1, "/etc/hostname", "x"), 77),
        (channel.Beat(), 77),
    ]:
        with socket.create_connection(host.address, 20) as connection:
            channel.send_now(connection, hello)
            assert channel.receive_now(connection, 20).error.code == code
            assert connection.recv(1) == b""
    for text in (b"\xff" * 64, b"\0\0\0\4" + b"\xc1" * 4, b"GET / HTTP/1.1\r\n\r\n"):
        with socket.create_connection(host.address, 20) as connection:
            connection.sendall(text)
            with contextlib.suppress(ConnectionResetError):
                assert connection.recv(1) == b""
    with pytest.raises(errors.NotPermitted, match="wrong token"):
        hosts.join("host", host.address, "another token", None)

    with contextlib.ExitStack() as silent:
        for _ in range(40):
            silent.enter_context(socket.create_connection(host.address, 20))
        hosts.join("host", host.address, TOKEN, None)
    with ClusterClient(hosts) as client:
        assert client.submit("fft", planes(4)).result(60).shape == (4, 64, 64)
    closed = socket.create_server(("127.0.0.1", 0))
    address = closed.getsockname()
    closed.close()
    with pytest.raises(errors.Unavailable):
        hosts.join("nobody", address, TOKEN, None)
