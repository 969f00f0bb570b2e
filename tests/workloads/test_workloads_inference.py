from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from irregular_workload import Irregular
from solver_cases import needs_numba

from hetsched.errors import DataError, UsageError
from hetsched.sparse import SparseMatrix
from hetsched.workload import convert, find
from hetsched.workload.protocol import BaseWorkload

MATRIX = {
    "A.data": ((33,), "float64"),
    "A.indices": ((33,), "int64"),
    "A.indptr": ((10,), "int32"),
}
POINTS = {"points": ((9, 2), "float32")}
IMAGES = {"count": 4, "rows": 8, "cols": 8, "filters": 1, "filter_rows": 2, "filter_cols": 2}
SIGNALS = {"channels": 2, "samples": 64}


def test_no_declaration_imports_numpy_or_a_vendor_library() -> None:
    code = (
        "import sys; from hetsched.workload import find\n"
        "for w in map(find, ('fft', 'heat', 'jacobi', 'kmeans', 'matrix_update', 'pcg')):\n"
        "    w.variants('cpu'), w.variants('cuda'), w.Params.__struct_fields__\n"
        "fft = find('fft'); fft.speed_key(fft.infer({'batch': '2x8x8'}, {}))\n"
        "print(sorted({'numpy', 'scipy', 'pyfftw', 'cupy', 'ducc0', 'numba'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


ACCEPTED = [
    ("fft", {"batch": "4x8x16"}, {}, {"dtype": "complex64", "direction": "forward"}),
    ("fft", {}, {"x": ((5, 6, 7), "bool")}, {"batch": "5x6x7", "dtype": "complex64"}),
    ("fft", {}, {"x": ((5, 6, 7), "float16")}, {"dtype": "complex64"}),
    ("fft", {}, {"x": ((5, 6, 7), "int32")}, {"dtype": "complex128"}),
    ("fft", {}, {"x": ((5, 6, 7), ">f8")}, {"dtype": "complex128"}),
    ("fft", {"dtype": "c64"}, {"x": ((5, 6, 7), "complex128")}, {"dtype": "complex64"}),
    ("fft", {"dtype": "c128"}, {"x": ((5, 6, 7), "|u1")}, {"dtype": "complex128"}),
    ("heat", {"steps": 5}, {"initial": ((4, 5, 6), ">f8")}, {"grid": "4x5x6", "dtype": "float64"}),
    ("heat", {"grid": "4x4", "spacing": 0.5, "diffusivity": 0.5, "time_step": 0.125}, {},
     {"time_step": 0.125}),
    ("jacobi", {"n": 4}, {}, {"dtype": "float64", "x0": False}),
    ("jacobi", {"omega": "0.5"}, {"A": ((9, 9), "f4"), "b": ((9,), "f8"), "x0": ((9,), "int8")},
     {"n": 9, "dtype": "float64", "omega": 0.5, "x0": True}),
    ("kmeans", {"clusters": 4}, {"points": ((100, 3), "<f8")},
     {"count": 100, "dimensions": 3, "dtype": "float64", "start": "k-means++"}),
    ("kmeans", {}, {**POINTS, "start": ((6, 2), "f8")}, {"clusters": 6, "start": "given",
                                                         "dtype": "float32"}),
    ("matrix_update", {}, {"C": ((5, 7), "float32"), "A": ((5, 3), "float64")},
     {"rows": 5, "cols": 7, "inner": 3, "dtype": "float64"}),
    ("matrix_update", {"rows": "5", "dtype": "f64"}, {"B": ((3, 7), "uint8")}, {"inner": 3}),
    ("pcg", {}, {**MATRIX, "b": ((9,), "float32")},
     {"n": 9, "nonzeros": 33, "grid": "", "dtype": "float64", "index_dtype": "int64"}),
    ("pcg", {"grid": "3x4x5"}, {}, {"n": 60, "nonzeros": 326, "index_dtype": "int32"}),
    ("pcg", {"grid": "2000x2000x2000"}, {}, {"index_dtype": "int64"}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "explicit", "arrays", "expected"), ACCEPTED)
def test_parameters_come_from_flags_and_inputs(
    name: str, explicit: dict[str, Any], arrays: Any, expected: dict[str, Any]
) -> None:
    p = find(name).infer(explicit, arrays)

    assert {key: getattr(p, key) for key in expected} == expected


REFUSED = [
    ("fft", {}, {}, "needs a batch, COUNTxROWSxCOLS"),
    ("fft", {"batch": ""}, {}, "needs a batch"),
    ("fft", {"batch": "256x512"}, {}, "got 2 numbers"),
    ("fft", {"batch": "9" * 5000 + "x8x8"}, {}, "5004 characters"),
    ("fft", {"batch": "2x8x8", "dtype": "complex65"}, {}, "did you mean complex64"),
    ("fft", {"batch": "2x8x8", "dtype": "float32"}, {}, "fft has no dtype 'float32'"),
    ("fft", {"batch": "2x8x8", "direction": "forwards"}, {}, "direction: .* mean 'forward'"),
    ("heat", {}, {}, "needs a grid, ROWSxCOLS or PLANESxROWSxCOLS, or an input"),
    ("heat", {"grid": "4"}, {}, "ROWSxCOLS or"),
    ("heat", {"grid": "4x0"}, {}, "at least 1"),
    ("heat", {"grid": "4x4", "border": "periodc"}, {}, "did you mean 'periodic'"),
    ("heat", {"grid": "4x4x4", "border": "neumann,neumann"}, {}, "give 1 or 3"),
    ("heat", {"grid": "4x4", "diffusivity": 0}, {}, "diffusivity"),
    ("heat", {"grid": "4x4", "border_value": 1e39}, {}, "too large for float32"),
    ("heat", {"grid": "4x4", "tolerance": "nan"}, {}, "tolerance"),
    ("heat", {"grid": "4x4", "steps": 0}, {}, "steps"),
    ("heat", {"grid": "4x4", "spacing": 0.5, "diffusivity": 0.5, "time_step": 0.13}, {},
     r"largest .* is 0\.125"),
    ("heat", {"grid": "4x4", "spacing": "nan"}, {}, "spacing: nan, must be above 0"),
    ("heat", {"grid": "4x4", "spacing": "inf"}, {}, "spacing: inf, must be finite"),
    ("jacobi", {}, {}, "needs n, or an input array that has it"),
    ("jacobi", {"n": 0}, {}, "n: 0"),
    ("jacobi", {"n": 4, "omega": "2.5"}, {}, "omega: 2.5, must be at most 2"),
    ("jacobi", {"n": 4, "criterion": "x"}, {}, "criterion: 'x'; choose from: residual, change"),
    ("jacobi", {"n": 4, "criterion": "chang"}, {}, "'chang'; did you mean 'change'?"),
    ("jacobi", {"n": 4, "criterion": 3}, {}, "criterion: 3 is not text"),
    ("jacobi", {"n": 4, "tolerance": 0}, {}, "tolerance: 0"),
    ("jacobi", {"n": 4, "max_iterations": -1}, {}, "max_iterations: -1"),
    ("kmeans", {}, POINTS, "needs clusters"),
    ("kmeans", {"clusters": 0}, POINTS, "at least 1"),
    ("kmeans", {"clusters": 2, "start": "x"}, POINTS, "choose from: k-means"),
    ("kmeans", {"clusters": 2, "tolerance": -1}, POINTS, "tolerance"),
    ("matrix_update", {"rows": 1, "cols": 2}, {}, "needs inner"),
    ("matrix_update", {"rows": 4, "cols": 1.5, "inner": 2}, {}, "cols: 1.5 is not a whole number"),
    ("pcg", {}, {}, "a grid, as --grid 100x100x100"),
    ("pcg", {"n": 9, "grid": "2x2"}, {}, "4 points, n is 9"),
    ("pcg", {"grid": "2x2x2x2"}, {}, "XxYxZ"),
    ("pcg", {"grid": "2", "block": -1}, {}, "block: -1"),
    ("pcg", {"grid": "2x2"}, {**MATRIX, "b": ((4,), "float64")}, "not both"),
    ("convolve", {**IMAGES, "mode": "valid", "filter_rows": 9}, {}, "larger than an image, 9x2"),
    ("welch", {**SIGNALS, "nperseg": 65}, {}, "nperseg: 65, but signals have 64 samples"),
    ("welch", {**SIGNALS, "nperseg": 8, "noverlap": 8}, {}, "8, must be below nperseg, 8"),
    ("welch", {**SIGNALS, "fs": float("inf")}, {}, "fs: inf, must be finite"),
    ("statistics", {"shape": "10x10", "quantiles": "0.5,2"}, {}, "at most 8 numbers from 0 to 1"),
    ("statistics", {"shape": "10x10", "quantiles": "half"}, {}, "at most 8 numbers from 0 to 1"),
    ("statistics", {"shape": "10x10", "low": 2, "high": 1}, {}, "low: 2, must be .* high, 1"),
]  # fmt: skip
NO_DATA = [
    ("fft", {"batch": "256x512x512"}, {"x": ((128, 512, 512), "float64")},
     r"float64 of shape \(128, 512, 512\), but batch is 256x512x512; give 128x512x512"),
    ("fft", {}, {"x": ((512, 512), "uint8")}, "three axes, COUNTxROWSxCOLS"),
    ("fft", {}, {"x": ((0, 512, 512), "uint8")}, "empty"),
    ("fft", {}, {"x": ((2, 8, 8), "complex256")}, "complex256.*complex128"),
    ("heat", {"grid": "4x4"}, {"initial": ((4, 5), "float32")}, "grid is 4x4"),
    ("heat", {}, {"initial": ((4,), "float32")}, "two or three axes"),
    ("jacobi", {}, {"A": ((9, 8), "float64")}, "must be n x n"),
    ("jacobi", {}, {"A": ((9, 9), "f8"), "b": ((8,), "f8")}, "n is 8; A says 9"),
    ("kmeans", {"clusters": 10}, POINTS, "only 9 points"),
    ("kmeans", {"clusters": 2, "count": 8}, POINTS, "job says 8"),
    ("matrix_update", {"rows": 4}, {"C": ((5, 7), "float32")}, "rows is 5; the job says 4"),
    ("matrix_update", {}, {"C": ((5, 7, 1), "float32")}, "needs two axes, rows x cols"),
    ("matrix_update", {}, {"A": ((5, 0), "float32")}, "empty"),
    ("matrix_update", {"cols": 2}, {"A": ((5, 3), "complex64")}, "A holds complex64"),
    ("pcg", {}, {**MATRIX, "A.data": ((33,), "complex64")}, "complex64"),
    ("pcg", {}, {**MATRIX, "b": ((3,), "float64")}, "n is 3; A says 9"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("error", "name", "explicit", "arrays", "words"),
    [*((UsageError, *case) for case in REFUSED), *((DataError, *case) for case in NO_DATA)],
)
def test_what_makes_no_sense_is_refused_in_one_line(
    error: type[Exception], name: str, explicit: dict[str, Any], arrays: Any, words: str
) -> None:
    with pytest.raises(error, match=words) as caught:
        find(name).infer(explicit, arrays)
    assert "\n" not in str(caught.value)


def test_a_parameter_that_there_isnt_is_named() -> None:
    with pytest.raises(UsageError, match="did you mean"):
        convert(find("fft"), {"bach": "4"})


@pytest.mark.parametrize(
    ("name", "shape", "dtype", "message"),
    [
        ("A.data", (33, 1), "float64", "input A.data has 2 axes; it needs one"),
        ("A.data", (32,), "float64", "input A: 32 values in data, but 33 columns in indices"),
        ("A.indptr", (1,), "int32", "input A: indptr has 1 elements; at least 2"),
        ("A.indices", (33,), "float32", "input A.indices holds float32, not integers"),
    ],
)
def test_arrays_that_are_no_sparse_matrix_are_a_data_error(
    name: str, shape: tuple[int, ...], dtype: str, message: str
) -> None:
    with pytest.raises(DataError, match=f"^{message}$"):
        SparseMatrix("A").check({**MATRIX, name: (shape, dtype)})


def test_users_see_a_sparse_matrix_in_place_of_its_arrays() -> None:
    arrays = ("A.data", "A.indices", "A.indptr", "b")

    assert find("pcg").user_names(arrays) == ("A", "b")
    assert find("fft").user_names(arrays) == arrays


def test_a_size_with_a_default_need_not_be_given() -> None:
    assert Irregular().infer({"units": 4}, {}).width == 4096


@pytest.mark.parametrize(
    ("name", "values", "kind", "chunks", "need"),
    [
        ("fft", {"batch": "4x8x8"}, "cpu", [4], 4 * 2 * 512),
        ("fft", {"batch": "9x8x8"}, "cuda", [4, 2, 3], 9 * 512 + 4 * 512),
        ("fft", {"batch": "4x11x8"}, "cuda", [4], 4 * 704 + 4 * 4 * 704),
        ("fft", {"batch": f"{10**12}x8x8"}, "cpu", [10**12], 10**12 * 1024),
        ("jacobi", {"n": 100}, "cpu", [10], 8 * (10 * (100 + 1 + 1 + 2 + 2 + 2) + 100)),
        ("matrix_update", {"rows": 10, "cols": 7, "inner": 3}, "cpu", [2, 3], 4 * (21 + 5 * 17)),
        ("matrix_update", {"rows": 10, "cols": 7, "inner": 3}, "cuda", [2, 3], 4 * (21 + 5 * 10)),
        ("pcg", {"grid": "10x10x10"}, "cpu", [10], 808 + 16 * 1000 + 640),
    ],
)
def test_memory_is_that_of_the_rows_and_of_whole_arrays_once(
    name: str, values: dict[str, Any], kind: str, chunks: list[int], need: int
) -> None:
    workload = find(name)

    assert workload.demand(workload.infer(values, {}), kind).need(chunks) == need


@pytest.mark.parametrize(("inner", "outputs"), [(7, 0), (5, 7 * 8)])
def test_an_output_in_place_of_an_input_of_another_size_needs_memory(
    inner: int, outputs: int
) -> None:
    class InPlace(BaseWorkload):
        name = "in_place"
        inputs = ("a",)
        axes = {"a": ("rows", "inner"), "c": ("rows", "cols")}
        in_place = {"cuda": {"c": "a"}}
        Params = type(find("matmul")).Params
        can_verify = False

    params = InPlace.Params(count=1, rows=3, inner=inner, cols=7, dtype="float64")
    assert InPlace().demand(params, "cuda").output_bytes == outputs


@needs_numba
def test_memory_counts_incomplete_factors() -> None:
    pcg = find("pcg")
    plain, cholesky = (
        pcg.demand(pcg.infer({"grid": "10x10x10", "preconditioner": name}, {}), "cpu").need([10])
        for name in ("diagonal", "cholesky")
    )

    assert cholesky - plain > 10 * 7 * 12


def test_flops_follow_the_convention() -> None:
    fft, matrix = find("fft"), find("matrix_update")
    assert fft.flops(fft.infer({"batch": "1x512x512"}, {}), 2) == 2 * 5 * 512**2 * 18
    p = matrix.infer({"rows": 10**15, "cols": 512, "inner": 512}, {})
    assert matrix.flops(p, p.rows) == 2.0 * 10**15 * 512**2
