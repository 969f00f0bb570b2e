"""What an FFT job may be called with, and what it says when that makes no sense."""

from __future__ import annotations

import subprocess
import sys

import pytest
from fft_cases import FFT, params
from hetsched_workloads.fft import FftParams

from hetsched.errors import DataError, UsageError


def infer(given: dict[str, object], *array: object) -> FftParams:
    arrays = {"x": array} if array else {}
    found: FftParams = FFT.infer(given, arrays)  # type: ignore[arg-type]
    return found


def test_no_declaration_imports_numpy_or_a_vendor_library() -> None:
    code = (
        "import sys; from hetsched.workload import find, names\n"
        "for w in map(find, ('fft', 'heat', 'jacobi', 'kmeans', 'matrix_update', 'pcg')):\n"
        "    w.variants('cpu'), w.variants('cuda'), w.Params.__struct_fields__\n"
        "fft = find('fft'); fft.speed_key(fft.infer({'batch': '2x8x8'}, {}))\n"
        "print(sorted({'numpy', 'scipy', 'pyfftw', 'cupy', 'ducc0', 'numba'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_batch_alone_is_a_forward_complex64_job() -> None:
    assert infer({"batch": "4x8x16"}) == FftParams("4x8x16", "complex64", "forward")


@pytest.mark.parametrize(
    ("stored", "given", "computed"),
    [
        ("complex64", {}, "complex64"),
        ("bool", {}, "complex64"),
        ("float16", {}, "complex64"),
        ("int32", {}, "complex128"),
        (">f8", {}, "complex128"),
        ("|u1", {}, "complex64"),
        ("complex128", {"dtype": "c64"}, "complex64"),
        ("complex64", {"dtype": "c128"}, "complex128"),
    ],
)
def test_batch_and_dtype_come_from_the_input(
    stored: str, given: dict[str, object], computed: str
) -> None:
    assert infer(given, (5, 6, 7), stored) == FftParams("5x6x7", computed, "forward")


@pytest.mark.parametrize(
    ("given", "array", "words"),
    [
        ({"batch": "256x512x512"}, ((128, 512, 512), "float64"),
         ["float64", "(128, 512, 512)", "batch is 256x512x512", "give 128x512x512"]),
        ({}, ((512, 512), "uint8"), ["uint8", "(512, 512)", "three axes, COUNTxROWSxCOLS"]),
        ({}, ((0, 512, 512), "uint8"), ["(0, 512, 512)", "empty"]),
        ({}, ((2, 8, 8), "complex256"), ["complex256", "complex128"]),
    ],
)  # fmt: skip
def test_an_input_that_does_not_fit_is_a_data_error(
    given: dict[str, object], array: tuple[object, object], words: list[str]
) -> None:
    with pytest.raises(DataError) as caught:
        infer(given, *array)
    assert all(word in str(caught.value) for word in words)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "needs a batch, COUNTxROWSxCOLS"),
        ({"batch": ""}, "needs a batch"),
        ({"batch": "256x512"}, "got 2 numbers"),
        ({"batch": "9" * 5000 + "x8x8"}, "5004 characters"),
        ({"batch": "2x8x8", "dtype": "complex65"}, "did you mean complex64"),
        ({"batch": "2x8x8", "dtype": "float32"}, "fft has no dtype 'float32'"),
        ({"batch": "2x8x8", "direction": "forwards"}, "direction: .*did you mean 'forward'"),
        ({"batch": "2x8x8", "direction": "up"}, "choose from: forward, inverse, roundtrip"),
        ({"batch": "2x8x8", "dtyp": "c64"}, "did you mean 'dtype'"),
    ],
)
def test_what_makes_no_sense_is_a_usage_error(given: dict[str, object], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        infer(given)


@pytest.mark.parametrize(
    ("kind", "batch", "chunks", "need"),
    [("cpu", "4x8x8", [4], 4 * 2 * 512), ("cuda", "4x8x8", [4], 4 * 512 + 4 * 512),
     ("cuda", "4x11x8", [4], 4 * 704 + 4 * 4 * 704), ("cuda", "9x8x8", [4, 2, 3], 13 * 512),
     ("cpu", f"{10**12}x8x8", [10**12], 10**12 * 1024)],
)  # fmt: skip
def test_memory_is_input_and_output_or_in_place_and_one_work_area(
    kind: str, batch: str, chunks: list[int], need: int
) -> None:
    assert FFT.demand(params(batch), kind).need(chunks) == need


def test_flops_follow_the_convention() -> None:
    assert FFT.flops(params("1x512x512"), 2) == pytest.approx(2 * 5 * 512**2 * 18)
