"""Jobs read and write files of all formats; results appear whole or not at all."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from array_files import SOURCES, X, h5py, hostile_file, npy, read, zarr, zarr_file
from served import VIRTUAL, until

import hetsched
from hetsched.config import parse
from hetsched.errors import CantCreate, DataError, InputMissing

SUFFIXES = (".npy", ".raw", ".zarr", ".h5", ".tif")
RESULT = np.fft.fft2(X)


@pytest.fixture(scope="module")
def local() -> Iterator[hetsched.Local]:
    with hetsched.Local(parse(VIRTUAL, "test"), learn=False) as local:
        yield local


@pytest.mark.parametrize("source", SOURCES)
def test_a_job_from_any_file_to_any_file(
    local: hetsched.Local, tmp_path: Path, source: Any
) -> None:
    path = source(tmp_path)
    before = set(os.listdir(tmp_path))
    for suffix in SUFFIXES:
        out = tmp_path / f"y{suffix}"
        assert local.submit("fft", path, out=out, verify=True).result(60) == out
        np.testing.assert_allclose(read(out, "complex64"), RESULT, rtol=1e-4, atol=1e-4)
    assert {*before, *(f"y{suffix}" for suffix in SUFFIXES)} == set(os.listdir(tmp_path))


def test_a_job_of_rows_reads_and_writes_them_whole(local: hetsched.Local, tmp_path: Path) -> None:
    start = np.random.default_rng(0).random((32, 40))
    zarr.create_array(str(tmp_path / "x.zarr"), data=start, chunks=(5, 40))
    outs = [tmp_path / "y.h5", tmp_path / "y.zarr"]
    for given, out in zip((start, tmp_path / "x.zarr"), outs, strict=True):
        local.submit("heat", given, out=out, steps=3).result(60)
    np.testing.assert_array_equal(read(outs[0]), read(outs[1]))


def test_a_job_reads_what_an_earlier_one_is_to_write(
    local: hetsched.Local, tmp_path: Path
) -> None:
    out = f"{tmp_path}/y.h5:group/y"
    first = local.submit("fft", zarr_file(tmp_path), out=out, hold=True)
    with pytest.raises(InputMissing, match="--after"):
        local.submit("fft", f"{tmp_path}/y.h5")
    second = local.submit("fft", out, after=first, direction="inverse")
    local.release(first.id)
    np.testing.assert_allclose(second.result(60), X, rtol=1e-4, atol=1e-4)
    with h5py.File(tmp_path / "y.h5") as file:
        assert file["group/y"].shape == X.shape


@pytest.mark.parametrize(
    ("kind", "what"),
    [(".npy", "cut"), (".zarr", "empty"), (".zarr", "nested"), (".zarr", "object"),
     (".zarr", "codec"), (".raw", ":f4:3"), (".raw", ":O:1"), (".raw", ""),
     (".h5", 0), (".h5", 600), (".tif", 8), (".tif", 600)],
)  # fmt: skip
def test_a_hostile_file_is_one_line(
    local: hetsched.Local, tmp_path: Path, kind: str, what: Any
) -> None:
    with pytest.raises(DataError, match=rf"x\{kind}: ") as found:
        local.submit("fft", hostile_file(tmp_path, kind, what))
    assert "\n" not in str(found.value)


@pytest.mark.parametrize("kind", [".zarr", ".h5", ".tif", ".raw"])
def test_what_is_no_file_is_not_waited_for(
    local: hetsched.Local, tmp_path: Path, kind: str
) -> None:
    os.mkfifo(tmp_path / f"fifo{kind}")
    (tmp_path / f"store{kind}").mkdir()
    (tmp_path / f"store{kind}" / ".zarray").mkdir()
    for name in ("fifo", "store"):
        with pytest.raises(DataError, match=name):
            local.submit("fft", f"{tmp_path}/{name}{kind}{':f4:1' * (kind == '.raw')}")


def test_a_broken_chunk_ends_its_job(local: hetsched.Local, tmp_path: Path) -> None:
    path = Path(zarr_file(tmp_path))
    for chunk in (path / "c" / "3").rglob("*"):
        if chunk.is_file():
            chunk.write_bytes(b"no chunk")
    job = local.submit("fft", path, out=tmp_path / "y.zarr")
    with pytest.raises(DataError, match=r"x\.zarr: units \d+ to \d+ can't be read: "):
        job.result(60)
    until(lambda: os.listdir(tmp_path) == ["x.zarr"])


def test_only_a_store_is_replaced_by_a_store(local: hetsched.Local, tmp_path: Path) -> None:
    source, out = npy(tmp_path), tmp_path / "y.zarr"
    zarr.create_array(str(out), data=np.ones(3))
    with pytest.raises(CantCreate, match="exists"):
        local.submit("fft", source, out=out)
    local.submit("fft", source, out=out, force=True).result(60)
    np.testing.assert_allclose(read(out), RESULT, rtol=1e-4, atol=1e-4)

    folder = tmp_path / "papers.zarr"
    folder.mkdir()
    with pytest.raises(CantCreate, match="is a directory"):
        local.submit("fft", source, out=folder, force=True)
    with pytest.raises(DataError, match="also the input"):
        local.submit("fft", out, out=out, force=True)
    with pytest.raises(DataError, match="gets the layout of the result"):
        local.submit("fft", source, out=f"{tmp_path}/y.raw:f4:1")


MEASURED = """
import sys, threading
import psutil
import hetsched
from hetsched.config import parse

def resident():
    me, total = psutil.Process(), 0
    for process in [me, *me.children(recursive=True)]:
        try:
            with open(f"/proc/{process.pid}/smaps_rollup") as file:
                total += next(int(line.split()[1]) for line in file if line.startswith("Pss:"))
        except OSError:  # it has ended
            pass
    return total >> 10

small, source, out, config = sys.argv[1:]
with hetsched.Local(parse(config, "test"), learn=False) as local:
    for _ in range(2):
        local.submit("fft", small, out=out, force=True).result(100)
    idle, peak = resident(), 0
    job, pause = local.submit("fft", source, out=out, force=True), threading.Event()
    while not job.done():
        peak = max(peak, resident())
        pause.wait(0.05)
    job.result()
    print(peak - idle)
"""
CORES = '[arena]\nlimit = "32MiB"\n[[device]]\nkind = "cpu"\nteam = false\n'


@pytest.mark.parametrize(("source", "out"), [(".zarr", ".zarr"), (".h5", ".tif")])
def test_files_of_twice_the_memory_that_their_job_takes(
    tmp_path: Path, source: str, out: str
) -> None:
    with TemporaryDirectory(dir=tmp_path) as name:  # pytest would keep a quarter of a gigabyte
        folder = Path(name)
        paths = [folder / f"small{source}", folder / f"x{source}", folder / f"y{out}"]
        for path, units in zip(paths, (2, 80), strict=False):
            ones = np.broadcast_to(np.float32(1), (units, 512, 512))
            hetsched.map(np.negative, ones, out=path)
        command = [sys.executable, "-c", MEASURED, *map(str, paths), CORES]
        child = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
        assert child.returncode == 0, child.stderr
        y = read(paths[2], "complex64")
    assert (y[:, 0, 0] == -(512**2)).all() and not y[:, 1:].any()
    assert int(child.stdout) < 120, f"{child.stdout} MiB"  # of 240 MiB in files
