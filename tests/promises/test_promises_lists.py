"""Lists of jobs and what can be asked about each of them: shapes, times, explanations."""

from __future__ import annotations

import os
import re
import resource
import signal
from pathlib import Path

import numpy as np
import pytest
from served import Daemon, ended, refused, says

import hetsched


def row(table: str, job: int) -> str:
    return next(line for line in table.splitlines() if line.split()[0] == str(job))


def test_status_lists_the_last_twenty_with_shapes_and_both_times(
    daemon: Daemon, client: hetsched.Client
) -> None:
    x = np.ones((2, 8, 8), "complex64")
    jobs = [client.submit("fft", x) for _ in range(25)]
    for job in jobs:
        job.result(60)
    table = daemon.call("status").out.splitlines()
    assert re.split("  +", table[0])[-2:] == ["whole time", "kernels' time"]
    assert [line.split()[0] for line in table[1:21]] == [str(job.id) for job in jobs[-20:]]
    assert "the last 20 jobs" in table[21]
    assert "input=2x8x8 complex64" in table[20]
    assert len(daemon.call("status", "-n", "25").out.splitlines()) == 25 + 1


def test_every_list_has_the_same_two_times_of_a_job(
    daemon: Daemon, client: hetsched.Client
) -> None:
    job = client.submit("fft", batch="2x8x8")
    job.result(60)
    report = daemon.call("show", str(job.id), "--json").json
    assert 0 < report["seconds"] < report["whole_seconds"]
    cells = [
        re.findall(r"[\d.]+ (?:[mun]?s|min)\b", row(daemon.call(command).out, job.id))
        for command in ("status", "history")
    ]
    shown = daemon.call("show", str(job.id)).out
    assert cells[0] == cells[1] and len(cells[0]) == 2
    assert f"whole time {cells[0][0]}" in shown
    assert f"kernels' time {cells[0][1]}" in shown


def test_every_job_that_status_lists_can_be_explained(client: hetsched.Client) -> None:
    first = client.submit("fft", batch="2x8x8")
    first.result(60)
    for job in [client.submit("fft", batch="2x8x8") for _ in range(100)]:
        job.result(60)
    assert first.id in {line.job for line in client.status(limit=200)}
    numbers = range(first.id, first.id + 2)
    assert [line.job for line in client.status(["done"], jobs=numbers)] == [*numbers]
    assert client.explain(first.id).job == first.id


def test_a_job_that_has_not_started_cannot_be_explained_yet(
    engine: hetsched.Client | hetsched.Local,
) -> None:
    job = engine.submit("fft", batch="2x8x8", hold=True)
    with refused(75, "hasn't started; there is nothing to explain yet"):
        job.explain()
    job.cancel()


def test_follow_ends_by_ctrl_c_without_an_error(daemon: Daemon) -> None:
    with daemon.started("follow") as follow:
        says(follow, "Ctrl-C ends it")
        follow.send_signal(signal.SIGINT)
        result = ended(follow)
    assert (result.code, result.err, result.out) == (130, "", "")


def test_a_limit_of_device_memory_needs_a_device_that_has_some(
    engine: hetsched.Client | hetsched.Local,
) -> None:
    with refused(2, "memory_limit: 1 MiB, but none of the job's devices has memory of its own"):
        engine.submit("fft", batch="2x8x8", memory_limit="1MiB")


@pytest.mark.parametrize("free", [0, 2, 3, 5])
def test_a_job_without_descriptors_is_to_be_tried_again(
    local: hetsched.Local, tmp_path: Path, free: int
) -> None:
    np.save(tmp_path / "a.npy", np.eye(64))
    np.save(tmp_path / "b.npy", np.ones(64))
    inputs = {"A": tmp_path / "a.npy", "b": tmp_path / "b.npy"}
    local.submit("jacobi", inputs).result(60)
    job = local.submit("jacobi", inputs, hold=True)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.dup(0)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + free, limits[1]))
    try:
        local.release(job.id)
        with refused(75, "oo many open files"):
            job.result(60)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    local.submit("jacobi", inputs).result(60)
