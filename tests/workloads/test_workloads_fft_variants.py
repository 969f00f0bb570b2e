"""Every installed CPU variant against the reference."""

from __future__ import annotations

import json
import mmap
import subprocess
import sys
import threading
from pathlib import Path

import fft_cases as cases
import numpy as np
import pytest
from fft_cases import FFT, VARIANTS, exact, kernel, normal, params, residual, variant
from hetsched_workloads.fft import fftw_planning

from hetsched.workload import KernelContext

NAMES = [variant.name for variant in VARIANTS]
BATCHES = (
    "3x64x64", "1x500x500", "3x127x127", "5x127x31", "4x125x125", "5x1x7", "5x7x1", "3x1x1",
    "37x16x16",
)  # fmt: skip
DIRECTIONS = ("forward", "inverse", "roundtrip")


@pytest.fixture(scope="module")
def wisdom(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("wisdom")


def difference(p: object, x: np.ndarray, y: np.ndarray) -> float:
    """Largest error over the rms of the reference, over all units."""
    references = [FFT.reference(p, {"x": x}, i)["y"] for i in range(len(x))]
    return max(
        float(np.abs(got - ref).max() / np.sqrt(np.mean(np.abs(ref) ** 2)))
        for got, ref in zip(y, references, strict=True)
    )


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("name", NAMES)
def test_a_variant_agrees_with_the_reference_and_leaves_its_input_alone(
    name: str, dtype: str, direction: str, wisdom: Path
) -> None:
    for batch in BATCHES:
        p = params(batch, dtype, direction)
        x = normal(p)
        before, y = x.copy(), np.full_like(x, np.nan)
        kernel(name, p, wisdom)({"x": x}, {"y": y})
        assert np.array_equal(x, before)
        assert difference(p, x, y) < FFT.tolerance(p), batch
        assert residual(p, x, y).max() < 0.5, batch


@pytest.mark.parametrize("name", NAMES)
def test_planes_of_a_large_prime_size_are_right_at_every_alignment(
    name: str, wisdom: Path
) -> None:
    p = params("3x509x509")
    x = normal(p)
    y = np.empty_like(x)
    kernel(name, p, wisdom)({"x": x}, {"y": y})
    assert residual(p, x, y).max() < 0.5


@pytest.mark.parametrize("count", [1, 2, 7, 21])
@pytest.mark.parametrize("name", NAMES)
def test_a_kernel_takes_any_number_of_planes_up_to_its_chunk(
    name: str, count: int, wisdom: Path
) -> None:
    p = params("21x16x16")
    x = normal(p)[:count]
    y = np.empty_like(x)
    kernel(name, p, wisdom)({"x": x}, {"y": y})
    assert residual(p, x, y).max() < 0.5


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize(("dtype", "offset"), [("complex64", 8), ("complex128", 16)])
@pytest.mark.parametrize("name", NAMES)
def test_arrays_may_lie_at_any_multiple_of_their_element(
    name: str, dtype: str, offset: int, direction: str, wisdom: Path
) -> None:
    p = params("3x64x64", dtype, direction)
    size = FFT.load(p) * p.plane_bytes
    raw, out = np.empty(size + 64, np.uint8), np.empty(size + 64, np.uint8)
    x = raw[offset : offset + size].view(dtype).reshape(3, 64, 64)
    y = out[2 * offset : 2 * offset + size].view(dtype).reshape(3, 64, 64)
    x[...] = normal(p)
    kernel(name, p, wisdom)({"x": x}, {"y": y})
    assert residual(p, x, y).max() < 0.5


@pytest.mark.parametrize("batch", ["3x64x64", "3x31x31"])
@pytest.mark.parametrize("name", NAMES)
def test_a_kernel_computes_the_second_job_as_well_as_the_first(
    name: str, batch: str, wisdom: Path
) -> None:
    p = params(batch)
    run = kernel(name, p, wisdom)
    for seed in (1, 2):
        x = normal(p, seed)
        y = np.empty_like(x)
        run({"x": x}, {"y": y})
        assert residual(p, x, y).max() < 0.5


@pytest.mark.parametrize("name", NAMES)
def test_kernels_of_several_threads_do_not_disturb_each_other(name: str, wisdom: Path) -> None:
    p = params("8x31x31", direction="roundtrip")
    made = [(kernel(name, p, wisdom), normal(p, seed)) for seed in range(4)]
    results = [np.empty_like(x) for _, x in made]

    def work(i: int) -> None:
        for _ in range(20):
            made[i][0]({"x": made[i][1]}, {"y": results[i]})

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(residual(p, x, y).max() < 0.5 for (_, x), y in zip(made, results, strict=True))


@pytest.mark.parametrize("name", NAMES)
def test_a_kernel_keeps_no_hold_on_the_arrays(name: str, wisdom: Path) -> None:
    p = params("5x31x31", direction="roundtrip")
    run = kernel(name, p, wisdom)
    x = normal(p)
    y = np.empty_like(x)
    run({"x": x}, {"y": y})
    assert sys.getrefcount(x) == sys.getrefcount(y) == 2


@pytest.mark.parametrize("name", [name for name in NAMES if name in ("pyfftw", "mkl")])
def test_arrays_that_are_not_contiguous_are_refused(name: str, wisdom: Path) -> None:
    p = params("2x16x16")
    x = np.asfortranarray(normal(p))
    with pytest.raises(ValueError, match="x: not C-contiguous"):
        kernel(name, p, wisdom)({"x": x}, {"y": np.empty((2, 16, 16), np.complex64)})


def in_a_new_process(code: str) -> str:
    here = str(Path(cases.__file__).parent)
    whole = f"import sys; sys.path.insert(0, {here!r})\n{code}"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", whole], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("direction", ["forward", "roundtrip"])
@pytest.mark.parametrize("batch", ["40x108x108", "40x111x111", "400x24x24"])
def test_tuning_makes_quick_plans_first_and_then_thorough_ones(
    batch: str, direction: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fftw_planning, "MAX_SECONDS", 0.1)
    p, fftw, folder = params(batch, direction=direction), variant("pyfftw"), str(tmp_path)
    assert fftw.tuning is not None
    left = [fftw.tuning(p, 1, folder)]
    for _ in range(2):
        said: list[str] = []
        tuning = KernelContext("cpu", 1, folder, np, None, said.append, tunes=True)
        fftw.make(p, FFT.load(p), tuning)
        left.append(fftw.tuning(p, 1, folder))
        assert said
    said = []
    run = fftw.make(p, FFT.load(p), KernelContext("cpu", 1, folder, np, None, said.append))

    assert [step.is_needed for step in left] == [True, False, False]
    assert left[0].seconds > 0
    assert left[1].seconds > left[2].seconds == 0
    assert said == []
    x = normal(p)
    y = np.empty_like(x)
    run({"x": x}, {"y": y})
    assert residual(p, x, y).max() < 0.5


@pytest.mark.parametrize("name", NAMES)
def test_only_fftw_has_to_be_tuned_before_a_job_uses_it(name: str, tmp_path: Path) -> None:
    tuning = variant(name).tuning
    assert tuning is not None
    assert tuning(params("3x64x64"), 1, str(tmp_path)).is_needed == (name == "pyfftw")


PLAN = """
from fft_cases import kernel, params
from hetsched.workload import KernelContext
from fft_cases import variant
import numpy as np
context = KernelContext("cpu", 1, {folder!r}, np, None, lambda text: print(text))
variant("pyfftw").make(params("2x{n}x{n}", direction={direction!r}), 2, context)
"""


def test_a_second_process_plans_from_the_wisdom_of_the_first(tmp_path: Path) -> None:
    code = PLAN.format(folder=str(tmp_path), n=48, direction="roundtrip")
    assert "planning 48x48 complex64 for FFTW" in in_a_new_process(code)
    assert in_a_new_process(code) == ""


def test_wisdom_of_several_processes_adds_up(tmp_path: Path) -> None:
    codes = [PLAN.format(folder=str(tmp_path), n=n, direction="forward") for n in (40, 44)]
    for code in codes:
        assert "planning" in in_a_new_process(code)
    assert [in_a_new_process(code) for code in codes] == ["", ""]


@pytest.mark.parametrize("content", ["", "{}", '{"wisdom": 3}', "nonsense", "3"])
def test_broken_wisdom_costs_planning_only(content: str, tmp_path: Path) -> None:
    code = PLAN.format(folder=str(tmp_path), n=36, direction="forward")
    in_a_new_process(code)
    (file,) = tmp_path.glob("fft-tuned*.json")
    known = json.loads(file.read_text())
    if content in ("nonsense", "3"):
        (versions,) = known["wisdom"]
        wisdom = {versions: ["(nonsense", ""] if content == "nonsense" else 3}
        content = json.dumps({**known, "wisdom": wisdom})
    file.write_text(content)
    assert "planning" in in_a_new_process(code)
    assert in_a_new_process(code) == ""


@pytest.mark.skipif("mkl" not in NAMES, reason="MKL isn't installed")
@pytest.mark.parametrize("order", [("pyfftw", "mkl"), ("mkl", "pyfftw")])
def test_pyfftw_is_fftw_whether_mkl_is_loaded_before_or_after(
    order: tuple[str, str], tmp_path: Path
) -> None:
    first, second = order
    code = f"""
from pathlib import Path
from fft_cases import kernel, params, normal, residual
import numpy as np
p = params("2x40x40")
x = normal(p); y = np.empty_like(x)
for name in ({first!r}, {second!r}):
    kernel(name, p, Path({str(tmp_path)!r}))({{"x": x}}, {{"y": y}})
    assert residual(p, x, y).max() < 0.5
import pyfftw
from hetsched_workloads.fft import mkl_cpu
print(pyfftw.fftw_version, pyfftw.export_wisdom()[1].count(b"\\n") > 1, mkl_cpu.loaded())
"""
    said = in_a_new_process(code)
    assert said.startswith("3.3.5 True")
    assert "Math Kernel Library" in said


@pytest.mark.skipif("mkl" not in NAMES, reason="MKL isn't installed")
def test_mkl_says_what_is_wrong_in_its_own_words() -> None:
    from hetsched_workloads.fft import mkl_cpu

    with pytest.raises(RuntimeError, match=r"DftiC.*Descriptor: "):
        mkl_cpu.Descriptor(mkl_cpu.DescriptorKey((-1, 4), 1, "complex64", False))


def test_a_variant_is_called_what_runs_and_has_its_version() -> None:
    assert "pyfftw" in NAMES
    assert "scipy" in NAMES
    assert all(variant.version[0].isdigit() for variant in VARIANTS)
    assert FFT.variants("emulated") == ()


def test_a_right_result_rounded_to_the_dtype_passes() -> None:
    p = params("2x64x64")
    x = normal(p)
    assert residual(p, x, exact(p, x)).max() < 0.1


def test_the_scratch_memory_of_a_plan_is_given_back_once_it_is_made() -> None:
    pyfftw_cpu = pytest.importorskip("hetsched_workloads.fft.pyfftw_cpu")
    key = fftw_planning.FftwPlanKey((1, 64, 64), "complex64", False, False, 1, False)
    planes, pages = pyfftw_cpu._scratch(key)
    planes[...] = 1
    pages.madvise(mmap.MADV_DONTNEED)
    assert not planes.any()  # fresh zeros: the ones are gone, not only out of sight


def test_a_single_plan_is_not_timed() -> None:
    key = fftw_planning.FftwPlanKey((1, 8, 8), "complex64", False, False, 1, True)
    x = np.zeros((1, 8, 8), "complex64")
    assert fftw_planning._compared([None], key, x, x) == [0.0]


@pytest.mark.parametrize("name", NAMES)
def test_a_kernel_says_how_many_planes_it_transforms_at_once(name: str, wisdom: Path) -> None:
    units_per_call = getattr(kernel(name, params("37x16x16"), wisdom), "units_per_call", 0)

    assert 1 <= units_per_call <= 37


@pytest.mark.skipif("pyfftw" not in NAMES, reason="pyFFTW isn't installed")
def test_the_time_to_make_a_plan_is_limited(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    limits = []

    def no_wisdom(*args: object, **options: object) -> None:
        if "FFTW_WISDOM_ONLY" in str(options["flags"]):
            raise RuntimeError("no wisdom")
        limits.append(options["planning_timelimit"])
        raise TimeoutError("that is enough")

    monkeypatch.setattr(fftw_planning.pyfftw, "FFTW", no_wisdom)
    for batch in ("1x36x36", "64x512x512"):
        with pytest.raises(TimeoutError):
            kernel("pyfftw", params(batch), tmp_path)

    assert limits == [fftw_planning.MAX_PLANNING_SECONDS] * 2
