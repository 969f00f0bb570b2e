"""Rows move between a GPU and the cores beside it: only those that move are copied."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from diffusing_workload import Diffusion, DiffusionParams
from hypothesis import given
from hypothesis import strategies as st
from iterating_bench import CORE, IteratingBench

from hetsched.device import DeviceInfo
from hetsched.device_process import epochs
from hetsched.devices.accelerator.device import Accelerator
from hetsched.devices.accelerator.piece_sizes import spare_rows
from hetsched.devices.accelerator.simulated import SimulatedRuntime
from hetsched.devices.cpu.device import CpuDevice
from hetsched.iterations.serial import run
from hetsched.memory import MemoryDemand
from hetsched.workload import Rows

ROWS = 64
X = np.random.default_rng(5).standard_normal((ROWS, 32))
GPU = DeviceInfo(name="gpu0", kind="cuda", identity="simulated GPU", link=True)
GPU_SLOT = 1
NEAR = [(8, 40), (12, 38), (10, 40), (5, 43), (20, 30), (13, 38)]
FAR = [(8, 40), (40, 60), (1, 63), (30, 31), (9, 40)]


class CountingRuntime(SimulatedRuntime):
    """Counts the bytes of all copies."""

    copied = 0

    def is_pinned(self, host: np.ndarray) -> bool:
        self.copied += host.nbytes
        return super().is_pinned(host)


@contextlib.contextmanager
def make_bench(runtime: SimulatedRuntime, iterations: int, border: str = "periodic"):  # type: ignore[no-untyped-def]
    def open_gpu(info: DeviceInfo) -> Accelerator:
        return Accelerator(info, runtime)

    params = DiffusionParams(ROWS, 32, iterations, border=border)
    devices = [(CORE, CpuDevice), (GPU, open_gpu), (CORE, CpuDevice)]
    with contextlib.closing(IteratingBench(params, X, devices, saves=True)) as bench:
        bench.prepare()
        yield bench


def shares(bounds: tuple[int, int]) -> list[int]:
    return [high - low for low, high in pairwise((0, *bounds, ROWS))]


@pytest.mark.parametrize("is_deferring", [False, True])
@pytest.mark.parametrize("moves", [NEAR, FAR], ids=["near", "far"])
@pytest.mark.parametrize("border", ["periodic", "fixed"])
def test_results_are_the_same_wherever_rows_move(
    is_deferring: bool,
    moves: Sequence[tuple[int, int]],
    border: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(epochs, "MAX_REPEATED", 0.3 if is_deferring else 0.0)
    with make_bench(SimulatedRuntime(seed=2), 3 * len(moves), border) as bench:
        bench.iterate(dict(enumerate(shares(moves[0]))), paced=True)
        for number, move in enumerate(moves):
            if number:
                bench.control.propose((0, *move, ROWS))
            bench.control.allow(3 * number + 3)
            if number < len(moves) - 1:
                bench.wait_for_report(GPU_SLOT, 3 * number + 3)
        bench.stopped(3)

        expected = run(
            Diffusion(), bench.params, {"x": X}, lambda k: shares(moves[max(0, k - 1) // 3])
        )
        np.testing.assert_array_equal(bench.arrays["y"], expected.outputs["y"])


def test_only_rows_that_move_are_copied(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(epochs, "MAX_REPEATED", 1e3)  # saved once, after the start
    runtime, copied = CountingRuntime(seed=2), {}
    with make_bench(runtime, 8) as bench:
        bench.iterate(dict(enumerate(shares((8, 40)))), paced=True)
        for iteration in range(1, 8):
            if iteration == 5:
                bench.control.propose((0, 10, 43, ROWS))
            before = runtime.copied
            bench.control.allow(iteration)
            bench.wait_for_report(GPU_SLOT, iteration)
            copied[iteration] = runtime.copied - before
        bench.control.allow(8)
        bench.stopped(3)

    row_bytes = 8 * 32
    leaving, coming = 4 * row_bytes, 3 * (row_bytes + 2 * row_bytes)  # with halos; x, both buffers
    halos_of_the_other_buffer = 2 * row_bytes
    extra = copied[5] + copied[6] - copied[3] - copied[4]
    assert 0 < extra <= leaving + coming + halos_of_the_other_buffer


@given(
    bounds=st.tuples(st.integers(0, 90), st.integers(1, 90)),
    limit=st.integers(0, 3000),
    overhead=st.integers(0, 50),
)
def test_spare_rows_are_of_the_load_and_fit(
    bounds: tuple[int, int], limit: int, overhead: int
) -> None:
    rows = Rows(bounds[0], bounds[0] + bounds[1], 200)
    need = 10 * rows.count + overhead
    demand = MemoryDemand(input_bytes=4, work_bytes=4, output_bytes=2, limit=need + limit)

    before, after = spare_rows(rows, demand, overhead)

    assert 0 <= before <= rows.first
    assert 0 <= after <= rows.load - rows.stop
    assert 10 * (rows.count + before + after) + overhead <= need + limit


def test_the_time_of_saving_is_reported_with_the_next_iteration(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(epochs, "MAX_REPEATED", 1e3)  # saved once, after the start
    monkeypatch.setattr(epochs, "MAX_TIME", 1e-9)
    with make_bench(SimulatedRuntime(seed=2), 3) as bench:
        bench.iterate(dict(enumerate(shares((8, 40)))))
        bench.stopped(3)

        for slot in range(3):
            saves = [record.seconds.save for record in bench.records(slot)]
            assert [seconds > 0 for seconds in saves] == [True, False, False]
