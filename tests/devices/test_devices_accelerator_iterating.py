"""Iterative jobs on the accelerator over the simulated runtime, together with a core."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from diffusing_workload import Diffusion, DiffusionParams
from iterating_bench import CORE, IteratingBench

from hetsched.device import DeviceInfo
from hetsched.device_process import epochs
from hetsched.devices.accelerator.device import Accelerator
from hetsched.devices.accelerator.piece_sizes import piece_overhead
from hetsched.devices.accelerator.simulated import SimulatedRuntime
from hetsched.devices.cpu.device import CpuDevice
from hetsched.iterations.serial import run

X = np.random.default_rng(5).standard_normal((24, 64))
GPU = DeviceInfo(name="gpu0", kind="cuda", identity="simulated GPU", link=True)
PARAMS = DiffusionParams(columns=64)
DEMAND = Diffusion().demand(PARAMS, "cuda")
OVERHEAD = piece_overhead(Diffusion(), PARAMS)


def limit_of(fits: int) -> int:
    """Bytes of a device with room for `fits` rows, of which some pieces take a part."""
    return DEMAND.need([fits]) + OVERHEAD * (4 if 1 < fits < 24 else 1)


MakeBench = Callable[..., IteratingBench]


@pytest.fixture
def make_bench(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Iterator[MakeBench]:
    """Makes a bench of a core (slot 0) and a GPU with room for `fits` rows (slot 1)."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with contextlib.ExitStack() as stack:

        def make(
            fits: int = 24, seed: int = 0, saves: bool = False, **settings: Any
        ) -> IteratingBench:
            limit = limit_of(fits)
            monkeypatch.setattr(epochs, "MAX_REPEATED", 0.4)  # of few iterations
            monkeypatch.setattr(Accelerator, "usable_memory", lambda device: limit)

            def open_gpu(info: DeviceInfo) -> Accelerator:
                return Accelerator(info, SimulatedRuntime(seed=seed))

            devices = [(CORE, CpuDevice), (GPU, open_gpu)]
            bench = IteratingBench(
                DiffusionParams(columns=64, **settings), X, devices, saves=saves
            )
            return stack.enter_context(contextlib.closing(bench))

        yield make


def expected(bench: IteratingBench, split: Any) -> np.ndarray:
    return run(Diffusion(), bench.params, {"x": X}, split).outputs["y"]


@pytest.mark.parametrize("border", ["periodic", "reflect", "fixed"])
@pytest.mark.parametrize("shares", [{0: 10, 1: 14}, {1: 10, 0: 14}, {1: 23, 0: 1}, {1: 24, 0: 0}])
@pytest.mark.parametrize("fits", [24, 9, 1])
def test_a_gpu_and_a_core_compute_what_one_process_computes(
    make_bench: MakeBench, border: str, shares: dict[int, int], fits: int
) -> None:
    bench = make_bench(fits=fits, border=border)
    bench.prepare()

    bench.iterate(shares)
    bench.stopped(2)

    result = expected(bench, tuple(shares.values()))
    np.testing.assert_allclose(bench.arrays["y"], result, rtol=0, atol=1e-13)


@pytest.mark.parametrize("pinned", range(72 << 10, 720 << 10, 108 << 10))
def test_rows_may_be_partly_beyond_the_quota_of_pinned_memory(
    pinned: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    x = np.random.default_rng(5).standard_normal((24, 640))

    def open_gpu(info: DeviceInfo) -> Accelerator:
        return Accelerator(info, SimulatedRuntime(), pinned=pinned, slice_bytes=4096)

    devices = [(CORE, CpuDevice), (GPU, open_gpu)]
    with contextlib.closing(IteratingBench(DiffusionParams(columns=640), x, devices)) as bench:
        bench.prepare()
        bench.iterate({0: 4, 1: 20})
        bench.stopped(2)

        result = run(Diffusion(), bench.params, {"x": x}, (4, 20)).outputs["y"]
        np.testing.assert_allclose(bench.arrays["y"], result, rtol=0, atol=1e-13)


@pytest.mark.parametrize("saves", [False, True])
def test_rows_move_between_gpu_and_core(make_bench: MakeBench, saves: bool) -> None:
    bench = make_bench(iterations=8, saves=saves)
    bench.prepare()
    bench.iterate({0: 8, 1: 16}, paced=True)
    bench.control.allow(4)
    for slot in range(2):
        bench.wait_for_report(slot, 4)

    bench.control.propose((0, 20, 24))
    bench.control.allow(8)
    bench.stopped(2)

    assert bench.rows(1) == dict.fromkeys(range(1, 5), 16) | dict.fromkeys(range(5, 9), 4)
    result = expected(bench, lambda k: (8, 16) if k <= 4 else (20, 4))
    np.testing.assert_array_equal(bench.arrays["y"], result)


@pytest.mark.parametrize("saves", [False, True])
def test_a_core_goes_on_with_the_rows_of_a_gpu_that_was_asked_to_pause(
    make_bench: MakeBench, saves: bool
) -> None:
    bench = make_bench(iterations=400, saves=saves)
    bench.prepare()
    bench.iterate({0: 8, 1: 16})
    bench.control.pause()
    (iteration,) = {stop.iteration for stop in bench.stopped(2)}

    bench.iterate({0: 24}, first=iteration + 1, previous=(0, 1), epoch=2)
    bench.stopped(1)

    result = expected(bench, lambda k: (8, 16) if k <= iteration else (24,))
    np.testing.assert_array_equal(bench.arrays["y"], result)


def test_results_are_right_in_every_order_of_the_runtimes_operations(
    make_bench: MakeBench,
) -> None:
    for seed in range(5):
        bench = make_bench(fits=12, seed=seed, iterations=3)
        bench.prepare()
        bench.iterate({0: 4, 1: 20})
        bench.stopped(2)
        result = expected(bench, (4, 20))
        np.testing.assert_allclose(bench.arrays["y"], result, rtol=0, atol=1e-13)


def test_a_gpu_reports_the_times_of_kernels_and_copies(make_bench: MakeBench) -> None:
    bench = make_bench(iterations=2)
    bench.prepare()

    bench.iterate({0: 8, 1: 16})
    bench.stopped(2)

    phases = [record.seconds for record in bench.records(1)]
    assert len(phases) == 2
    assert all(phase.compute > 0 and phase.transfer > 0 for phase in phases)
