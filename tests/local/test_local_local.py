"""The embedded engine: threads, arrays of other engines, closing."""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Iterator

import numpy as np
import psutil
import pytest
from served import open_descriptors

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


@pytest.mark.skipif(
    resource.getrlimit(resource.RLIMIT_NOFILE)[0] < 2000, reason="few files may be open"
)
def test_devices_start_beside_a_thousand_open_files() -> None:
    with contextlib.ExitStack() as opened, hetsched.Local(ONE_CORE, learn=False) as local:
        for _ in range(1100):
            opened.enter_context(open(os.devnull))
        assert local.submit("fft", batch="1x8x8").result(60).any()


def test_an_id_needs_a_daemon(local: hetsched.Local) -> None:
    with pytest.raises(UsageError, match="Local doesn't remember jobs"):
        local.submit("fft", batch="1x8x8", id="nightly")


def test_a_process_that_was_killed_leaves_no_descriptor(local: hetsched.Local) -> None:
    x = plane(local, 1)
    counts: list[int] = []
    for _ in range(4):
        assert local.submit("fft", x).result(60)[0, 0, 0] == 64
        counts.append(len(open_descriptors()))
        process = psutil.Process(local.pids()["cpu0"])
        process.kill()
        psutil.wait_procs([process], timeout=60)
    assert counts[2] == counts[3]


def test_an_abandoned_engine_leaves_no_process() -> None:
    local = hetsched.Local(ONE_CORE, learn=False)
    local.submit("fft", batch="1x8x8").result(60)
    (process,) = map(psutil.Process, local.pids().values())
    local.abandon()
    local.close()
    assert psutil.wait_procs([process], timeout=60)[1] == []
    with pytest.raises(UsageError, match=r"this hetsched\.Local is closed"):
        local.devices()
