from __future__ import annotations

import contextlib
import importlib.util
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from diffusing_workload import Diffusion, DiffusionParams
from hetsched_workloads.heat import Heat
from hetsched_workloads.jacobi import Jacobi
from hetsched_workloads.pcg import Pcg
from hypothesis import given
from hypothesis import strategies as st
from iterating_bench import CORE, IteratingBench

from hetsched.device import DeviceInfo
from hetsched.device_process import epochs
from hetsched.devices.accelerator.device import Accelerator
from hetsched.devices.accelerator.rows import piece_overhead, piece_sizes, spare_rows
from hetsched.devices.base import Device
from hetsched.devices.cpu.device import CoreClock, CpuDevice, CpuKernels
from hetsched.errors import DataError
from hetsched.iterations.serial import run
from hetsched.memory import MemoryDemand
from hetsched.testing.simulated import StrictRuntime
from hetsched.transport.device_messages import CommandFailed
from hetsched.workload import Rows

GPU = DeviceInfo(name="gpu0", kind="cuda", identity="simulated GPU", link=True)
GPU_SLOT = 1
ROWS, COLUMNS = 64, 64
X = np.random.default_rng(5).standard_normal((ROWS, COLUMNS))


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def generated(workload: Any, params: Any) -> dict[str, np.ndarray]:
    inputs = {}
    for spec in workload.arrays(params):
        if spec.is_input:
            inputs[spec.name] = np.empty(spec.shape(workload.load(params)), spec.dtype)
            workload.generate(params, 3, spec.name, 0, inputs[spec.name])
    return inputs


def limit_of(workload: Any, params: Any, fits: int) -> int:
    """Bytes of a device with room for `fits` rows, of which some pieces take a part."""
    return int(workload.demand(params, "cuda").need([fits]) + 4 * piece_overhead(workload, params))


@contextlib.contextmanager
def computing(
    params: Any = None,
    runtime: StrictRuntime | None = None,
    *,
    devices: str = "cpu,gpu",
    fits: int = ROWS,
    workload: Any = None,
    inputs: Any = X,
    variant: str = "numpy",
    saves: bool = False,
    open_gpu: Callable[[Any], Device] | None = None,
    **settings: Any,
) -> Iterator[IteratingBench]:
    """A prepared bench; the memory of each GPU holds `fits` rows."""
    workload, params = workload or Diffusion(), params or DiffusionParams(ROWS, COLUMNS)

    def open_simulated(info: Any) -> Accelerator:
        return Accelerator(info, runtime or StrictRuntime(seed=3), **settings)

    kinds: dict[str, Any] = {
        "cpu": (CORE, CpuDevice),
        "gpu": (GPU, open_gpu or open_simulated),
    }
    bench = IteratingBench(
        params,
        inputs,
        [kinds[kind] for kind in devices.split(",")],
        workload=f"{type(workload).__module__}:{type(workload).__name__}",
        saves=saves,
    )
    with contextlib.closing(bench):
        bench.prepare(variant=variant, memory=limit_of(workload, params, fits))
        yield bench


def expected(bench: IteratingBench, split: Any, x: np.ndarray = X) -> np.ndarray:
    return run(Diffusion(), bench.params, {"x": x}, split).outputs["y"]


def advance(bench: IteratingBench, bounds: Sequence[tuple[int, ...]], each: int) -> None:
    """Compute `each` iterations with each split, then the rest with the last."""
    last = len(bounds) - 1
    for number, split in enumerate(bounds):
        if number:
            bench.control.propose(split)
        bench.control.allow(each * (number + 1))
        if number < last:
            bench.wait_for_report(GPU_SLOT, each * (number + 1))
    bench.control.allow(1000)
    bench.stopped(bench.slots)


# ---- rows that are held, or streamed


@pytest.mark.parametrize("border", ["periodic", "reflect", "fixed"])
@pytest.mark.parametrize("shares", [{0: 24, 1: 40}, {1: 63, 0: 1}, {1: 64, 0: 0}])
@pytest.mark.parametrize("fits", [64, 25, 1])
def test_a_gpu_and_a_core_compute_what_one_process_computes(
    border: str, shares: dict[int, int], fits: int
) -> None:
    params = DiffusionParams(ROWS, COLUMNS, 5, border=border)
    with computing(params, fits=fits) as bench:
        bench.iterate(shares)
        bench.stopped(2)

        result = expected(bench, tuple(shares.values()))
        np.testing.assert_allclose(bench.arrays["y"], result, rtol=0, atol=1e-13)
        phases = [record.seconds for record in bench.records(GPU_SLOT)]
        assert all(phase.compute > 0 and phase.transfer > 0 for phase in phases)


@pytest.mark.parametrize("pinned", range(72 << 10, 720 << 10, 108 << 10))
def test_rows_may_be_partly_beyond_the_quota_of_pinned_memory(pinned: int) -> None:
    x = np.random.default_rng(5).standard_normal((24, 640))
    params = DiffusionParams(columns=640)
    with computing(params, inputs=x, fits=24, pinned=pinned, slice_bytes=4096) as bench:
        bench.iterate({0: 4, 1: 20})
        bench.stopped(2)

        result = expected(bench, (4, 20), x)
        np.testing.assert_allclose(bench.arrays["y"], result, rtol=0, atol=1e-13)


@pytest.mark.parametrize("kernels_block", [False, True])
def test_copies_of_streamed_pieces_overlap_kernels_within_the_memory(kernels_block: bool) -> None:
    def costs(phase: str, units: int, nbytes: int) -> float:
        return 1.0 if phase == "compute" else 0.8 * nbytes / (3 * COLUMNS * 8)  # with its halo

    runtime, limit = (
        StrictRuntime(costs=costs),
        limit_of(Diffusion(), DiffusionParams(64, 64), 32),
    )
    runtime.kernels_block, runtime.history = kernels_block, []

    with computing(runtime=runtime, devices="gpu", fits=32) as bench:
        bench.iterate({0: ROWS})
        bench.stopped(1)

    spans: dict[str, list[tuple[float, float]]] = {"h2d": [], "compute": [], "d2h": []}
    for operation in runtime.history:
        assert operation.started is not None and operation.ended is not None
        spans[operation.phase].append((operation.started, operation.ended))
    for phase in ("h2d", "d2h"):
        overlapping = [
            any(start < b and a < end for a, b in spans[phase]) for start, end in spans["compute"]
        ]
        assert sum(overlapping) > 0.7 * len(overlapping)
    assert limit / 2 < runtime.peak_bytes <= limit


@given(
    count=st.integers(1, 500),
    granule=st.integers(1, 9),
    limit=st.integers(0, 5000),
    overhead=st.integers(0, 600),
    row=st.integers(1, 30),
)
def test_pieces_fit_the_memory_and_are_whole_granules_if_they_can(
    count: int, granule: int, limit: int, overhead: int, row: int
) -> None:
    demand = MemoryDemand(
        input_bytes=row, work_bytes=1, output_bytes=row, resident_bytes=40, limit=limit
    )
    try:
        sizes = piece_sizes(count, granule, demand, overhead)
    except DataError:
        assert demand.need([1]) + overhead > limit
        return

    sizes_of_all = [sizes.room] * sizes.slots + [sizes.held] * (sizes.held > 0)
    assert demand.need(sizes_of_all) + len(sizes_of_all) * overhead <= limit
    assert sizes.held == count or (sizes.room > 0 and sizes.slots > 0)
    assert sizes.held in (count, sizes.held // granule * granule)


# ---- the time of kernels


class CompilingClock(CoreClock):
    """Kernels take a second in the first iteration, after three rounds of the start, with 40 rows,
    and when they are first called for any other number."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds, self.calls = 0.0, Counter[int]()

    def cost(self, phase: str, units: int, nbytes: int = 0) -> float:
        if phase != "compute":
            return 1e-6 * units
        self.calls[units] += 1
        return 1.0 if self.calls[units] == (4 if units == 40 else 1) else 1e-6 * units

    def now(self) -> float:
        return self.seconds

    def end_of(self, units: int, start: float) -> tuple[float, int]:
        self.seconds = start + self.cost("compute", units)
        return self.seconds, 0


@pytest.mark.parametrize("fits", [64, 25, 0], ids=["held", "streamed", "in-host-memory"])
def test_the_time_in_which_kernels_compile_is_not_that_of_an_iteration(fits: int) -> None:
    params, clock = DiffusionParams(ROWS, COLUMNS, 8), CompilingClock()

    def open_on_host(info: Any) -> CpuDevice:
        return CpuDevice(info, clock, CpuKernels("opencl"))

    runtime = StrictRuntime(costs=clock.cost)
    opener = None if fits else open_on_host
    with computing(params, runtime, fits=fits, open_gpu=opener, saves=True) as bench:
        bench.iterate({0: 24, 1: 40}, paced=True)
        advance(bench, [(0, 24, ROWS), (0, 25, ROWS)], 4)
        records = bench.records(GPU_SLOT)
        result = bench.arrays["y"].copy()

    split = expected(bench, lambda k: (24, 40) if k <= 4 else (25, 39))
    np.testing.assert_allclose(result, split, rtol=0, atol=1e-13)
    assert len(records) == 8
    assert all(record.seconds.compute < 1e-3 for record in records)


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


# ---- solvers: the bits are the same wherever rows are


CASES: list[Any] = [
    (Jacobi(), "numpy", {"n": 96}, "x"),
    (Pcg(), "scipy", {"grid": "5x6x7", "block": 20}, "x"),
    pytest.param(
        (Pcg(), "scipy", {"grid": "5x6x7", "preconditioner": "cholesky", "block": 20}, "x"),
        marks=pytest.mark.skipif(
            importlib.util.find_spec("numba") is None, reason="incomplete factors need numba"
        ),
    ),
    (Heat(), "numpy", {"grid": "40x9", "steps": 6}, "final"),
]


@pytest.mark.parametrize("case", CASES, ids=["jacobi", "pcg", "pcg-cholesky", "heat"])
@pytest.mark.parametrize("is_streamed", [False, True], ids=["held", "streamed"])
def test_a_solver_has_the_bits_of_one_process_wherever_rows_are(
    case: Any, is_streamed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    workload, variant, explicit, output = case
    params = workload.infer(dict(explicit), {})
    load, granule = workload.load(params), workload.granule(params)
    inputs = generated(workload, params)
    monkeypatch.setattr(f"{piece_overhead.__module__}.ALLOCATION_BYTES", 0)  # rows are small here
    fits = 4 * granule if is_streamed else load
    limited = replace(workload.demand(params, "cuda"), limit=limit_of(workload, params, fits))
    sizes = piece_sizes(load // 2, granule, limited, piece_overhead(workload, params))
    assert (sizes.slots > 0) == is_streamed
    ends = [granule * (load // granule * part // 8) for part in (4, 2, 5)]
    settings: dict[str, Any] = {"workload": workload, "inputs": inputs, "variant": variant}

    with computing(params, fits=fits, saves=True, **settings) as bench:
        bench.iterate({0: ends[0], 1: load - ends[0]}, paced=True)
        advance(bench, [(0, end, load) for end in ends], 2)
        result = bench.arrays[output].copy()

    alone = run(workload, params, inputs, (ends[0], load - ends[0]), variant=variant)
    np.testing.assert_array_equal(result, alone.outputs[output])


@pytest.mark.parametrize("ends", [(1400, 1370, 1420), (1400, 500, 1650)], ids=["near", "far"])
def test_a_gpu_holds_only_the_matrix_rows_of_its_share(ends: tuple[int, ...]) -> None:
    params = Pcg().infer({"grid": "12x12x12"}, {})
    made = generated(Pcg(), params)
    sparse = scipy.sparse.csr_array((made["A.data"], made["A.indices"], made["A.indptr"]))
    corner = np.zeros((64, 64)) + 0.01  # the last rows have many more entries
    dense = scipy.sparse.block_diag([scipy.sparse.csr_array((params.n - 64,) * 2), corner])
    a = scipy.sparse.csr_array(sparse + dense)
    inputs = {"A.data": a.data, "A.indices": a.indices, "A.indptr": a.indptr, "b": made["b"]}
    params = Pcg().infer({}, {name: (x.shape, x.dtype.name) for name, x in inputs.items()})
    runtime, settings = StrictRuntime(seed=3), {"workload": Pcg(), "variant": "scipy"}

    with computing(params, runtime, fits=600, inputs=inputs, **settings) as bench:
        bench.iterate({0: ends[0], 1: params.n - ends[0]}, paced=True)
        advance(bench, [(0, end, params.n) for end in ends], 3)
        result = bench.arrays["x"].copy()

    assert runtime.peak_bytes <= limit_of(Pcg(), params, 600) < a.data.nbytes + a.indices.nbytes
    alone = run(Pcg(), params, inputs, (params.n,), variant="scipy")
    np.testing.assert_allclose(result, alone.outputs["x"], rtol=1e-9)


def test_wrong_pointers_reach_the_kernels_but_nothing_is_copied_by_them() -> None:
    params = Pcg().infer({"grid": "5x6x7"}, {})
    inputs = generated(Pcg(), params)
    inputs["A.indptr"][52] = 10**9

    with computing(
        params, devices="gpu", fits=210, workload=Pcg(), variant="scipy", inputs=inputs
    ) as bench:
        bench.iterate({0: 210})
        failed = bench.answers(CommandFailed, 1)

    assert "A.indptr falls after row 52" in str(failed)


# ---- rows that move


class CountingRuntime(StrictRuntime):
    """Counts the bytes of all copies."""

    copied = 0

    def is_pinned(self, host: np.ndarray) -> bool:
        self.copied += host.nbytes
        return super().is_pinned(host)


def shares(bounds: tuple[int, int]) -> list[int]:
    return [high - low for low, high in pairwise((0, *bounds, ROWS))]


NEAR = [(8, 40), (12, 38), (10, 40), (5, 43), (20, 30), (13, 38)]
FAR = [(8, 40), (40, 60), (1, 63), (30, 31), (9, 40)]


@pytest.mark.parametrize("repeated", [0.0, 0.3], ids=["stored", "deferred"])
@pytest.mark.parametrize("moves", [NEAR, FAR], ids=["near", "far"])
@pytest.mark.parametrize("border", ["periodic", "fixed"])
def test_results_are_the_same_wherever_rows_move(
    repeated: float,
    moves: Sequence[tuple[int, int]],
    border: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(epochs, "MAX_REPEATED", repeated)
    params = DiffusionParams(ROWS, COLUMNS, 3 * len(moves), border=border)
    with computing(params, devices="cpu,gpu,cpu", saves=True) as bench:
        bench.iterate(dict(enumerate(shares(moves[0]))), paced=True)
        advance(bench, [(0, *move, ROWS) for move in moves], 3)

        split = expected(bench, lambda k: shares(moves[max(0, k - 1) // 3]))
        np.testing.assert_array_equal(bench.arrays["y"], split)


def test_only_rows_that_move_are_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(epochs, "MAX_REPEATED", 1e9)  # saved once, after the start
    monkeypatch.setattr(epochs, "MAX_TIME", 1e-9)
    runtime, copied = CountingRuntime(seed=2, needs_warm_up=False), {}
    params = DiffusionParams(ROWS, COLUMNS, 8)
    with computing(params, runtime, devices="cpu,gpu,cpu", saves=True) as bench:
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

    row_bytes = 8 * COLUMNS
    leaving, coming = 4 * row_bytes, 3 * (row_bytes + 2 * row_bytes)  # with halos; x, both buffers
    halos_of_the_other_buffer = 2 * row_bytes
    extra = copied[5] + copied[6] - copied[3] - copied[4]
    assert 0 < extra <= leaving + coming + halos_of_the_other_buffer
