"""The planes of one call are measured by tuning, once for each library and size, and kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hetsched_workloads.fft import call_sizes, tuned
from hetsched_workloads.fft.call_sizes import (
    best_size,
    call_size,
    candidates,
    measured,
    seconds_to_time,
)
from hetsched_workloads.fft.declaration import FftParams
from hypothesis import given
from hypothesis import strategies as st

from hetsched.workload import KernelContext

SMALL_PLANES = FftParams("4096x64x64")
DEFAULT = 32


class Clock:
    """A library whose calls cost a fixed time each, and more per plane from `edge` planes on."""

    def __init__(self, call: float, edge: int) -> None:
        self.now = 0.0
        self.call, self.edge = call, edge
        self.made: list[int] = []

    def transform_of(self, size: int) -> Callable[[np.ndarray, np.ndarray], None]:
        self.made.append(size)

        def transform(x: np.ndarray, y: np.ndarray) -> None:
            self.now += self.call + len(x) * (1.0 if len(x) < self.edge else 2.0)

        return transform


@pytest.fixture
def small_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_sizes, "STREAM_BYTES", 4 << 20)


def stored(folder: Path) -> Mapping[str, Any]:
    return tuned.load(str(folder), "seconds_per_plane")


def test_candidates_surround_the_default() -> None:
    assert candidates(SMALL_PLANES, 1) == [8, 32, 128, 512]
    assert candidates(FftParams("64x500x500"), 1) == [1, 4, 16]
    assert candidates(FftParams("2x4096x4096"), 1) == []


@pytest.mark.parametrize(
    ("call", "edge", "best"), [(100.0, 1000, 128), (0.0, 16, 8), (1.0, 100, 32)]
)
@pytest.mark.usefixtures("small_stream")
def test_the_fastest_number_of_planes_is_measured(call: float, edge: int, best: int) -> None:
    library = Clock(call, edge)

    times = measured(SMALL_PLANES, [8, 32, 128], library.transform_of, lambda: library.now)

    assert best_size(times, 4096) == best


@pytest.mark.usefixtures("small_stream")
def test_it_is_measured_once_and_kept_for_other_processes(tmp_path: Path) -> None:
    library, said = Clock(100.0, 1000), list[str]()
    context = KernelContext("cpu", cache=str(tmp_path), say=said.append, tunes=True)

    for chunk in (4096, 4096, 40):
        call_size("toy 1", SMALL_PLANES, chunk, context, library.transform_of, 4 << 20)

    assert library.made == [8, 32, 128]
    assert [text.partition(" for ")[0] for text in said] == ["timing calls of toy 1"]
    assert [sorted(times, key=int) for times in stored(tmp_path).values()] == [["8", "32", "128"]]


@pytest.mark.usefixtures("small_stream")
def test_another_version_is_measured_anew(tmp_path: Path) -> None:
    library = Clock(100.0, 1000)
    context = KernelContext("cpu", cache=str(tmp_path), tunes=True)

    for version in ("toy 1", "toy 2"):
        call_size(version, SMALL_PLANES, 4096, context, library.transform_of, 1 << 20)

    assert library.made == [8, 32] * 2
    assert len(stored(tmp_path)) == 2


def test_small_jobs_are_not_worth_it(tmp_path: Path) -> None:
    library = Clock(1.0, 100)
    context = KernelContext("cpu", cache=str(tmp_path), tunes=True)

    size = call_size("toy 1", FftParams("64x64x64"), 64, context, library.transform_of)

    assert (size, library.made) == (DEFAULT, [])


def test_a_job_does_not_wait_for_it(tmp_path: Path) -> None:
    library, context = Clock(100.0, 1000), KernelContext("cpu", cache=str(tmp_path))

    size = call_size("toy 1", SMALL_PLANES, 4096, context, library.transform_of)

    assert (size, library.made) == (DEFAULT, [])


@pytest.mark.usefixtures("small_stream")
def test_tuning_is_due_until_it_is_done(tmp_path: Path) -> None:
    library, folder = Clock(100.0, 1000), str(tmp_path)
    context = KernelContext("cpu", cache=folder, tunes=True)

    before = seconds_to_time("toy 1", SMALL_PLANES, 1, folder, 4 << 20)
    call_size("toy 1", SMALL_PLANES, 4096, context, library.transform_of, 4 << 20)

    assert before > 0
    assert seconds_to_time("toy 1", SMALL_PLANES, 1, folder, 4 << 20) == 0
    assert seconds_to_time("toy 1", FftParams("64x64x64"), 1, folder, 4 << 20) == 0


@pytest.mark.parametrize(
    "content",
    ["{", "[]", '{"seconds_per_plane": 3}', '{"seconds_per_plane": {"KEY": {"8": "x"}}}'],
)
def test_a_file_that_cannot_be_read_is_measured_again(content: str, tmp_path: Path) -> None:
    key = tuned.key("toy 1", SMALL_PLANES, 1)
    tuned.file_of(str(tmp_path)).write_text(content.replace("KEY", key))

    assert seconds_to_time("toy 1", SMALL_PLANES, 1, str(tmp_path), 4 << 20) > 0
    tuned.save(str(tmp_path), "effort", "toy", lambda: tuned.MEASURE)
    assert tuned.load(str(tmp_path), "effort") == {"toy": tuned.MEASURE}


def test_a_chunk_below_the_best_number_is_one_call_per_power() -> None:
    times = {"8": 3.0, "32": 2.0, "128": 1.0}

    assert [best_size(times, chunk) for chunk in (3, 8, 40, 100, 128, 500)] == [
        2, 8, 32, 64, 128, 128,
    ]  # fmt: skip


@given(
    st.dictionaries(st.sampled_from(["1", "4", "16", "64"]), st.floats(0.1, 10), min_size=1),
    st.integers(1, 300),
)
def test_a_call_is_never_larger_than_the_chunk(times: dict[str, float], chunk: int) -> None:
    size = best_size(times, chunk)

    assert 1 <= size <= chunk
    assert size & (size - 1) == 0
