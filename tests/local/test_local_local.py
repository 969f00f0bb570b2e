"""The embedded engine: threads, arrays of other engines, closing."""

from __future__ import annotations

import gc
import os
import select
import signal
import weakref
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import numpy as np
import psutil
import pytest

import hetsched
from hetsched.config import parse
from hetsched.errors import UsageError

ONE_CORE = parse("[[device]]\nkind = 'cpu'\ncount = 1\n", "test")


@pytest.fixture(scope="module")
def local() -> Iterator[hetsched.Local]:
    with hetsched.Local(ONE_CORE, learn=False) as local:
        yield local


def plane(local: hetsched.Local, value: complex) -> np.ndarray:
    x = local.empty((1, 8, 8))
    x[:] = value
    return x


def test_an_array_of_another_engine_is_copied(local: hetsched.Local) -> None:
    with hetsched.Local(ONE_CORE, learn=False) as other_local:
        other_arrays = [plane(other_local, 1) for _ in range(8)]
        arrays = [plane(local, 100) for _ in range(8)]
        results = [local.submit("fft", x).result(60)[0, 0, 0] for x in other_arrays]
    assert results == [64] * 8
    assert len(arrays) == 8


def test_an_id_needs_a_daemon(local: hetsched.Local) -> None:
    with pytest.raises(UsageError, match="Local doesn't remember jobs"):
        local.submit("fft", batch="1x8x8", id="nightly")


def in_a_callback(local: hetsched.Local, act: Any) -> Future[Any]:
    """The result of `act` on the thread that reports progress."""
    outcome: Future[Any] = Future()

    def called(state: object) -> None:
        if outcome.done():
            return
        try:
            outcome.set_result(act())
        except Exception as error:
            outcome.set_exception(error)

    local.submit("fft", batch="1x8x8", follow=called)
    return outcome


def test_a_refused_job_keeps_no_array_alive(local: hetsched.Local) -> None:
    x = plane(local, 1)
    array = weakref.ref(x)
    gc.collect()
    gc.disable()
    try:
        with pytest.raises(UsageError, match="nonsense"):
            local.submit("fft", x, devices="nonsense")
        del x
        local.devices()  # after the callbacks of that job

        assert array() is None
    finally:
        gc.enable()


def test_a_callback_may_not_wait_for_its_own_thread(local: hetsched.Local) -> None:
    for act in (lambda: local.submit("fft", batch="1x8x8"), lambda: local.explain(1), local.close):
        with pytest.raises(UsageError, match=r"callback.*another thread"):
            in_a_callback(local, act).result(60)


def test_a_callback_may_make_calls_that_need_not_wait(local: hetsched.Local) -> None:
    devices, _ = in_a_callback(local, local.devices).result(60)
    assert [device.kind for device in devices] == ["cpu"]


def test_an_abandoned_engine_leaves_no_process() -> None:
    local = hetsched.Local(ONE_CORE, learn=False)
    local.submit("fft", batch="1x8x8").result(60)
    (process,) = map(psutil.Process, local.pids().values())
    local.abandon()
    local.close()
    assert psutil.wait_procs([process], timeout=60)[1] == []
    with pytest.raises(UsageError, match=r"this hetsched\.Local is closed"):
        local.devices()


def test_a_job_waits_for_a_restart_if_it_may_not_use_what_is_ready() -> None:
    config = parse(
        "[[device]]\nkind = 'cpu'\ncount = 1\n"
        "[[device]]\nkind = 'emulated'\nname = 'other'\ncompute = { unit = '1us' }\n",
        "test",
    )
    with hetsched.Local(config, learn=False) as local:
        x = plane(local, 1)
        local.submit("fft", x).result(60)
        local.switch_devices(disable=["other"])
        core = os.pidfd_open(local.pids()["cpu0"])

        def kill() -> None:  # the engine hears of it afterwards
            signal.pidfd_send_signal(core, signal.SIGKILL)
            select.select([core], [], [])

        local._call(kill)
        os.close(core)

        assert local.submit("fft", x).result(60)[0, 0, 0] == 64
