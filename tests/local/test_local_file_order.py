"""Files of queued jobs: each job reads them as they are when its turn comes."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import CancelledError
from pathlib import Path

import numpy as np
import pytest
from virtual_machine import VIRTUAL

import hetsched
from hetsched.config import parse
from hetsched.errors import CantCreate, InputMissing

MACHINE = parse(VIRTUAL, "test")


@pytest.fixture(scope="module")
def local() -> Iterator[hetsched.Local]:
    with hetsched.Local(MACHINE, learn=False) as local:
        yield local


def save(path: Path, value: float, units: int = 4) -> np.ndarray:
    array = np.full((units, 8, 8), value, "complex64")
    np.save(path, array)
    return array


def release(local: hetsched.Local, number: int) -> None:
    local.release(number)


def test_a_job_reads_what_an_earlier_one_wrote(local: hetsched.Local, tmp_path: Path) -> None:
    source = save(tmp_path / "a.npy", 3)
    save(tmp_path / "x.npy", 1)
    first = local.submit("fft", tmp_path / "a.npy", out=tmp_path / "x.npy", force=True, hold=True)
    second = local.submit("fft", tmp_path / "x.npy", after=first.id)
    release(local, first.id)

    twice = np.fft.fft2(np.fft.fft2(source))
    assert np.allclose(second.result(60), twice)


def test_a_job_reads_a_file_that_an_earlier_one_is_still_to_write(
    local: hetsched.Local, tmp_path: Path
) -> None:
    source = save(tmp_path / "a.npy", 3)
    first = local.submit("fft", tmp_path / "a.npy", out=tmp_path / "y.npy", hold=True)
    with pytest.raises(InputMissing, match=f"submit this job with --after {first.id}"):
        local.submit("fft", tmp_path / "y.npy")
    second = local.submit("fft", tmp_path / "y.npy", after=first.id)
    release(local, first.id)

    assert np.allclose(second.result(60), np.fft.fft2(np.fft.fft2(source)))


def test_a_file_is_read_when_its_job_starts(local: hetsched.Local, tmp_path: Path) -> None:
    save(tmp_path / "x.npy", 1)
    job = local.submit("fft", tmp_path / "x.npy", hold=True)
    source = save(tmp_path / "x.npy", 2, units=6)
    release(local, job.id)

    assert np.allclose(job.result(60), np.fft.fft2(source))


def test_an_output_created_meanwhile_fails_the_job(local: hetsched.Local, tmp_path: Path) -> None:
    save(tmp_path / "x.npy", 1)
    job = local.submit("fft", tmp_path / "x.npy", out=tmp_path / "y.npy", hold=True)
    save(tmp_path / "y.npy", 2)
    release(local, job.id)

    with pytest.raises(CantCreate, match="exists"):
        job.result(60)


def test_a_waiting_job_leaves_no_trace_when_it_is_cancelled(
    local: hetsched.Local, tmp_path: Path
) -> None:
    save(tmp_path / "x.npy", 1)
    job = local.submit("fft", tmp_path / "x.npy", out=tmp_path / "y.npy", hold=True)
    job.cancel()

    with pytest.raises(CancelledError):
        job.result(60)
    assert [path.name for path in tmp_path.iterdir()] == ["x.npy"]
