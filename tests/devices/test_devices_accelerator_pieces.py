"""Rows that don't fit a GPU: their pieces, what overlaps, and how much memory they take."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from diffusing_workload import Diffusion, DiffusionParams
from hypothesis import given
from hypothesis import strategies as st
from iterating_bench import IteratingBench

from hetsched.device import DeviceInfo
from hetsched.devices.accelerator.device import Accelerator
from hetsched.devices.accelerator.engines import Operation
from hetsched.devices.accelerator.piece_sizes import piece_overhead, piece_sizes
from hetsched.devices.accelerator.simulated import SimulatedRuntime
from hetsched.errors import DataError
from hetsched.iterations.serial import run
from hetsched.memory import MemoryDemand
from hetsched.transport.device_messages import CommandFailed, IterationsDone

ROWS, FITS = 64, 32
PARAMS = DiffusionParams(ROWS, columns=64, iterations=2)
X = np.random.default_rng(2).standard_normal((ROWS, 64))
GPU = DeviceInfo(name="gpu0", kind="cuda", identity="simulated GPU", link=True)
LIMIT = Diffusion().demand(PARAMS, "cuda").need([FITS]) + 4 * piece_overhead(Diffusion(), PARAMS)

MakeBench = Callable[..., IteratingBench]


@pytest.fixture
def make_bench(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[MakeBench]:
    """Makes a bench of one GPU with too little memory for all rows."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(Accelerator, "usable_memory", lambda device: LIMIT)
    with contextlib.ExitStack() as stack:

        def make(runtime: SimulatedRuntime) -> IteratingBench:
            bench = IteratingBench(PARAMS, X, [(GPU, lambda info: Accelerator(info, runtime))])
            bench.prepare()
            return stack.enter_context(contextlib.closing(bench))

        yield make


def compute(bench: IteratingBench) -> np.ndarray:
    bench.iterate({0: ROWS})
    bench.stopped(1)
    return bench.arrays["y"].copy()


def pieces() -> Sequence[int]:
    demand = Diffusion().demand(PARAMS, "cuda")
    limited = MemoryDemand(
        input_bytes=demand.input_bytes,
        work_bytes=demand.work_bytes,
        output_bytes=demand.output_bytes,
        resident_bytes=demand.resident_bytes,
        limit=LIMIT,
    )
    sizes = piece_sizes(ROWS, 1, limited, piece_overhead(Diffusion(), PARAMS))
    whole, rest = divmod(ROWS - sizes.held, sizes.room)
    return [sizes.held, *[sizes.room] * whole, *([rest] if rest else [])]


@pytest.mark.parametrize("seed", range(2))
def test_streamed_rows_have_the_bits_of_the_same_pieces_on_devices(
    make_bench: MakeBench, seed: int
) -> None:
    bench = make_bench(SimulatedRuntime(seed=seed))

    y = compute(bench)

    assert len(pieces()) > 4
    np.testing.assert_array_equal(y, run(Diffusion(), PARAMS, {"x": X}, pieces()).outputs["y"])


def test_device_memory_stays_within_the_limit(make_bench: MakeBench) -> None:
    runtime = SimulatedRuntime()

    compute(make_bench(runtime))

    assert LIMIT / 2 < runtime.peak_bytes <= LIMIT


@pytest.mark.parametrize("kernels_block", [False, True])
def test_copies_of_pieces_overlap_kernels(make_bench: MakeBench, kernels_block: bool) -> None:
    def costs(phase: str, units: int, nbytes: int) -> float:
        return 1.0 if phase == "compute" else 0.8 * nbytes / (3 * 64 * 8)  # a row with its halo

    runtime = SimulatedRuntime(costs=costs)
    runtime.kernels_block, runtime.history = kernels_block, []

    compute(make_bench(runtime))

    kernels = [op for op in runtime.history if op.phase == "compute"]
    for phase in ("h2d", "d2h"):
        copies = [op for op in runtime.history if op.phase == phase]
        assert sum(overlaps_any(op, copies) for op in kernels) > 0.7 * len(kernels)


def span(operation: Operation) -> tuple[float, float]:
    assert operation.started is not None and operation.ended is not None
    return operation.started, operation.ended


def overlaps_any(operation: Operation, others: Sequence[Operation]) -> bool:
    start, end = span(operation)
    return any(span(op)[0] < end and start < span(op)[1] for op in others)


@pytest.mark.parametrize("stream", [0, 1, 2], ids=["copy-in", "compute", "copy-out"])
def test_a_missing_wait_is_noticed(make_bench: MakeBench, stream: int) -> None:
    expected = run(Diffusion(), PARAMS, {"x": X}, pieces()).outputs["y"]
    outcomes = []
    for seed in range(3):
        bench = make_bench(SimulatedRuntime(seed=seed, ignores_waits=frozenset({stream})))
        bench.iterate({0: ROWS})
        has_failed = isinstance(end_of(bench), CommandFailed)
        outcomes.append(has_failed or not np.array_equal(bench.arrays["y"], expected))

    assert any(outcomes)


def end_of(bench: IteratingBench) -> Any:
    while isinstance(event := bench.events.get(timeout=60)[1], IterationsDone):
        pass
    return event


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
