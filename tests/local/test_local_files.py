"""Files of queued jobs, read as they are at their turn; several outputs of one job."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import CancelledError
from pathlib import Path

import numpy as np
import pytest
from served import VIRTUAL
from toys import WIDTH

import hetsched
from hetsched.config import parse
from hetsched.errors import InputMissing, UsageError

MACHINE = parse(VIRTUAL, "test")
PAIRED = "toys:Paired"


@pytest.fixture(scope="module")
def local() -> Iterator[hetsched.Local]:
    with hetsched.Local(MACHINE, learn=False) as local:
        yield local


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
