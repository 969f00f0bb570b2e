"""A client's arrays, threads and forked children."""

from __future__ import annotations

import asyncio
import gc
import os
import pickle
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from served import Daemon, Gate, metric, refused, until

import hetsched

TOY = "toys:Toy"
GRAIN = 65536
"""Bytes of the smallest shared array."""


@pytest.fixture
def own(small: Daemon) -> Iterator[hetsched.Client]:
    """The only client of a daemon that keeps nothing."""
    until(lambda: small.memory() == 0)
    with small.client() as client:
        yield client


def test_a_part_of_a_shared_array_is_used_in_place(small: Daemon, own: hetsched.Client) -> None:
    x, y = own.empty((4, 4), "float64"), own.empty((4, 4), "float64")
    x[:], y[:] = np.arange(4)[:, None], -1
    own.submit(TOY, x[2:], out=y[:2], units=2).result(60)
    assert y[:, 0].tolist() == [5, 7, -1, -1]
    assert small.memory() == 2 * GRAIN


def test_a_sparse_matrix_in_shared_memory_is_used_in_place(
    small: Daemon, own: hetsched.Client
) -> None:
    source = scipy.sparse.diags_array([4.0], offsets=[0], shape=(9, 9)).tocsr()
    parts = {name: getattr(source, name) for name in ("data", "indices", "indptr")}
    arrays = {name: own.empty(part.shape, part.dtype) for name, part in parts.items()}
    for name, array in arrays.items():
        array[...] = parts[name]
    A = scipy.sparse.csr_array(tuple(arrays.values()), shape=(9, 9))
    inputs = {"A": A, "A.data": np.ones(3)}
    for order in (inputs, dict(reversed(inputs.items()))):
        with refused(2, "A.data is given twice"):
            own.submit("pcg", order)
    b = own.empty((9,), "float64")
    held = own.submit("pcg", {"A": A, "b": b}, hold=True)
    assert small.memory() == 4 * GRAIN
    b[:], arrays["data"][:] = 1, 2
    own.release(held.id)
    assert np.allclose(held.result(60).x, 0.5)


def test_memory_is_free_when_the_last_view_dies(small: Daemon, own: hetsched.Client) -> None:
    x = own.empty((100, 4), "float64")
    part = x[10:]
    y = own.submit(TOY, x, units=100).result(60)
    del x
    until(lambda: small.memory() == 2 * GRAIN)
    del part, y
    until(lambda: small.memory() == 0)


def test_a_refused_job_keeps_no_array_alive(engine: Any) -> None:
    x = engine.empty((1, 4, 4))
    array = weakref.ref(x)
    gc.collect()
    gc.disable()
    try:
        with pytest.raises(hetsched.UsageError, match="nonsense"):
            engine.submit("fft", x, devices="nonsense")
        del x
        until(lambda: array() is None)
    finally:
        gc.enable()


def test_an_out_that_does_not_fit_says_both_shapes(client: hetsched.Client) -> None:
    with refused(65, "(2, 4)") as caught:
        client.submit(TOY, units=2, out=np.empty(7)).result(60)
    assert "(7,)" in str(caught.value) and 'empty((2, 4), "float64")' in str(caught.value)


def test_paths_are_those_of_the_caller(
    client: hetsched.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("a.npy", np.ones((4, 4)))
    client.submit(TOY, {"x": "a.npy"}, out=Path("b.npy"), units=4).result(60)
    assert (np.load(tmp_path / "b.npy") == 3).all()


def test_a_closed_client_says_so(daemon: Daemon, gate: Gate) -> None:
    client = daemon.client()
    job = client.submit(TOY, units=1, gate=str(gate.path))
    client.close()
    client.close()
    with refused(75, "this client is closed"):
        job.result(60)
    for ask in (client.ping, lambda: client.empty(3), lambda: client.submit(TOY)):
        with refused(2, "closed"):
            ask()
    assert not job.cancel()


def test_a_client_lives_as_long_as_its_jobs(daemon: Daemon, gate: Gate) -> None:
    job = daemon.client().submit(TOY, np.ones((1, 4)), units=1, gate=str(gate.path))
    gc.collect()
    gate.open()
    assert (job.result(60) == 3).all()


def in_a_callback(engine: Any, act: Callable[[], object]) -> Any:
    """What `act` returns on the thread that reports progress."""
    found: Future[object] = Future()

    def called(state: object) -> None:
        if not found.done():
            try:
                found.set_result(act())
            except Exception as error:
                found.set_exception(error)

    engine.submit("fft", batch="1x8x8", follow=called)
    return found.result(60)


def test_a_callback_may_not_wait_for_its_own_thread(engine: Any) -> None:
    for act in (lambda: engine.submit("fft", batch="1x8x8"), lambda: engine.explain(1)):
        with refused(2, "another thread"):
            in_a_callback(engine, act)


def test_a_client_can_be_closed_while_a_callback_does_not_return(daemon: Daemon) -> None:
    has_begun, may_end = threading.Event(), threading.Event()

    def hangs(state: object) -> None:
        has_begun.set()
        may_end.wait(60)

    with daemon.client() as client:
        job = client.submit("fft", batch="1x8x8", hold=True)
        job.add_done_callback(hangs)
        job.cancel()
        assert has_begun.wait(60)
    may_end.set()
    with refused(2, "closed"):
        client.ping()


def test_a_callback_of_local_may_make_calls_that_need_not_wait(local: hetsched.Local) -> None:
    devices, _ = in_a_callback(local, local.devices)
    assert {device.kind for device in devices} == {"cpu"}
    with refused(2, "another thread"):
        in_a_callback(local, local.close)


def test_a_job_is_no_array_and_neither_it_nor_its_engine_can_be_sent_elsewhere(
    engine: Any,
) -> None:
    job = engine.submit("fft", batch="1x8x8")
    with refused(2, "is a job: give its result()"):
        engine.submit("fft", job)
    for held in (engine, job):
        with pytest.raises(TypeError, match="belongs to its process"):
            pickle.dumps(held)


def test_asyncio_can_await_a_job(engine: Any) -> None:
    async def story() -> Any:
        return await engine.submit(TOY, np.ones((1, 4)), units=1)

    assert (asyncio.run(story()) == 3).all()


def forked(act: Callable[[], object]) -> int:
    """A child that runs `act`; its status is 0 if that raises nothing."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # from Python 3.12 on: there are other threads
        pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        act()
        code = 0
    finally:
        os._exit(code)


def test_a_child_that_drops_an_array_releases_nothing(small: Daemon, own: hetsched.Client) -> None:
    arrays = [own.empty((4, 4), "float64")]
    arrays[0][:] = 7
    child = forked(lambda: (arrays.clear(), gc.collect()))
    assert os.waitpid(child, 0)[1] == 0
    own.ping()
    own.empty((4, 4), "float64")[:] = 9
    assert (arrays[0] == 7).all()
    until(lambda: small.memory() == GRAIN)


def test_the_end_of_the_parent_is_noticed_while_a_child_lives(small: Daemon) -> None:
    waiting, writing = os.pipe()
    with small.client() as parent:
        parent.ping()
        child = forked(lambda: (os.close(writing), os.read(waiting, 1)))
    try:
        with small.client() as other:
            until(lambda: metric(other, "sessions") == 1)
    finally:
        os.close(writing)
        os.close(waiting)
        os.waitpid(child, 0)


def test_no_thread_is_left_of_a_client(daemon: Daemon) -> None:
    daemon.client().close()
    before = threading.active_count()
    for _ in range(3):
        with daemon.client() as client:
            client.submit(TOY, units=1).result(60)
        del client
    gc.collect()
    until(lambda: threading.active_count() <= before)


def test_workloads_and_errors_are_found_in_the_package() -> None:
    assert {"fft", "matrix_update", "pcg"} <= set(hetsched.workloads())
    assert issubclass(hetsched.JobFailed, hetsched.HetschedError)
