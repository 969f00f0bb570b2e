"""A full disk costs no file that was there, and leaves none that is incomplete."""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from served import CORES, Gate, Place, refused, serving, until

import hetsched
from hetsched.errors import CantCreate

X = np.random.default_rng(7).standard_normal((1 << 15, 4))
"""Of 1 MiB, which don't compress."""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "small"
    folder.mkdir(mode=0o700)
    mount = ["mount", "-t", "tmpfs", "-o", "size=3m,mode=700", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("needs the right to mount a tmpfs")
    yield folder
    until(lambda: not subprocess.run(["umount", str(folder)], check=False).returncode)


def fill(disk: Path) -> Path:
    filler = disk / "filler"
    with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    return filler


@pytest.mark.root
def test_a_full_disk_refuses_durable_jobs_until_there_is_room(small_disk: Path) -> None:
    with serving(CORES, HETSCHED_STATE_DIR=str(small_disk)) as served:
        with served.client() as client:
            client.submit("fft", batch="1x64x64").result(60)
            filler = fill(small_disk)

            # Room that SQLite has reserved may still take some jobs.
            with pytest.raises(CantCreate, match="no room to record the job; make room"):
                for _ in range(1000):
                    client.submit("fft", batch="1x64x64").result(60)
            volatile = client.submit("fft", np.ones((1, 64, 64), "complex64")).result(60)
            filler.unlink()
            durable = client.submit("fft", batch="1x64x64").result(60)

        assert volatile.shape == durable.shape == (1, 64, 64)
        assert served.stop() == 0


@pytest.mark.root
@pytest.mark.parametrize("folder", ["HETSCHED_RUNTIME_DIR", "HETSCHED_STATE_DIR"])
def test_no_daemon_starts_without_room(small_disk: Path, tmp_path: Path, folder: str) -> None:
    place = Place(tmp_path)
    place.environment[folder] = str(small_disk)
    fill(small_disk)
    refusal = place.call("serve")
    assert (refusal.code, str(small_disk) in refusal.error) == (78, True)


def replacing(engine: Any, path: Path, gate: Gate) -> hetsched.Job:
    """A job that replaces 0 in `path` and has begun to compute."""
    engine.submit("toys:Toy", -np.ones((1, 4)) / 2, units=1, out=path).result(60)
    words = {"units": len(X), "gate": str(gate.path), "out": path, "force": True}
    job = engine.submit("toys:Toy", X, **words)
    until(gate.pids)
    return job


@pytest.mark.root
@pytest.mark.parametrize("name", ["y.npy", "y.h5"])
def test_the_room_for_results_is_taken_before_anything_is_computed(
    engine: Any, small_disk: Path, gate: Gate, name: str
) -> None:
    job = replacing(engine, small_disk / name, gate)
    fill(small_disk)
    gate.open()
    job.result(60)
    read = engine.submit("toys:Toy", small_disk / name, units=len(X)).result(60)
    np.testing.assert_array_equal(read, 2 * (2 * X + 1) + 1)
    with refused(73, "no room for 1 MiB"):
        engine.submit("toys:Toy", X, units=len(X), out=small_disk / f"z{name}").result(60)
    assert sorted(os.listdir(small_disk)) == ["filler", name]


@pytest.mark.root
def test_a_store_for_which_there_is_no_room_leaves_the_old_one_whole(
    engine: Any, small_disk: Path, gate: Gate
) -> None:
    job = replacing(engine, small_disk / "y.zarr", gate)
    fill(small_disk)
    gate.open()
    with refused(73, "no room"):
        job.result(60)
    assert (engine.submit("toys:Toy", small_disk / "y.zarr", units=1).result(60) == 1).all()
    until(lambda: sorted(os.listdir(small_disk)) == ["filler", "y.zarr"])


@pytest.mark.root
def test_a_job_without_room_for_its_checkpoints_is_refused(engine: Any, small_disk: Path) -> None:
    fill(small_disk)
    with refused(73, "c.npz: no room for"):
        engine.submit("heat", grid="512x512", checkpoint=small_disk / "c.npz").result(60)
    assert os.listdir(small_disk) == ["filler"]


def test_a_write_that_fails_halfway_leaves_the_old_file_whole(tmp_path: Path, gate: Gate) -> None:
    (tmp_path / "out").mkdir()
    path = tmp_path / "out" / "y.npy"
    with serving() as daemon, daemon.client() as client:
        job = replacing(client, path, gate)
        for process in daemon.family():  # not all may be at the gate yet
            resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (X.nbytes // 2, X.nbytes // 2))
        gate.open()
        with refused(73, "no space left to write"):
            job.result(60)
        assert (np.load(path) == 0).all()
        until(lambda: os.listdir(path.parent) == ["y.npy"])  # a file is removed after the answer
        assert daemon.works()
