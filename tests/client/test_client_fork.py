"""A forked child shares its parent's sockets and arrays, and changes nothing of them."""

from __future__ import annotations

import gc
import os
import traceback
import warnings
from collections.abc import Callable

import numpy as np
import pytest
from daemon_harness import Harness

from hetsched.client.client import Client
from hetsched.errors import UsageError


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


def test_a_child_that_closes_the_client_leaves_the_parents_open(
    harness: Harness, client: Client
) -> None:
    x = client.empty(3, "float64")
    assert in_child(client.close) == 0
    x[:] = 1
    assert client.submit("double", x).result(60).tolist() == [2.0] * 3


def test_a_child_that_uses_the_client_gets_a_clear_error(harness: Harness, client: Client) -> None:
    job = client.submit("wait", np.ones(3))

    def use() -> None:
        for call in (client.ping, lambda: client.empty(3), lambda: client.submit("double"),
                     lambda: job.result(60)):  # fmt: skip
            with pytest.raises(UsageError, match=r"is a fork; create another client here"):
                call()

    assert in_child(use) == 0


def test_a_child_may_create_a_client_of_its_own(harness: Harness, client: Client) -> None:
    def use() -> None:
        with Client(harness.folder, timeout=60) as own:
            assert own.submit("double", np.ones(3)).result(60).tolist() == [2.0] * 3

    assert in_child(use) == 0


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
