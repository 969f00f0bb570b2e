"""The compiled step of a flow: the same bits past the caches, in rows of several blocks."""

from __future__ import annotations

import numpy as np
import pytest
from hetsched_workloads.lbm import Lbm, LbmParams

from hetsched.iterations.serial import run
from hetsched.workload import KernelContext, Rows, Values

pytest.importorskip("numba")

from hetsched_workloads import numba_stores
from hetsched_workloads.lbm import numba_cpu, numpy_cpu
from hetsched_workloads.lbm.walls import packed_links


def aligned(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Zeros at the beginning of a cache's line."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    area = np.zeros(size + numba_stores.LINE_BYTES, np.uint8)
    first = -area.ctypes.data % numba_stores.LINE_BYTES
    return area[first : first + size].view(dtype).reshape(shape)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("cols", [16, 40, 272, 520, 333])
@pytest.mark.parametrize("flow", ["cavity", "channel"])
def test_stores_past_the_caches_give_the_same_bits(
    flow: str, cols: int, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    p = LbmParams(3, cols, flow, tolerance=1e-9, dtype=dtype)
    links = packed_links(p, None, Rows(0, 3, 3), numba_cpu.COLUMNS)
    f = aligned((5, 9, cols), dtype)
    f[...] = np.random.default_rng(cols).random(f.shape) * 1e-2
    results = []
    for limit in (1 << 40, 0):
        monkeypatch.setattr(numba_stores, "_cache_bytes", lambda size=limit: size)
        new = aligned((5, 9, cols), dtype)
        excess, change = numba_cpu.CompiledFlow(p).advance(f, new[1:-1], links)
        results.append((excess, change, new.tobytes()))

    assert results[0] == results[1]
    assert np.frombuffer(results[0][2], dtype).reshape(new.shape)[1:-1].all()


@pytest.mark.parametrize("flow", ["cavity", "channel"])
def test_rows_of_several_blocks_agree_with_numpy(flow: str) -> None:
    mask = (np.random.default_rng(7).random((5, 600)) < 0.2).astype(np.uint8)
    p = LbmParams(5, 600, flow, reynolds=20, steps=30, has_mask=True)

    compiled, expected = (
        run(Lbm(), p, {"mask": mask}, (2, 3), variant=name) for name in ("numba", "numpy")
    )

    for name, values in expected.outputs.items():
        np.testing.assert_allclose(compiled.outputs[name], values, rtol=0, atol=1e-14)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("flow", "has_mask"), [("cavity", False), ("channel", True)])
def test_density_and_velocity_are_those_of_numpy(flow: str, has_mask: bool, dtype: str) -> None:
    p = LbmParams(6, 37, flow, has_mask=has_mask, dtype=dtype)
    random = np.random.default_rng(5)
    rows = Rows(2, 5, 6)
    inputs = {"f": (random.random((5, 9, 37)) * 1e-2).astype(dtype)}
    if has_mask:
        inputs["mask"] = (random.random((6, 37)) < 0.3).astype(np.uint8)
    results = []
    for module in (numba_cpu, numpy_cpu):
        outputs = {"density": np.empty((3, 37), dtype), "velocity": np.empty((3, 37, 2), dtype)}
        kernels = module.make(p, 6, KernelContext("cpu", xp=np))
        kernels["result"](rows, inputs, outputs, Values(), {})
        results.append(outputs)

    for name, values in results[1].items():
        np.testing.assert_allclose(results[0][name], values, rtol=0, atol=8 * np.finfo(dtype).eps)
    if has_mask:
        assert (results[0]["density"][inputs["mask"][2:5] != 0] == 1).all()


def test_numpy_computes_if_compiling_is_disabled(monkeypatch: pytest.MonkeyPatch) -> None:
    p = LbmParams(4, 5, steps=3)
    monkeypatch.setattr(numba_cpu.numba.config, "DISABLE_JIT", 1)

    result, expected = (run(Lbm(), p, {}, (4,), variant=name) for name in ("numba", "numpy"))

    assert np.array_equal(result.outputs["velocity"], expected.outputs["velocity"])


def test_the_largest_cache_decides() -> None:
    assert not numba_stores.is_beyond_caches(1 << 12)
    assert numba_stores.is_beyond_caches(1 << 40)


def test_rows_that_are_no_whole_lines_arent_aligned() -> None:
    assert numba_stores.is_aligned(aligned((2, 9, 16), "float32"))
    assert not numba_stores.is_aligned(aligned((2, 9, 17), "float32"))
    assert not numba_stores.is_aligned(aligned((2, 32), "float32")[:, 1:17])
