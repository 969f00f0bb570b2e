"""The client against a real server, whose engine only doubles its input."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import traceback
import warnings
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

import numpy as np
import pytest
from daemon_harness import Harness

import hetsched
from hetsched.client.client import Client
from hetsched.client.control import Control
from hetsched.errors import (
    DataError,
    TryAgain,
    UsageError,
)
from hetsched.job import ArenaRef, FileOut, FileRef
from hetsched.transport.sockets import listen


def in_use(harness: Harness, nbytes: int) -> bool:
    """Whether it comes to so many bytes of segments that somebody holds."""
    gc.collect()
    return harness.until(lambda: harness.arena.used == nbytes)


def test_a_part_of_a_shared_array_is_passed_by_offset(harness: Harness, client: Client) -> None:
    x = client.empty((4, 8), "float64")
    x[:] = np.arange(4)[:, None]
    y = client.submit("double", x[2:]).result(60)
    assert y[:, 0].tolist() == [4, 6]
    assert harness.engine.specs[0].inputs[""] == ArenaRef(1, (2, 8), "float64", 128)


def test_what_holds_no_numbers_is_refused(client: Client) -> None:
    for array in (np.array(["text"]), np.array([object()]), np.zeros(3, "i4,f8")):
        with pytest.raises(DataError, match="only numeric dtypes"):
            client.submit("double", array)


def test_an_out_that_does_not_fit_says_both_shapes(client: Client) -> None:
    job = client.submit("double", np.ones((2, 3)), out=np.empty(7))
    with pytest.raises(DataError, match=r'\(2, 3\).*\(7,\);.*empty\(\(2, 3\), "float64"'):
        job.result(60)


def test_an_out_that_is_read_only_is_refused(client: Client) -> None:
    y = np.empty(3)
    y.flags.writeable = False
    with pytest.raises(DataError, match="read-only"):
        client.submit("double", np.ones(3), out=y)


def test_paths_are_made_absolute_here(
    harness: Harness, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(harness.folder)
    client.submit("wait", {"A": "a.npy"}, out=Path("b.npy"), force=True)
    spec = harness.engine.specs[0]
    assert spec.inputs == {"A": FileRef(f"{harness.folder}/a.npy")}
    assert spec.outputs == {"": FileOut(f"{harness.folder}/b.npy", True)}


def test_numpys_numbers_and_dtypes_are_parameters_too(harness: Harness, client: Client) -> None:
    given = {"a": np.int64(3), "b": (np.float32(0.5), 2), "c": np.complex128, "d": np.dtype("i4")}
    client.submit("wait", devices="cpu,gpu0", memory_limit="2MiB", **given)
    spec = harness.engine.specs[0]
    assert spec.params == {"a": 3, "b": [0.5, 2], "c": "complex128", "d": "int32"}
    assert (spec.devices, spec.memory_limit) == (("cpu", "gpu0"), 2 << 20)


def test_memory_is_free_when_the_last_view_dies(harness: Harness, client: Client) -> None:
    x = client.empty((1000,), "float32")
    part = x[10:]
    y = client.submit("double", x).result(60)
    del x
    assert in_use(harness, 2 * 65536)
    del part, y
    assert in_use(harness, 0)


def test_without_numpy_there_is_still_control(harness: Harness) -> None:
    code = (
        "import sys; from hetsched.client.control import Control;"
        f"c = Control({str(harness.folder)!r}); c.ping(); c.close();"
        "print(sorted(set(sys.modules) & {'numpy', 'scipy', 'hetsched.engine', 'asyncio'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_daemon_that_does_not_answer_is_not_waited_for_for_ever(tmp_path: Path) -> None:
    with listen(tmp_path / "session.sock"), pytest.raises(TryAgain, match="hasn't answered"):
        Client(tmp_path, timeout=0.01)


def test_a_closed_client_says_so(harness: Harness) -> None:
    client = Client(harness.folder)
    job = client.submit("wait")
    client.close()
    client.close()
    with pytest.raises(TryAgain, match="this client is closed"):
        job.result(60)
    for ask in (client.ping, lambda: client.empty(3), lambda: client.submit("wait")):
        with pytest.raises(UsageError, match="closed"):
            ask()
    assert not job.cancel()


def test_a_client_lives_as_long_as_its_jobs(harness: Harness) -> None:
    job = hetsched.Client(harness.folder).submit("wait", np.ones(3))
    gc.collect()
    harness.ask(lambda: harness.engine.finish(job.id))
    assert job.result(60).tolist() == [2.0] * 3


def test_a_callback_may_not_wait_for_its_own_thread(harness: Harness, client: Client) -> None:
    for act in (lambda: client.submit("wait"), client.ping, lambda: client.job(1)):
        found: Future[object] = Future()

        def called(
            job: object, act: Callable[[], object] = act, to: Future[object] = found
        ) -> None:
            try:
                to.set_result(act())
            except Exception as error:
                to.set_exception(error)

        job = client.submit("wait", np.ones(3))
        job.add_done_callback(called)
        harness.ask(lambda job=job: harness.engine.finish(job.id))  # type: ignore[misc]
        with pytest.raises(UsageError, match=r"callback.*another thread"):
            found.result(60)


def test_control_leaves_results_where_they_are(harness: Harness, client: Client) -> None:
    job = client.submit("wait", np.ones(3))
    with Control(harness.folder) as control:
        same = control.job(job.id)
        harness.ask(lambda: harness.engine.finish(job.id))
        assert isinstance(same.result(60)["Y"], ArenaRef)


@pytest.mark.parametrize("is_shared", [False, True])
def test_inputs_are_kept_until_the_jobs_end_is_known(
    is_shared: bool, harness: Harness, client: Client
) -> None:
    x = client.empty((4, 8), "float64") if is_shared else np.empty((4, 8))
    x[...] = 1
    job = client.submit("wait", x)
    (segment,) = [ref.segment for ref in harness.engine.specs[0].inputs.values()]  # type: ignore[union-attr]
    del x
    gc.collect()
    client.ping()
    harness.ask(lambda: harness.arena.release(segment))  # the job's own reference

    assert harness.ask(lambda: harness.arena.holds(segment))
    harness.ask(lambda: harness.arena.retain(segment))
    harness.ask(lambda: harness.engine.finish(job.id))
    job.result(60)
    assert harness.until(lambda: not harness.arena.holds(segment))


def in_child(act: Callable[[], None]) -> int:
    """Run `act` in a forked child; return its exit status, 0 if nothing was raised."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # from Python 3.12 on: there are other threads
        pid = os.fork()
    if pid == 0:
        try:
            act()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_a_child_that_drops_an_array_releases_nothing(harness: Harness, client: Client) -> None:
    arrays = [client.empty((4, 4), "float64")]
    arrays[0][:] = 7

    def drop() -> None:
        arrays.clear()
        gc.collect()

    assert in_child(drop) == 0
    client.ping()
    other = client.empty((4, 4), "float64")
    other[:] = 9
    assert harness.arena.used == 2 * 65536
    assert (arrays[0] == 7).all()


def test_the_end_of_the_parent_is_noticed_while_a_child_lives(harness: Harness) -> None:
    waiting, writing = os.pipe()
    with Client(harness.folder, timeout=60) as parent:
        parent.ping()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            pid = os.fork()
        if pid == 0:
            os.close(writing)
            os.read(waiting, 1)
            os._exit(0)
    try:
        assert harness.until(lambda: not harness.requests.sessions)
    finally:
        os.close(writing)
        os.close(waiting)
        os.waitpid(pid, 0)


def test_a_request_that_is_too_large_is_refused_at_once(harness: Harness, client: Client) -> None:
    job = client.submit("wait", np.ones(3))
    with pytest.raises(UsageError, match=r"submit: the request has \d+ bytes, the limit is 10"):
        client.submit("double", table="x" * (1 << 20))
    harness.ask(lambda: harness.engine.finish(job.id))
    assert job.result(60).tolist() == [2.0] * 3


def test_no_thread_is_left_of_a_client(harness: Harness) -> None:
    def threads() -> int:
        gc.collect()
        harness.ask(lambda: None)
        return threading.active_count()

    Client(harness.folder).close()
    before = threads()
    for _ in range(3):
        with Client(harness.folder) as client:
            client.submit("double", np.ones(3)).result(60)
    assert threads() <= before
