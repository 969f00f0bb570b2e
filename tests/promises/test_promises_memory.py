"""Jobs keep within the memory of their devices, and small ones run beside a large one."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from served import PLUG_INS, Daemon, Gate, computes, refused, serving, until
from toys import diffused

import hetsched

GPU = """
[[device]]
kind = "emulated"
name = "emu0"
memory = "64KiB"
compute = { gap = "20us", unit = "100us" }
h2d = { gap = "10us", rate = "1GB/s" }
d2h = { gap = "10us", rate = "1GB/s" }
"""
SIDE = """
[[device]]
kind = "cpu"
count = 1
team = false
"""
ROOM = """
[arena]
results = "4KiB"
"""
"""For one result."""
SLOW_CLOCK = """
import sys, time
real = time.monotonic
if "serve" in sys.orig_argv:
    time.monotonic = lambda: real() / 20
"""
"""Python runs a module sitecustomize first: five seconds of the daemon are two minutes."""
PLANE = 16 * 16 * 8
"""Bytes of a complex64 plane."""


@pytest.fixture(scope="module")
def gpu() -> Iterator[Daemon]:
    with serving(GPU) as daemon:
        yield daemon


@pytest.fixture
def client(gpu: Daemon) -> Iterator[hetsched.Client]:
    with gpu.client() as client:
        yield client


def largest_chunk(job: Any) -> int:
    return max(max(device.chunks) for device in job.report.devices)


@pytest.mark.parametrize("limit", [None, "32KiB", 4 * PLANE])
def test_a_load_larger_than_the_device_is_streamed_through_it(
    client: hetsched.Client, limit: Any
) -> None:
    x = np.random.default_rng(1).standard_normal((200, 16, 16)).astype("complex64")
    job = client.submit("fft", x, memory_limit=limit, verify=True)
    np.testing.assert_allclose(job.result(60), np.fft.fft2(x), atol=1e-3)
    nbytes = {None: 64 << 10, "32KiB": 32 << 10}.get(limit, limit)
    assert largest_chunk(job) * PLANE * 2 <= nbytes


def test_a_unit_larger_than_the_memory_is_refused(client: hetsched.Client) -> None:
    with refused(65):
        client.submit("fft", batch="1x64x64", memory_limit=1000).result(60)
    with refused(65):
        client.submit("fft", batch="1x512x512").result(60)


def test_a_device_that_holds_no_row_takes_no_part_in_an_iterative_job() -> None:
    x = np.random.default_rng(1).standard_normal((8, 20_000))
    params = {"rows": 8, "columns": 20_000, "iterations": 3}
    with serving(GPU + SIDE) as daemon, daemon.client() as client:
        job = client.submit("toys:Diffusion", x, **params)
        np.testing.assert_allclose(job.result(60).y, diffused(x, 3))
        assert job.report is not None
        assert [device.device for device in job.report.devices] == ["cpu0"]
        with refused(65, "one row needs"):
            client.submit("toys:Diffusion", x, devices="emu0", **params).result(60)


def test_no_result_is_released_for_saved_rows_that_would_not_fit_anyway() -> None:
    x = np.random.default_rng(1).standard_normal((160, 1000))
    config = GPU.replace("64KiB", "512KiB") + SIDE + '[arena]\nlimit = "6576KiB"\n'
    with serving(config) as daemon, daemon.client() as client:
        with daemon.client() as gone:
            left = gone.submit("fft", batch="1x16x16").id
        until(lambda: client.status(["done"], jobs=[left]))
        job = client.submit("toys:Diffusion", x, rows=160, columns=1000, iterations=3)
        np.testing.assert_allclose(job.result(60).y, diffused(x, 3))
        assert job.report is not None
        assert "no room in shared memory for 1.22 MiB" in "".join(job.report.notes)
        assert client.job(left).result(60).shape == (1, 16, 16)


def test_what_a_kernel_does_not_write_in_device_memory_is_zero(client: hetsched.Client) -> None:
    assert (client.submit("toys:Toy", np.ones((40, 4)), units=40).result(60) == 3).all()
    y = client.submit("toys:Toy", np.ones((40, 4)), units=40, unwritten=40).result(60)
    assert (y == 0).all(), "data of an earlier job"


def test_a_small_job_runs_beside_a_large_one_unless_it_reads_what_an_earlier_one_writes(
    tmp_path: Path,
) -> None:
    old, shared = tmp_path / "old.npy", tmp_path / "shared.npy"
    for path in (old, shared):
        np.save(path, np.zeros((4, 4)))
    with serving(SIDE) as daemon, daemon.client() as client:

        def small(path: Path) -> hetsched.Job:
            return client.submit("toys:Toy", path, units=4)

        for _ in range(3):  # unmeasured jobs wait for their turn
            small(old).result(60)
        large = client.submit("toys:Slow", np.ones((100, 4)), units=100, milliseconds=20)
        computes(large)
        unmeasured = {"units": 4, "out": shared, "force": True}
        writer = client.submit("toys:Faulty", np.ones((4, 4)), **unmeasured)
        reader, other = small(shared), small(old)
        assert (other.result(60) == 1).all()
        assert other.report is not None
        assert f"ran beside job {large.id}" in other.report.notes[0]
        assert (reader.result(60) == 7).all(), "the file that the writer replaces"
        assert (large.result(60) == 3).all() and writer.done()


def test_a_small_job_and_a_large_one_survive_the_death_of_their_process(gate: Gate) -> None:
    x = np.ones((4, 4))
    with serving(SIDE) as daemon, daemon.client() as client:

        def small() -> hetsched.Job:
            return client.submit("toys:Toy", x, units=4, gate=str(gate.path))

        gate.open()
        for _ in range(3):  # unmeasured jobs wait for their turn
            small().result(60)
        gate.close()
        with contextlib.closing(Gate(gate.path)) as gate:
            for passed in gate.path.parent.glob("gate.*"):
                passed.unlink()
            large = client.submit("toys:Slow", np.ones((100, 4)), units=100, milliseconds=20)
            computes(large)
            beside = small()
            (victim,) = until(gate.pids)
            assert not large.done()
            os.kill(victim, signal.SIGKILL)
            gate.open()
            assert (beside.result(60) == 3).all() and (large.result(60) == 3).all()


def test_a_result_is_kept_for_a_client_that_lives_though_others_need_the_room(
    tmp_path: Path,
) -> None:
    (tmp_path / "sitecustomize.py").write_text(SLOW_CLOCK)
    path, x = f"{PLUG_INS}:{tmp_path}", np.ones((40, 4))
    with serving(ROOM + SIDE, PYTHONPATH=path) as daemon, daemon.client() as client:
        with daemon.client() as gone:
            left = gone.submit("toys:Toy", x, units=40)
            number = until(left.done) and left.id
        mine = client.submit("toys:Toy", x, units=40)
        until(mine.done)
        with daemon.client() as other:
            assert (other.submit("toys:Toy", x, units=40).result(60) == 3).all()
            with refused(66, "no longer in the daemon's memory"):
                other.job(number).result(60)
        assert (mine.result(60) == 3).all()


@pytest.mark.parametrize("device", ["cpu0", "team0"])
def test_a_daemon_without_clients_ends_the_processes_of_its_cores_until_the_next_job(
    device: str,
) -> None:
    x = np.ones((4, 8, 8), "complex64")
    with serving('[arena]\nwarm_for = "0s"\n[[device]]\nkind = "cpu"\n') as daemon:
        for _ in range(2):
            with daemon.client() as client:
                assert client.submit("fft", x, devices=[device]).result(60)[0, 0, 0] == 64
            until(lambda: len(daemon.family()) == 1)  # the template remains
