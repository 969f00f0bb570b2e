"""The embedded engine's own edges: threads, other engines' arrays, its end."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import numpy as np
import psutil
import pytest

import hetsched
from hetsched.config import parse
from hetsched.errors import DataError, TryAgain, UsageError

ONE_CORE = parse("[[device]]\nkind = 'cpu'\ncount = 1\n", "test")


@pytest.fixture(scope="module")
def local() -> Iterator[hetsched.Local]:
    with hetsched.Local(ONE_CORE, learn=False) as local:
        yield local


def plane(local: hetsched.Local, value: complex) -> np.ndarray:
    x = local.empty((1, 8, 8))
    x[:] = value
    return x


def test_an_array_of_another_engine_is_copied_and_not_mistaken(local: hetsched.Local) -> None:
    with hetsched.Local(ONE_CORE, learn=False) as other:
        theirs = [plane(other, 1) for _ in range(8)]
        mine = [plane(local, 100) for _ in range(8)]
        found = [local.submit("fft", x).result(60)[0, 0, 0] for x in theirs]
    assert found == [64] * 8
    assert len(mine) == 8


def test_an_array_that_cannot_be_leaves_no_reference(
    local: hetsched.Local, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(fd: int, nbytes: int) -> None:
        raise OSError(12, "Cannot allocate memory")

    gc.collect()
    before = local._call(lambda: local._arena.used)
    local._call(local._arena.trim)
    monkeypatch.setattr("hetsched.transport.arena.map_segment", full)
    for shape, dtype in ((3, object), (3, "U3"), (3, "f4")):
        with pytest.raises((DataError, TryAgain)):
            local.empty(shape, dtype)
    assert local._call(lambda: local._arena.used) == before


def in_a_callback(local: hetsched.Local, act: Any) -> Future[Any]:
    """What comes of `act` on the thread that tells how far a job is."""
    found: Future[Any] = Future()

    def called(state: object) -> None:
        if found.done():
            return
        try:
            found.set_result(act())
        except Exception as error:
            found.set_exception(error)

    local.submit("fft", batch="1x8x8", follow=called)
    return found


def test_a_callback_may_not_wait_for_its_own_thread(local: hetsched.Local) -> None:
    for act in (lambda: local.submit("fft", batch="1x8x8"), local.close):
        with pytest.raises(UsageError, match=r"callback.*another thread"):
            in_a_callback(local, act).result(20)


def test_a_callback_may_ask_what_is_known_at_once(local: hetsched.Local) -> None:
    devices, _ = in_a_callback(local, local.devices).result(20)
    assert [device.kind for device in devices] == ["cpu"]


def test_an_abandoned_engine_leaves_no_process() -> None:
    local = hetsched.Local(ONE_CORE, learn=False)
    local.submit("fft", batch="1x8x8").result(60)
    (process,) = map(psutil.Process, local.pids().values())
    local.abandon()
    local.close()
    assert psutil.wait_procs([process], timeout=10)[1] == []
    with pytest.raises(UsageError, match=r"this hetsched\.Local is closed"):
        local.devices()


def test_what_is_handed_over_while_it_closes_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    local = hetsched.Local(ONE_CORE, learn=False)
    closing = threading.Thread(target=local.close)
    drain, answers = local._engine.drain, [Future[Any]()]

    def slowly(then: Any) -> None:
        then()  # from here on nothing that is handed over is done
        drain(lambda: None)

    monkeypatch.setattr(local._engine, "drain", slowly)
    local._post(closing.start)
    local._loop.call_soon_threadsafe(lambda: local._pending.add(answers[0]))
    with pytest.raises(TryAgain, match="closed"):
        answers[0].result(20)
    closing.join()
    with pytest.raises(UsageError, match="closed"):
        local.devices()
    local.close()
