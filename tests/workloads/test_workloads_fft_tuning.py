from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import fft_cases
import numpy as np
import pytest
from fft_cases import VARIANTS, kernel, normal, params, residual, variant
from hetsched_workloads.fft import fftw, tuning
from hetsched_workloads.fft.tuning import Tuned, tuning_left

from hetsched.workload import KernelContext

SMALL_PLANES = params("4096x64x64")
DEFAULT = 32


class Library:
    """Calls cost a fixed time each, and more per plane from `edge` planes on."""

    def __init__(self, call: float, edge: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.call, self.edge = 0.0, call, edge
        self.made: list[int] = []
        monkeypatch.setattr(tuning, "STREAM_BYTES", 4 << 20)
        for clock in ("thread_time", "perf_counter"):
            monkeypatch.setattr(tuning.time, clock, lambda: self.now * 1e-6)

    def transform_of(self, size: int) -> Callable[[np.ndarray, np.ndarray], None]:
        self.made.append(size)

        def transform(x: np.ndarray, y: np.ndarray) -> None:
            self.now += self.call + len(x) * (1.0 if len(x) < self.edge else 2.0)

        return transform

    def size(self, folder: Path, batch: str = "4096x64x64", tunes: bool = True) -> int:
        p, context = params(batch), KernelContext("cpu", cache=str(folder), tunes=tunes)
        known = Tuned("toy 1", p, 1, str(folder))
        return known.call_size(p.count, context, self.transform_of)


def seconds_left(folder: Path, batch: str = "4096x64x64") -> float:
    return tuning_left("toy 1", params(batch), 1, str(folder)).seconds


@pytest.mark.parametrize(
    ("call", "edge", "best"), [(100, 1000, 128), (0, 1000, 128), (0, 16, 8), (1, 100, 32)]
)
def test_the_fastest_number_of_planes_is_measured_once_and_kept(
    call: float, edge: int, best: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = Library(call, edge, monkeypatch)
    assert seconds_left(tmp_path) > 0

    assert [library.size(tmp_path) for _ in range(2)] == [best] * 2
    assert library.size(tmp_path, tunes=False) == best

    assert library.made == [8, 32, 128]
    assert seconds_left(tmp_path) == 0


@pytest.mark.parametrize(("batch", "tunes"), [("64x64x64", True), ("4096x64x64", False)])
def test_small_jobs_are_not_timed_and_no_job_waits_for_it(
    batch: str, tunes: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = Library(100, 1000, monkeypatch)

    assert (library.size(tmp_path, batch, tunes), library.made) == (DEFAULT, [])
    assert (seconds_left(tmp_path, batch) > 0) == (batch == "4096x64x64")


@pytest.mark.parametrize(
    "content",
    ["{", "[]", '{"seconds_per_plane": 3}', '{"seconds_per_plane": {"KEY": {"8": "x"}}}'],
)
def test_a_file_that_cannot_be_read_is_measured_again(content: str, tmp_path: Path) -> None:
    key = Tuned("toy 1", SMALL_PLANES, 1, "").key
    tuning.file_of(str(tmp_path)).write_text(content.replace("KEY", key))

    assert seconds_left(tmp_path) > 0
    tuning.save(str(tmp_path), "effort", "toy", lambda: tuning.MEASURE)
    assert tuning.load(str(tmp_path), "effort") == {"toy": tuning.MEASURE}


def test_tuning_makes_quick_plans_first_and_then_thorough_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fftw, "MAX_SECONDS", 0.1)
    p, pyfftw, folder = params("40x80x80", direction="roundtrip"), variant("pyfftw"), str(tmp_path)
    assert pyfftw.tuning is not None
    left, said = [pyfftw.tuning(p, 1, folder)], list[str]()
    for _ in range(2):
        pyfftw.make(p, p.count, KernelContext("cpu", 1, folder, np, None, said.append, tunes=True))
        left.append(pyfftw.tuning(p, 1, folder))
    assert said
    said.clear()
    run = pyfftw.make(p, p.count, KernelContext("cpu", 1, folder, np, None, said.append))

    assert [step.is_needed for step in left] == [True, False, False]
    assert left[0].seconds > 0
    assert left[1].seconds > left[2].seconds == 0
    assert said == []
    x = normal(p)
    y = np.empty_like(x)
    run({"x": x}, {"y": y})
    assert residual(p, x, y).max() < 0.5


def test_only_fftw_has_to_be_tuned_before_a_job_uses_it(tmp_path: Path) -> None:
    needed = {
        variant.name: variant.tuning_left(params("3x64x64"), 1, str(tmp_path)).is_needed
        for variant in VARIANTS
    }
    assert {name for name, is_needed in needed.items() if is_needed} <= {"pyfftw"}


def in_a_new_process(code: str) -> str:
    here = str(Path(fft_cases.__file__).parent)
    whole = f"import sys; sys.path.insert(0, {here!r})\n{code}"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", whole], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def planned(*made: tuple[Path, int]) -> list[str]:
    """What a new process says that makes plans for n x n with the wisdom of a folder."""
    return in_a_new_process(f"""
import numpy as np
from fft_cases import params, variant
from hetsched.workload import KernelContext
for folder, n in {[(str(folder), n) for folder, n in made]!r}:
    context = KernelContext("cpu", 1, folder, np, None, print)
    variant("pyfftw").make(params(f"2x{{n}}x{{n}}", direction="roundtrip"), 2, context)
""").splitlines()


def test_wisdom_of_all_processes_adds_up(tmp_path: Path) -> None:
    for n in (40, 44):
        assert f"planning {n}x{n} complex64 for FFTW" in planned((tmp_path, n))[0]
    assert planned((tmp_path, 40), (tmp_path, 44)) == []


def test_broken_wisdom_costs_planning_only(tmp_path: Path) -> None:
    made = []
    for number, wisdom in enumerate((None, ["(nonsense", ""], 3)):
        folder = tmp_path / str(number)
        folder.mkdir()
        content = {"wisdom": wisdom and {fftw.VERSIONS: wisdom}}
        tuning.file_of(str(folder)).write_text(json.dumps(content))
        made.append((folder, 36 + 2 * number))

    assert {line.split()[1] for line in planned(*made)} == {"36x36", "38x38", "40x40"}
    assert planned(*made) == []


def test_the_time_to_make_a_plan_is_limited(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def no_wisdom(*args: object, **options: object) -> None:
        if "FFTW_WISDOM_ONLY" in str(options["flags"]):
            raise RuntimeError("no wisdom")
        raise TimeoutError(f"{options['planning_timelimit']} seconds")

    monkeypatch.setattr(fftw.pyfftw, "FFTW", no_wisdom)

    with pytest.raises(TimeoutError, match=r"5\.0 seconds"):
        kernel("pyfftw", params("1x36x38"), tmp_path)
