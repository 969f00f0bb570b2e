"""Functions on GPUs, by their twins: on the processor by PoCL, and with NumPy in CuPy's place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy
from hypothesis import given, settings
from hypothesis import strategies as st

import hetsched
from hetsched.functions.call import Call
from hetsched.functions.session import calls, session

RNG = np.random.default_rng(0)
POCL = """
[[device]]
kind = "cpu"
count = 2

[[device]]
kind = "opencl"
name = "ocl0"
on_cpu = true
memory = "64MiB"
"""


@pytest.fixture(scope="module")
def pocl(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    pytest.importorskip("pyopencl")
    folder: Path = tmp_path_factory.mktemp("twins")
    (folder / "config.toml").write_text(POCL)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HETSCHED_CONFIG", str(folder / "config.toml"))
        patch.setenv("HETSCHED_STATE_DIR", str(folder))
        patch.setattr(type(session), "overhead", 0.0)
        session.close()
        if "ocl0" in session.local().devices()[1]:
            pytest.skip("PoCL can't be used")
        yield
        session.close()


def units_by_twin(twin: Callable[..., Any]) -> tuple[Callable[..., Any], list[int]]:
    """Return a twin, and the list to which it adds how many units each of its blocks has."""
    seen: list[int] = []

    def counting(*blocks: Any, **keywords: Any) -> Any:
        seen.append(blocks[0].shape[0])
        return twin(*blocks, **keywords)

    return counting, seen


@given(
    units=st.integers(1, 400),
    axis=st.integers(0, 1),
    dtype=st.sampled_from(["int32", "float32", "float64", "complex64"]),
    results=st.integers(1, 2),
)
@settings(max_examples=max(4, settings.default.max_examples // 6))  # each compiles kernels
@pytest.mark.usefixtures("pocl")
def test_cores_and_an_opencl_device_compute_one_result(
    units: int, axis: int, dtype: str, results: int
) -> None:
    def scaled(x: Any, y: Any, *, by: int) -> Any:
        return x * by + y if results == 1 else (x + y, x * by)

    function = hetsched.divisible(axis=axis)(scaled)
    function.opencl(scaled)
    shape = (units, 5) if axis == 0 else (5, units)
    x, y = (RNG.standard_normal(shape) * 50).astype(dtype), np.ones(shape, dtype)
    np.testing.assert_allclose(function(x, y, by=3), scaled(x, y, by=3), rtol=1e-6)


@pytest.mark.usefixtures("pocl")
def test_an_opencl_device_gets_a_share_and_its_memory_limit_holds() -> None:
    tripled = hetsched.divisible(memory="1MiB")(lambda x: x * 3)
    twin, seen = units_by_twin(lambda x: x * 3)
    tripled.opencl(twin)
    x = np.arange(40_000.0).reshape(1000, 40)
    for _ in range(3):
        np.testing.assert_array_equal(tripled(x), 3 * x)
    assert seen
    assert max(seen) * 2 * x[0].nbytes <= 1 << 20


def wrong_type(block: Any) -> Any:
    raise TypeError("not for these arrays")


@pytest.mark.parametrize(
    "twin", [wrong_type, lambda block: block[:1], lambda block: (block, block), lambda block: None]
)
@pytest.mark.usefixtures("pocl")
def test_what_a_twin_can_not_compute_the_cores_do(twin: Callable[..., Any]) -> None:
    function = hetsched.divisible(lambda block: block + block)
    function.opencl(twin)
    x = np.arange(3000.0)
    np.testing.assert_array_equal(function(x), 2 * x)


@pytest.mark.usefixtures("pocl")
def test_the_profile_says_why_a_device_takes_no_part() -> None:
    def only_numpy(block: np.ndarray) -> np.ndarray:
        return np.tanh(block)

    hetsched.map(only_numpy, np.arange(1e6))
    hetsched.reduce(np.sum, np.add, np.arange(3000.0))

    lines = [line for line in hetsched.profile().splitlines() if "without ocl0" in line]
    assert any("only_numpy: without ocl0: the function has no twin" in line for line in lines)
    assert calls.rows()


# ---- a CUDA device, of which NumPy's arrays are the memory


@given(
    units=st.integers(1, 20),
    first=st.integers(0, 5),
    overlap=st.integers(0, 4),
    axis=st.integers(0, 1),
    dtype=st.sampled_from([None, "float32"]),
)
def test_a_chunk_by_a_twin_is_that_of_the_function(
    units: int, first: int, overlap: int, axis: int, dtype: str | None
) -> None:
    def smoothed(block: np.ndarray, factor: Any) -> tuple[np.ndarray, np.ndarray]:
        weights = np.ones(2 * overlap + 1)
        wide = scipy.ndimage.correlate1d(block, weights, axis=axis, mode="constant")
        return wide * factor, block > factor

    shape = (first + units + 3, 4) if axis == 0 else (4, first + units + 3)
    x = RNG.standard_normal(shape)
    expected = hetsched.map(smoothed, x, 2.0, axis=axis, overlap=overlap, dtype=dtype)
    call = Call(
        smoothed, {}, ((True, 0), (False, 0)), [np.moveaxis(x, axis, 0)], [np.array(2.0)], axis,
        overlap, dtype=None if dtype is None else np.dtype(dtype), twins={"cuda": smoothed},
    )  # fmt: skip
    outputs = [np.zeros((units, 4), y.dtype) for y in expected]
    chunk = call.split[0][first : first + units]
    call.compute_by_twin("cuda", [chunk], [np.array(0.0)], outputs, first, np)

    for output, whole in zip(outputs, expected, strict=True):
        part = np.moveaxis(whole, axis, 0)[first : first + units]
        np.testing.assert_allclose(output, part, rtol=1e-6)


def test_functions_of_any_library_are_told_from_those_of_numpy() -> None:
    """The probe sees whether a function asks for its library; NumPy's own need no twin."""
    from hetsched.functions.function import asked, twins_of

    assert set(twins_of(np.sqrt)) == {"cuda"}
    assert not twins_of(np.frompyfunc(abs, 1, 1))
    for function, is_portable in (
        (lambda block: hetsched.namespace(block).abs(block), True),
        (lambda block: block + 1, False),
    ):
        hetsched.map(function, np.ones(1))
        assert asked.is_true == is_portable
