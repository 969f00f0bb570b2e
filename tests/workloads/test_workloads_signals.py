from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import scipy

import hetsched

CONFIG = """
[queue]
small_jobs = false

[[device]]
kind = "cpu"
hardware_threads = true
team = false

[[device]]
kind = "emulated"
memory = "8MiB"
compute = { gap = "30us", rate = "20Gflop/s" }
h2d = { gap = "10us", rate = "5GB/s" }
d2h = { gap = "10us", rate = "5GB/s" }
"""


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[hetsched.Local]:
    """Cores, and a GPU whose memory must suffice for what kernels allocate."""
    path = tmp_path_factory.mktemp("local") / "config.toml"
    path.write_text(CONFIG)
    with hetsched.Local(str(path), learn=False) as local:
        yield local


@pytest.fixture(scope="module")
def crops() -> np.ndarray:
    """Crops of a photograph, (49, 128, 144) uint8."""
    photograph = pytest.importorskip("skimage.data").camera()
    views = np.lib.stride_tricks.sliding_window_view(photograph, (128, 144))[::64, ::61]
    return np.ascontiguousarray(views.reshape(-1, 128, 144))


def compute(local: hetsched.Local, name: str, inputs: Any, **options: Any) -> np.ndarray:
    job = local.submit(name, inputs, verify=True, **options)
    result = job.result(timeout=120)
    assert isinstance(result, np.ndarray)
    return result


@pytest.mark.parametrize("mode", ["full", "same", "valid"])
def test_convolutions_are_scipys(local: hetsched.Local, crops: np.ndarray, mode: str) -> None:
    filters = np.random.default_rng(1).standard_normal((3, 8, 5))

    y = compute(local, "convolve", {"x": crops, "filters": filters}, mode=mode)

    for k, each in enumerate(filters):
        expected = scipy.signal.fftconvolve(crops.astype(float), each[None], mode, axes=(1, 2))
        assert np.allclose(y[:, k], expected, atol=1e-9 * 255)


@pytest.mark.parametrize("upsample", [1, 20])
def test_shifts_are_those_of_scikit_image(
    local: hetsched.Local, crops: np.ndarray, upsample: int
) -> None:
    register = importlib.import_module("skimage.registration").phase_cross_correlation
    reference = crops[10].astype(np.float64)
    true = np.random.default_rng(0).uniform(-20, 20, (12, 2))
    spectrum = scipy.fft.fft2(reference)
    x = np.array([scipy.fft.ifft2(scipy.ndimage.fourier_shift(spectrum, at)).real for at in true])

    y = compute(local, "registration", {"x": x, "reference": reference}, upsample=upsample)

    expected = [register(reference, each, upsample_factor=upsample)[0] for each in x]
    assert np.allclose(y, expected, atol=1e-9)
    assert np.allclose(y, -true, atol=1.01 / upsample)


@pytest.mark.parametrize("dtype", ["uint8", "float32", "float64"])
@pytest.mark.parametrize("load", [1, 49])
def test_statistics_are_numpys(
    local: hetsched.Local, crops: np.ndarray, dtype: str, load: int
) -> None:
    noise = np.random.default_rng(2).standard_normal(crops[:load].shape)
    x = crops[:load] if dtype == "uint8" else (noise * crops[:load] - 3e4).astype(dtype)
    fractions = [0, 0.001, 0.25, 0.5, 0.77, 1]

    job = local.submit("statistics", x, quantiles=",".join(map(str, fractions)), verify=True)
    found = job.result(timeout=120)

    wide = x.astype(np.float64)
    expected = [wide.mean(), wide.var(), wide.min(), wide.max()]
    counts, edges = np.histogram(wide, 256)
    assert np.allclose(found.summary, expected, rtol=1e-12)
    assert np.array_equal(found.histogram, counts)
    assert np.allclose(found.edges, edges, rtol=1e-14)
    assert np.allclose(found.quantiles, np.quantile(wide, fractions), rtol=1e-15)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("mean", "size"), [(0.0, 0.0), (0.1, 0.0), (1e4, 1.0), (0.0, 1e-30)])
def test_flat_bright_and_faint_images_are_verified(
    local: hetsched.Local, mean: float, size: float, dtype: str
) -> None:
    noise = np.random.default_rng(1).standard_normal((64, 60))
    x = np.stack([np.roll(mean + size * noise, n, 0) for n in range(3)]).astype(dtype)
    laplacian = np.array([[[0, 1, 0], [1, -4, 1], [0, 1, 0]]], dtype)
    compute(local, "power_spectrum", x)
    compute(local, "convolve", {"x": x, "filters": laplacian}, mode="valid")
    compute(local, "welch", x.reshape(3, -1), nperseg=100)
    compute(local, "matmul", {"A": x, "B": np.ascontiguousarray(x.swapaxes(1, 2))})
    shifts = compute(local, "registration", {"x": x, "reference": x[0]})
    if size:
        assert np.array_equal(shifts, [[0, 0], [-1, 0], [-2, 0]])


def test_values_outside_the_histogram_are_not_counted(local: hetsched.Local) -> None:
    x = np.arange(1000.0)

    found = local.submit("statistics", x, low=100, high=200, bins=10).result(timeout=120)

    assert found.histogram.tolist() == [10] * 9 + [11]


def test_there_are_no_statistics_of_what_is_no_number(local: hetsched.Local) -> None:
    job = local.submit("statistics", np.array([1, np.nan, 3]))

    with pytest.raises(hetsched.DataError, match="x: values aren't finite"):
        job.result(timeout=120)
