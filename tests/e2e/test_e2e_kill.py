"""A job that is killed, fails or is cancelled doesn't affect the next one."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures import CancelledError
from pathlib import Path

import numpy as np
import psutil
import pytest

import hetsched
from hetsched.client.job import Job
from hetsched.errors import JobFailed
from hetsched.job import JobState, Running

HERE = Path(__file__).parent


@pytest.fixture(scope="module", params=[("cpu-only", "cpu0"), ("emulated-gpu", "emu0")])
def local(request: pytest.FixtureRequest) -> Iterator[tuple[hetsched.Local, str]]:
    config, victim = request.param
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(HERE))
        with hetsched.Local(config, learn=False) as local:
            yield local, victim


def submit_deadly(engine: hetsched.Local, x: np.ndarray, call: int, folder: Path) -> Job:
    """A job in which a process is killed when a kernel of its is called for the `call`th time."""
    return engine.submit(
        "wrong_fft:WrongFft",
        x,
        fault="dies",
        draw=call,
        marker=str(folder / f"killed-{call}"),
    )


@pytest.fixture
def planes(local: tuple[hetsched.Local, str]) -> np.ndarray:
    x = local[0].empty((96, 64, 64), "complex64")
    x[...] = np.random.default_rng(1).standard_normal(x.shape)
    return x


def test_a_device_that_was_killed_comes_back(
    local: tuple[hetsched.Local, str], planes: np.ndarray
) -> None:
    engine, victim = local
    engine.submit("fft", planes, devices=victim).result(timeout=60)
    before = engine.pids()[victim]

    os.kill(before, signal.SIGKILL)
    engine.submit("fft", planes, devices=victim).result(timeout=60)

    assert engine.pids()[victim] != before


def test_a_kill_leaks_no_descriptor_thread_or_process(
    local: tuple[hetsched.Local, str], planes: np.ndarray, tmp_path: Path
) -> None:
    engine, _ = local
    process = psutil.Process()
    kills = 4
    counts = []
    for kill in range(1 + kills):
        submit_deadly(engine, planes, kill + 1, tmp_path).result(timeout=60)
        for info in engine.devices()[0]:  # every process has come back
            engine.submit("fft", planes, devices=info.name).result(timeout=60)
        counts.append((process.num_fds(), process.num_threads(), len(process.children())))

    # A leak adds one per kill. One more or less is something else that this process opened or
    # closed meanwhile, such as a file of another test that the collector found.
    growth = [last - first for first, last in zip(counts[0], counts[-1], strict=True)]
    assert max(growth) <= kills // 2, counts


def test_what_ran_again_is_accounted_where_it_ran(
    local: tuple[hetsched.Local, str], planes: np.ndarray, tmp_path: Path
) -> None:
    job = submit_deadly(local[0], planes, 2, tmp_path)
    job.result(timeout=60)

    explanation = job.explain()

    (note,) = (note for note in explanation.notes if "takes no jobs" not in note)
    assert "died, ended by SIGKILL: its unfinished chunks ran again" in note
    assert note in str(explanation) and note in job.report.notes  # type: ignore[union-attr]
    assert sum(device.share for device in explanation.devices) == len(planes)
    for device, reported in zip(explanation.devices, job.report.devices, strict=True):  # type: ignore[union-attr]
        units = (
            [] if device.timeline is None else [chunk.units for chunk in device.timeline.chunks]
        )
        assert (sum(units), device.share) == (device.share, reported.share)
        assert sorted(units) == sorted(reported.chunks)


def test_cancel_ends_a_job_and_the_next_one_is_right(local: tuple[hetsched.Local, str]) -> None:
    engine, _ = local
    jobs: list[Job] = []

    def follow(state: JobState) -> None:
        if isinstance(state, Running) and state.stage == "computing":
            engine.cancel(state.job)

    jobs.append(engine.submit("fft", batch="256x128x128", follow=follow))

    with pytest.raises(CancelledError):
        jobs[0].result(timeout=60)

    x = np.ones((4, 8, 8), "complex64")
    assert np.allclose(engine.submit("fft", x).result(timeout=60)[:, 0, 0], 64)


def test_a_kernel_that_fails_fails_its_job_only(local: tuple[hetsched.Local, str]) -> None:
    engine, _ = local
    job = engine.submit("wrong_fft:WrongFft", batch="64x32x32", fault="raises")

    with pytest.raises(JobFailed, match="the kernel has had enough"):
        job.result(timeout=60)

    explanation = job.explain()
    assert (explanation.state, "had enough" in str(explanation)) == ("failed", True)
    assert engine.submit("fft", batch="8x32x32", verify=True).result(timeout=60) is not None
