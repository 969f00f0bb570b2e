"""The CUDA device on a GPU, skipped with the reason where there is none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from accelerator_toys import AffineParams, Bench

from hetsched.config import DeviceConfig
from hetsched.devices.cuda.device import CupyRuntime, open_cupy
from hetsched.devices.cuda.probe import detect

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def runtime() -> Iterator[CupyRuntime]:
    infos, absent = detect(DeviceConfig(kind="gpu"))
    if not infos:
        pytest.skip(f"needs a GPU: {absent}")
    yield open_cupy(infos[0], "")


@pytest.mark.parametrize("place", ["arena", "file", "plain"])
@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("slots", [1, 2, 3])
def test_results_are_right(
    runtime: CupyRuntime, place: str, in_place: bool, slots: int, tmp_path: Path
) -> None:
    params = AffineParams(300, 4096, in_place)
    bench = Bench(runtime, place, tmp_path, params, chunk=7, slots=slots)

    bench.run()

    assert bench.is_right()
    bench.close()


def test_copies_are_cut_where_registrations_meet(runtime: CupyRuntime) -> None:
    bench = Bench(runtime, params=AffineParams(300, 4096), chunk=7, slice_bytes=64 << 10)

    bench.run()

    assert bench.is_right()
    bench.close()


def test_times_are_in_order_and_follow_each_other(runtime: CupyRuntime) -> None:
    bench = Bench(runtime, params=AffineParams(3000, 4096), chunk=100)

    times = bench.run()

    for chunk_times in times:
        assert chunk_times.copy_in is not None
        assert chunk_times.copy_out is not None
        ends = [*chunk_times.copy_in, *chunk_times.compute, *chunk_times.copy_out]
        assert ends == sorted(ends)
    bench.close()
