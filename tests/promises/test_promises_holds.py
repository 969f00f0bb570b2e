"""Iterative jobs that are held now and then, so that their clients see and change their arrays."""

from __future__ import annotations

import datetime
from concurrent.futures import CancelledError
from typing import Any

import numpy as np
import psutil
import pytest
from served import Daemon, call_here, ended, refused, serving, until

import hetsched

X = np.random.default_rng(5).random((60, 40), np.float32)
STEPS = 20
BORDERS = ["neumann", "periodic", "dirichlet"]


def submit(engine: Any, x: np.ndarray = X, border: str = "neumann", **options: Any) -> Any:
    return engine.submit("heat", x, **{"steps": STEPS, "border": border, **options})


def final(engine: Any, x: np.ndarray = X, border: str = "neumann", steps: int = STEPS) -> Any:
    return submit(engine, x, border, steps=steps).result(60)["final"].copy()


@pytest.mark.parametrize("border", BORDERS)
def test_a_held_job_goes_on_from_what_its_client_has_made_of_it(engine: Any, border: str) -> None:
    whole, changed = final(engine, X, border), final(engine, X[::-1].copy(), border, 15)
    job = submit(engine, X, border, hold_every=5)
    held = list(iter(lambda: job.next_hold(60), None))
    assert [each.iteration for each in held] == [5, 10, 15]
    assert 0 < held[0].seconds < held[1].seconds < held[2].seconds
    np.testing.assert_array_equal(job.result(60)["final"], whole)
    assert job.report.iterations == STEPS

    job = submit(engine, X, border, hold_every=5)
    here = job.next_hold(60).arrays["final"]
    np.testing.assert_array_equal(here, final(engine, X, border, 5))
    here[...] = X[::-1]
    while job.next_hold(60) is not None:
        pass
    np.testing.assert_array_equal(job.result(60)["final"], changed)


def test_several_held_jobs_take_turns(engine: Any) -> None:
    inputs = [X, 2 * X, 3 * X]
    expected = [final(engine, x) for x in inputs]
    jobs = [submit(engine, x, hold_every=7) for x in inputs]
    for _ in range(3):
        for job in jobs:
            job.next_hold(60)
    for job, whole in zip(jobs, expected, strict=True):
        np.testing.assert_array_equal(job.result(60)["final"], whole)


def test_a_device_may_end_while_a_job_is_held(engine: Any, daemon: Daemon) -> None:
    job = submit(engine, hold_every=5)
    job.next_hold(60)
    here = [psutil.Process(pid) for pid in getattr(engine, "pids", dict)().values()]
    every = here or [p for p in daemon.family() if "hetsched.device_process.main" in p.cmdline()]
    every[0].kill()
    while job.next_hold(60) is not None:
        pass
    np.testing.assert_array_equal(job.result(60)["final"], final(engine))


def test_a_held_job_waits_in_the_queue_until_it_is_released(
    daemon: Daemon, client: hetsched.Client, capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    for name, value in daemon.environment.items():
        monkeypatch.setenv(name, value)
    job = submit(client, hold_every=STEPS // 2)
    assert job.next_hold(60) is not None
    (listed,) = [each for each in client.status() if each.state.job == job.id]
    assert listed.state.reason == "held"
    assert str(job.explain()).startswith(f"job {job.id}, held")
    assert client.overview().activities == ()
    assert call_here(capfd, "release", str(job.id)).code == 77
    with daemon.client() as other:
        theirs = other.job(job.id)
        for _ in range(2):
            with refused(77, "is another client's"):
                theirs.next_hold(60)
    assert job.progress().reason == "held"
    assert job.next_hold(60) is None
    np.testing.assert_array_equal(job.result(60)["final"], final(client))


def test_next_hold_waits_as_long_as_it_is_told(engine: Any) -> None:
    job = submit(engine, hold_every=5)
    assert job.next_hold(60).iteration == 5
    assert job.next_hold(60).iteration == 10
    with refused(124, "isn't held"):
        submit(engine, steps=STEPS, hold_every=STEPS, after=job).next_hold(0.05)
    job.cancel()


def test_a_held_job_can_be_stopped(engine: Any) -> None:
    job = submit(engine, hold_every=5)
    job.next_hold(60)
    job.cancel()
    assert job.next_hold(60) is None
    with pytest.raises(CancelledError):
        job.result(60)

    soon = datetime.datetime.now() + datetime.timedelta(seconds=0.5)
    job = submit(engine, hold_every=5, deadline=soon)
    with refused(1, "deadline"):
        while job.next_hold(60) is not None:
            until(lambda: datetime.datetime.now() > soon)
        job.result(60)
    np.testing.assert_array_equal(final(engine), final(engine))


ENDS = """
import os, sys
import numpy as np
import hetsched
client = hetsched.Client(sys.argv[1])
job = client.submit("heat", np.ones((60, 40), "float32"), steps=20, hold_every=5)
arrays = job.next_hold(60).arrays
print(job.id, flush=True)
os._exit(0)
"""


def test_a_held_job_ends_with_its_client(small: Daemon) -> None:
    process = small.script(ENDS)
    number = int(ended(process).out)
    with small.client() as client, pytest.raises(CancelledError):
        client.job(number).result(60)
    assert until(lambda: small.memory() == 0)


def test_a_held_job_cannot_go_on_with_another_daemon() -> None:
    with serving() as daemon, daemon.client() as client:
        job = submit(client, hold_every=5)
        held = job.next_hold(60)
        daemon.kill()
        daemon.start()
        with refused(75, "can't go on"):
            assert job.next_hold(60) is None
            job.result(60)
        assert held.arrays["final"].shape == X.shape


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"hold_every": -1}, "hold_every: -1 should be an integer from 0"),
        ({"hold_every": 5, "verify": True}, "hold_every: not with verify"),
        ({"hold_every": 5, "retries": 1}, "hold_every: not with retries"),
        ({"hold_every": 5, "checkpoint": "/tmp/c.npz"}, "hold_every: not with checkpoint"),
        ({"hold_every": 5, "tolerance": 1e-9}, "no results between its iterations"),
    ],
)
def test_what_cannot_be_held_is_refused(engine: Any, options: Any, words: str) -> None:
    with refused(2, words):
        submit(engine, **options).result(60)


def test_a_job_without_iterations_cannot_be_held(engine: Any) -> None:
    with refused(2, "has no iterations"):
        engine.submit("fft", batch="2x8x8", hold_every=5).result(60)
