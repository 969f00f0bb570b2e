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


def test_the_declaration_imports_no_numpy_and_no_vendor_library() -> None:
    code = (
        "import sys, hetsched_workloads.fft as f, hetsched_workloads.matrix_update as m\n"
        "w = f.Fft(); w.speed_key(w.infer({'batch': '2x8x8'}, {})); w.variants('cpu')\n"
        "m.MatrixUpdate().variants('cpu')\n"
        "print(sorted({'numpy', 'scipy', 'pyfftw', 'cupy', 'ducc0'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_batch_alone_is_a_forward_complex64_job() -> None:
    assert infer({"batch": "4x8x16"}) == FftParams("4x8x16", "complex64", "forward")


@pytest.mark.parametrize(("short", "full"), [("c64", "complex64"), ("c128", "complex128")])
def test_dtypes_have_short_names(short: str, full: str) -> None:
    assert infer({"batch": "4x8x16", "dtype": short}).dtype == full


@pytest.mark.parametrize(
    ("stored", "computed"),
    [("complex64", "complex64"), ("float32", "complex64"), ("uint8", "complex64"),
     ("bool", "complex64"), ("float16", "complex64"), ("complex128", "complex128"),
     ("float64", "complex128"), ("int32", "complex128"), ("int64", "complex128"),
     (">f8", "complex128"), (">c8", "complex64"), ("|u1", "complex64")],
)  # fmt: skip
def test_batch_and_dtype_come_from_the_input(stored: str, computed: str) -> None:
    assert infer({}, (5, 6, 7), stored) == FftParams("5x6x7", computed, "forward")


def test_a_dtype_that_was_asked_for_stays() -> None:
    assert infer({"dtype": "c64"}, (5, 6, 7), "complex128").dtype == "complex64"


@pytest.mark.parametrize(
    ("given", "array", "words"),
    [
        ({"batch": "256x512x512"}, ((128, 512, 512), "float64"),
         ["float64", "(128, 512, 512)", "256x512x512", "128x512x512"]),
        ({}, ((512, 512), "uint8"), ["uint8", "(512, 512)", "three axes"]),
        ({}, ((0, 512, 512), "uint8"), ["(0, 512, 512)", "empty"]),
        ({}, ((2, 8, 8), "complex256"), ["complex256", "complex128"]),
        ({}, ((2, 8, 8), "object"), ["object"]),
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
        ({"batch": ""}, "batch is empty"),
        ({"batch": "256x512"}, "got 2 numbers"),
        ({"batch": "0x512x512"}, "COUNT must be at least 1"),
        ({"batch": "-1x512x512"}, "'-1' is not a number"),
        ({"batch": "256x51Ox512"}, "did you mean 510"),
        ({"batch": "2²x8x8"}, "is not a number"),
        ({"batch": "9" * 5000 + "x8x8"}, "characters"),
        ({"batch": "2x8x8", "dtype": "complex65"}, "did you mean complex64"),
        ({"batch": "2x8x8", "dtype": "float32"}, "fft has no dtype 'float32'"),
        ({"batch": "2x8x8", "direction": "forwards"}, "did you mean forward"),
        ({"batch": "2x8x8", "direction": "up"}, "choose from: forward, inverse, roundtrip"),
        ({"batch": "2x8x8", "dtyp": "c64"}, "did you mean 'dtype'"),
    ],
)
def test_what_makes_no_sense_is_a_usage_error(given: dict[str, object], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        infer(given)


def test_a_load_beyond_any_machine_is_only_a_number() -> None:
    p = infer({"batch": f"{10**12}x512x512"})
    assert FFT.load(p) == 10**12
    assert FFT.demand(p, "cpu").need([10**12]) == 10**12 * 512 * 512 * 16
    assert FFT.flops(p, 10**12) > 1e19


def test_load_refuses_params_that_were_made_by_hand_and_make_no_sense() -> None:
    for wrong in (FftParams("2x8"), FftParams("2x8x8", "c3"), FftParams("2x8x8", "c64", "up")):
        with pytest.raises(UsageError):
            FFT.load(wrong)


@pytest.mark.parametrize(
    ("kind", "batch", "need"),
    [("cpu", "4x8x8", 4 * 2 * 512), ("emulated", "4x8x8", 4 * 2 * 512),
     ("cuda", "4x8x8", 4 * 512 + 4 * 512), ("cuda", "4x11x8", 4 * 704 + 4 * 4 * 704)],
)  # fmt: skip
def test_memory_is_input_and_output_or_in_place_and_one_work_area(
    kind: str, batch: str, need: int
) -> None:
    assert FFT.demand(params(batch), kind).need([4]) == need


def test_chunks_on_a_gpu_share_their_work_area() -> None:
    assert FFT.demand(params("9x8x8"), "cuda").need([4, 2, 3]) == 9 * 512 + 4 * 512


def test_the_speed_key_knows_shape_dtype_and_direction_but_not_the_load() -> None:
    keys = {
        FFT.speed_key(params(batch, dtype, direction))
        for batch in ("2x8x8", "3x8x8", "2x8x16")
        for dtype in ("complex64", "complex128")
        for direction in ("forward", "inverse", "roundtrip")
    }
    assert len(keys) == 2 * 2 * 3


def test_flops_follow_the_convention() -> None:
    assert FFT.flops(params("1x512x512"), 2) == pytest.approx(2 * 5 * 512**2 * 18)
