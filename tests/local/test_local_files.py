"""Files of queued jobs, read as they are at their turn; several outputs of one job."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError
from pathlib import Path

import numpy as np
import pytest
from served import Gate
from toys import WIDTH
from virtual_machine import VIRTUAL

import hetsched
from hetsched.config import parse
from hetsched.errors import InputMissing, TryAgain, UsageError
from hetsched.job import JobState, Running

MACHINE = parse(VIRTUAL, "test")
PAIRED = "toys:Paired"


@pytest.fixture(scope="module")
def local() -> Iterator[hetsched.Local]:
    with hetsched.Local(MACHINE, learn=False) as local:
        yield local


def save(path: Path, value: float, units: int = 4) -> np.ndarray:
    array = np.full((units, 8, 8), value, "complex64")
    np.save(path, array)
    return array


def test_a_job_reads_a_file_that_an_earlier_one_is_still_to_write(
    local: hetsched.Local, tmp_path: Path
) -> None:
    source = save(tmp_path / "a.npy", 3)
    first = local.submit("fft", tmp_path / "a.npy", out=tmp_path / "y.npy", hold=True)
    with pytest.raises(InputMissing, match=f"submit this job with --after {first.id}"):
        local.submit("fft", tmp_path / "y.npy")
    second = local.submit("fft", tmp_path / "y.npy", after=first.id)
    local.release(first.id)

    assert np.allclose(second.result(60), np.fft.fft2(np.fft.fft2(source)))


def test_a_file_is_read_when_its_job_starts(local: hetsched.Local, tmp_path: Path) -> None:
    save(tmp_path / "x.npy", 1)
    job = local.submit("fft", tmp_path / "x.npy", hold=True)
    source = save(tmp_path / "x.npy", 2, units=6)
    local.release(job.id)

    assert np.allclose(job.result(60), np.fft.fft2(source))


def test_a_job_that_is_stopped_with_its_engine_leaves_no_file(tmp_path: Path) -> None:
    gate, started = Gate(tmp_path / "gate"), threading.Event()

    def on_state(state: JobState) -> None:
        if isinstance(state, Running):
            started.set()

    with hetsched.Local(parse(VIRTUAL + '\n[deadlines]\nstop = "1s"\n', "test")) as local:
        params = {"units": 1000, "gate": str(gate.path)}
        (tmp_path / "results").mkdir()
        out = tmp_path / "results" / "y.npy"
        job = local.submit("toys:Toy", out=out, follow=on_state, **params)
        assert started.wait(60)
    gate.close()

    assert isinstance(job.exception(60), TryAgain)
    assert os.listdir(tmp_path / "results") == []


def test_each_output_goes_to_its_file(local: hetsched.Local, tmp_path: Path) -> None:
    x = np.arange(40.0 * WIDTH).reshape(40, WIDTH)
    out = {"y": tmp_path / "y.npy", "z": tmp_path / "z.npy"}

    local.submit(PAIRED, x, out=out).result(60)

    assert np.array_equal(np.load(out["y"]), 2 * x + 1)
    assert np.array_equal(np.load(out["z"]), -x)


def test_two_outputs_in_one_file_are_refused(local: hetsched.Local, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    out = {"y": tmp_path / "y.npy", "z": tmp_path / "link" / "y.npy"}
    with pytest.raises(UsageError, match=r"outputs y and z are the same file, .*y\.npy"):
        local.submit(PAIRED, out=out)
    assert not (tmp_path / "y.npy").exists()


def test_two_outputs_that_overlap_in_memory_are_refused(local: hetsched.Local) -> None:
    both = local.empty((60, WIDTH), "float64")
    with pytest.raises(UsageError, match="out for y and z overlap"):
        local.submit(PAIRED, out={"y": both[:40], "z": both[20:]})
    y, z = local.empty((80, WIDTH), "float64").reshape(2, 40, WIDTH)
    x = np.ones((40, WIDTH))
    local.submit(PAIRED, x, out={"y": y, "z": z}).result(60)
    assert (y == 3).all() and (z == -1).all()


@pytest.mark.parametrize("cancelled", [0, 1])
def test_a_job_ends_though_another_one_with_its_file_was_cancelled(
    local: hetsched.Local, tmp_path: Path, cancelled: int
) -> None:
    out = {"y": tmp_path / "y.npy"}
    jobs = [local.submit(PAIRED, out=out, force=True, hold=True) for _ in range(2)]
    removed, kept = jobs[cancelled], jobs[1 - cancelled]
    removed.cancel()
    with pytest.raises(CancelledError):
        removed.result(60)
    with pytest.raises(InputMissing, match=f"--after {kept.id}"):
        local.submit("fft", out["y"])

    local.release(kept.id)

    kept.result(60)
    assert out["y"].exists()
