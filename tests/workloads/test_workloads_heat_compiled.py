"""The compiled step of a diffusion: the same bits past the caches, in lines of several blocks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hetsched_workloads.heat import Heat, HeatParams

from hetsched.errors import DataError
from hetsched.iterations.serial import run
from hetsched.workload import KernelContext, Rows, Values

pytest.importorskip("numba")

from hetsched_workloads import numba_stores
from hetsched_workloads.heat import numba_cpu
from hetsched_workloads.heat.array_step import array_step


def aligned(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Zeros at the beginning of a cache's line."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    area = np.zeros(size + numba_stores.LINE_BYTES, np.uint8)
    first = -area.ctypes.data % numba_stores.LINE_BYTES
    return area[first : first + size].view(dtype).reshape(shape)


@pytest.fixture
def streaming(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have no caches."""
    monkeypatch.setattr(numba_stores, "_cache_bytes", lambda: 0)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("border", ["periodic", "dirichlet", "neumann", "mixed"])
@pytest.mark.parametrize(
    "grid", ["3x16", "3x32", "3x48", "3x1040", "3x33", "3x1x16", "3x2x48", "3x4x32"]
)
def test_stores_past_the_caches_give_the_same_bits(
    grid: str, border: str, dtype: str, streaming: None
) -> None:
    if border == "mixed":
        border = ",".join(("neumann", "periodic", "dirichlet")[: grid.count("x") + 1])
    p = HeatParams(grid, border=border, border_value=0.5, dtype=dtype)
    shape = (5, *p.shape[1:])
    u = np.random.default_rng(3).random(shape).astype(dtype)
    new, expected = aligned(shape, dtype), np.empty((3, *p.shape[1:]), dtype)
    kernels = numba_cpu.make(p, 3, KernelContext("cpu", xp=np))
    values = Values(before={"steps": np.zeros(())})

    kernels["step"](Rows(0, 3, 3), {"u": u}, {"u": new[1:-1]}, values, {"steps": np.zeros(())})

    array_step(p, np, 1 << 20)(u, expected)
    assert np.array_equal(new[1:-1], expected)
    assert not new[0].any()
    assert not new[-1].any()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("grid", ["3x16", "2x528", "3x3x32", "3x33"])
def test_initial_values_are_copied_past_the_caches(grid: str, dtype: str, streaming: None) -> None:
    p = HeatParams(grid, dtype=dtype)
    initial = np.random.default_rng(3).normal(size=p.shape).astype(dtype)
    initial.flat[-1] = -np.finfo(dtype).max
    u = aligned((p.shape[0] + 2, *p.shape[1:]), dtype)
    load = numba_cpu.make(p, p.shape[0], KernelContext("cpu", xp=np))["load"]
    rows = Rows(0, p.shape[0], p.shape[0])

    load(rows, {"initial": initial}, {"u": u[1:-1]}, Values(), {"steps": np.zeros(())})

    assert np.array_equal(u[1:-1], initial)
    assert not u[0].any()
    assert not u[-1].any()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [(4, 0), (6, 15), (9, 607)])
def test_a_value_that_is_not_finite_is_named_past_the_caches(
    place: tuple[int, int], value: float, streaming: None
) -> None:
    initial, u = np.zeros((10, 608)), aligned((10, 608), "float64")
    initial[place] = value
    load = numba_cpu.make(HeatParams("20x608", dtype="float64"), 20, KernelContext("cpu", xp=np))

    with pytest.raises(DataError, match=f"row {place[0] + 3} has"):
        load["load"](Rows(3, 13, 20), {"initial": initial}, {"u": u}, Values(), {})


@pytest.mark.parametrize(
    ("nbytes", "grid", "options", "is_streamed"),
    [
        (0, "3x16", {}, True),
        (0, "3x2x16", {}, True),
        (0, "3x2x16", {"border": "neumann,neumann,dirichlet"}, True),
        (0, "3x2x16", {"border": "dirichlet"}, False),
        (0, "3x16", {"tolerance": 1e-9}, False),
        (0, "3x17", {}, False),
        (1 << 40, "3x16", {}, False),
    ],
)
def test_steps_of_large_grids_are_stored_past_the_caches(
    nbytes: int,
    grid: str,
    options: dict[str, Any],
    is_streamed: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    streamed: list[int] = []
    for name in ("stream_2d", "stream_3d"):
        monkeypatch.setattr(numba_cpu, name, lambda u, new, *rest: streamed.append(new.size))
    monkeypatch.setattr(numba_stores, "_cache_bytes", lambda: nbytes)
    p = HeatParams(grid, dtype="float64", **options)
    step = numba_cpu.make(p, 3, KernelContext("cpu", xp=np))["step"]
    streamed.clear()
    u, new = (aligned((rows, *p.shape[1:]), "float64") for rows in (5, 3))
    partials = {"steps": np.zeros(()), "change": np.zeros(())}

    step(Rows(0, 3, 3), {"u": u}, {"u": new}, Values(before={"steps": np.zeros(())}), partials)

    assert bool(streamed) == is_streamed


@pytest.mark.parametrize("variant", ["numba", "numpy"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [(4, 0), (6, 15), (9, 599)])
def test_a_value_that_is_not_finite_is_named(
    place: tuple[int, int], value: float, variant: str
) -> None:
    u = np.zeros((10, 600))
    u[place] = value

    with pytest.raises(DataError, match=f"row {place[0]} has"):
        run(Heat(), HeatParams("10x600", dtype="float64"), {"initial": u}, (3, 7), variant=variant)


def test_numpy_computes_if_compiling_is_disabled(monkeypatch: pytest.MonkeyPatch) -> None:
    p = HeatParams("4x5", steps=3)
    u = np.random.default_rng(3).random((4, 5)).astype(p.dtype)
    monkeypatch.setattr(numba_cpu.numba.config, "DISABLE_JIT", 1)

    result, expected = (
        run(Heat(), p, {"initial": u}, (4,), variant=name) for name in ("numba", "numpy")
    )

    assert np.array_equal(result.outputs["final"], expected.outputs["final"])
