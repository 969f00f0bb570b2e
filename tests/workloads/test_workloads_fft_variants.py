from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from fft_cases import VARIANTS, kernel, normal, params, residual

NAMES = [variant.name for variant in VARIANTS]
needs_mkl = pytest.mark.skipif("mkl" not in NAMES, reason="MKL isn't installed")


@pytest.fixture(scope="module")
def wisdom(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("wisdom")


@pytest.mark.parametrize("direction", ["forward", "roundtrip"])
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("name", NAMES)
def test_arrays_may_lie_at_any_multiple_of_their_element(
    name: str, dtype: str, direction: str, wisdom: Path
) -> None:
    p = params("3x64x64", dtype, direction)
    x = normal(p)
    for source, y in ((unaligned(x), np.empty_like(x)), (x, unaligned(x))):
        kernel(name, p, wisdom)({"x": source}, {"y": y})
        assert residual(p, x, y).max() < 0.5


@pytest.mark.parametrize("name", NAMES)
def test_kernels_of_several_threads_do_not_disturb_each_other(name: str, wisdom: Path) -> None:
    p = params("8x31x31", direction="roundtrip")
    made = [(kernel(name, p, wisdom), unaligned(normal(p, seed))) for seed in range(4)]
    results = [unaligned(np.empty_like(x)) for _, x in made]

    together = threading.Barrier(4)

    def work(i: int) -> None:
        for _ in range(60):
            together.wait(60)
            made[i][0]({"x": made[i][1]}, {"y": results[i]})

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(residual(p, x, y).max() < 0.5 for (_, x), y in zip(made, results, strict=True))


def unaligned(planes: np.ndarray) -> np.ndarray:
    """Return a copy that begins one element after an aligned address."""
    memory = np.empty(planes.size + 1, planes.dtype)
    memory[1:] = planes.reshape(-1)
    return memory[1:].reshape(planes.shape)


@pytest.mark.parametrize("name", NAMES)
def test_a_kernel_keeps_no_hold_on_the_arrays_and_says_how_many_planes_it_computes_at_once(
    name: str, wisdom: Path
) -> None:
    p = params("5x31x31", direction="roundtrip")
    run = kernel(name, p, wisdom)
    x = normal(p)
    y = np.empty_like(x)
    run({"x": x}, {"y": y})
    assert sys.getrefcount(x) == sys.getrefcount(y) == 2
    assert 1 <= run.units_per_call <= 5  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", [name for name in NAMES if name in ("pyfftw", "mkl")])
def test_arrays_that_are_not_contiguous_are_refused(name: str, wisdom: Path) -> None:
    p = params("2x16x16")
    x = np.asfortranarray(normal(p))
    with pytest.raises(ValueError, match="x: not C-contiguous"):
        kernel(name, p, wisdom)({"x": x}, {"y": np.empty((2, 16, 16), np.complex64)})


@needs_mkl
@pytest.mark.parametrize("order", [("pyfftw", "mkl"), ("mkl", "pyfftw")])
def test_pyfftw_is_fftw_whether_mkl_is_loaded_before_or_after(
    order: tuple[str, str], tmp_path: Path
) -> None:
    code = f"""
import sys
from pathlib import Path
sys.path.insert(0, {str(Path(__file__).parent)!r})
from fft_cases import kernel, params, normal, residual
import numpy as np
p = params("2x40x40")
x = normal(p); y = np.empty_like(x)
for name in {order!r}:
    kernel(name, p, Path({str(tmp_path)!r}))({{"x": x}}, {{"y": y}})
    assert residual(p, x, y).max() < 0.5
import pyfftw
print(pyfftw.export_wisdom()[1].count(b"\\n") > 1)
print("libmkl_" in open("/proc/self/maps").read())
"""
    command = [sys.executable, "-W", "error", "-c", code]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.stdout.split() == ["True", "True"], ended.stderr
