"""C := C + A B: the kernel against the reference, the check of every row, the declaration."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hetsched_workloads.matrix_update import MatrixParams, MatrixUpdate
from hypothesis import given
from hypothesis import strategies as st

from hetsched.errors import DataError, UsageError
from hetsched.workload import KernelContext

MATRIX = MatrixUpdate()
TRIALS = 50


def normal(p: MatrixParams, seed: int = 1) -> dict[str, np.ndarray]:
    made = {
        "C": np.empty((p.rows, p.cols), p.dtype),
        "A": np.empty((p.rows, p.inner), p.dtype),
        "B": np.empty((p.inner, p.cols), p.dtype),
    }
    for name, array in made.items():
        MATRIX.generate(p, seed, name, 0, array)
    return made


def photograph_like(p: MatrixParams, seed: int = 1) -> dict[str, np.ndarray]:
    """Positive values, as pixels are: the sums never cancel."""
    rng = np.random.default_rng(seed)
    return {
        name: rng.integers(0, 256, array.shape).astype(p.dtype)
        for name, array in normal(p).items()
    }


def computed(p: MatrixParams, inputs: dict[str, np.ndarray]) -> np.ndarray:
    (variant,) = MATRIX.variants("cpu")
    c = np.full_like(inputs["C"], np.nan)
    variant.make(p, p.rows, KernelContext("cpu", 1, "", np))(inputs, {"C": c})
    return c


def residual(
    p: MatrixParams, inputs: dict[str, np.ndarray], c: np.ndarray, seed: int = 3
) -> np.ndarray:
    return MATRIX.residual(p, inputs, {"C": c}, seed)


SIZES = [(1, 1, 1), (5, 1, 7), (1, 9, 1), (64, 33, 17), (600, 64, 31), (40, 300, 1)]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("rows", "cols", "inner"), SIZES)
def test_the_kernel_agrees_with_the_reference_and_leaves_its_inputs_alone(
    rows: int, cols: int, inner: int, dtype: str
) -> None:
    p = MatrixParams(rows, cols, inner, dtype)
    inputs = normal(p)
    before = {name: array.copy() for name, array in inputs.items()}
    c = computed(p, inputs)
    assert all(np.array_equal(inputs[name], before[name]) for name in inputs)
    assert residual(p, inputs, c).max() < 0.5
    for i in {0, rows // 2, rows - 1}:
        ref = MATRIX.reference(p, inputs, i)["C"]
        assert np.abs(c[i] - ref).max() <= MATRIX.tolerance(p) * np.sqrt(np.mean(ref**2))


def test_a_chunk_is_one_call_of_blas_which_packs_all_of_b(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows: list[int] = []
    matmul = np.matmul

    def counted(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> np.ndarray:
        rows.append(len(a))
        return matmul(a, b, out=out)

    monkeypatch.setattr(np, "matmul", counted)
    p = MatrixParams(1100, 4, 3)
    computed(p, normal(p))
    assert rows == [1100]


def test_the_reference_is_wider_than_the_kernel() -> None:
    p = MatrixParams(2, 3, 4, "float64")
    assert MATRIX.reference(p, normal(p), 0)["C"].dtype == np.longdouble
    p = MatrixParams(2, 3, 4, "float32")
    assert MATRIX.reference(p, normal(p), 0)["C"].dtype == np.float64


@pytest.mark.parametrize("make", [normal, photograph_like])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("rows", "cols", "inner"), [(64, 512, 512), (8, 4096, 512), (300, 7, 1000)]
)
def test_a_right_result_is_far_from_an_alarm(
    rows: int,
    cols: int,
    inner: int,
    dtype: str,
    make: Callable[[MatrixParams, int], dict[str, np.ndarray]],
) -> None:
    p = MatrixParams(rows, cols, inner, dtype)
    inputs = make(p, 1)
    c = computed(p, inputs)
    assert max(residual(p, inputs, c, seed).max() for seed in range(5)) < 0.5


def element(c: np.ndarray, rng: np.random.Generator) -> tuple[int, int]:
    row = int(rng.integers(len(c)))
    size = np.abs(c[row])
    return row, int(rng.choice(np.flatnonzero(size >= np.median(size))))


def zeroed(c: np.ndarray, rng: np.random.Generator) -> None:
    c[element(c, rng)] = 0


def sign_turned(c: np.ndarray, rng: np.random.Generator) -> None:
    c[element(c, rng)] *= -1


def scaled(c: np.ndarray, rng: np.random.Generator) -> None:
    c *= c.dtype.type(1.001)


def columns_turned(c: np.ndarray, rng: np.random.Generator) -> None:
    c[...] = c[:, ::-1].copy()


def left_out(c: np.ndarray, rng: np.random.Generator) -> None:
    c[-1] = 0


def rows_swapped(c: np.ndarray, rng: np.random.Generator) -> None:
    a, b = rng.choice(len(c), 2, replace=False)
    c[[a, b]] = c[[b, a]]


def not_a_number(c: np.ndarray, rng: np.random.Generator) -> None:
    c[element(c, rng)] = np.nan


def huge(c: np.ndarray, rng: np.random.Generator) -> None:
    c[element(c, rng)] = np.finfo(c.dtype).max


WRONGS = (
    zeroed, sign_turned, scaled, columns_turned, left_out, rows_swapped, not_a_number, huge,
)  # fmt: skip


@pytest.mark.parametrize("wrong", WRONGS)
@pytest.mark.parametrize("make", [normal, photograph_like])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_wrong_result_is_caught_in_every_trial(
    dtype: str,
    make: Callable[[MatrixParams, int], dict[str, np.ndarray]],
    wrong: Callable[[np.ndarray, np.random.Generator], None],
) -> None:
    p = MatrixParams(16, 512, 256, dtype)
    inputs = make(p, 1)
    right = computed(p, inputs)
    for trial in range(TRIALS if dtype == "float32" else 10):
        c = right.copy()
        wrong(c, np.random.default_rng(trial))
        assert residual(p, inputs, c, trial).max() > 2, trial


def test_an_update_that_forgets_the_old_matrix_is_caught() -> None:
    p = MatrixParams(16, 64, 32)
    inputs = normal(p)
    assert (residual(p, inputs, inputs["A"] @ inputs["B"]) > 1).all()


@pytest.mark.parametrize("array", ["C", "A"])
def test_a_row_that_is_not_finite_must_not_come_out_finite(array: str) -> None:
    p = MatrixParams(3, 8, 4)
    inputs = normal(p)
    inputs[array][1, 2] = np.nan
    c = computed(p, inputs)
    assert residual(p, inputs, c)[1] == 0
    c[1] = 0
    assert list(residual(p, inputs, c) <= 1) == [True, False, True]


def test_a_resident_matrix_that_is_not_finite_spoils_every_row() -> None:
    p = MatrixParams(3, 8, 4)
    inputs = normal(p)
    inputs["B"][2, 3] = np.inf
    with np.errstate(invalid="ignore"):
        c = computed(p, inputs)
    assert (residual(p, inputs, c) == 0).all()
    assert (residual(p, inputs, np.zeros_like(c)) == np.inf).all()


@given(rows=st.integers(1, 30), cols=st.integers(1, 30), inner=st.integers(1, 30))
def test_no_false_alarm_at_any_shape(rows: int, cols: int, inner: int) -> None:
    p = MatrixParams(rows, cols, inner)
    inputs = normal(p, rows)
    assert residual(p, inputs, computed(p, inputs), cols).max() < 0.5


def test_zeros_are_no_alarm() -> None:
    p = MatrixParams(2, 3, 4)
    inputs = {name: np.zeros_like(array) for name, array in normal(p).items()}
    assert (residual(p, inputs, inputs["C"].copy()) == 0).all()


def test_generated_rows_do_not_depend_on_who_makes_them() -> None:
    p = MatrixParams(9, 5, 3)
    whole = normal(p)["C"]
    part = np.empty((4, 5), np.float32)
    MATRIX.generate(p, 1, "C", 5, part)
    assert np.array_equal(part, whole[5:])
    assert not np.array_equal(whole[:, :3], normal(p)["A"])


def infer(given: dict[str, object], **arrays: tuple[tuple[int, ...], str]) -> MatrixParams:
    found: MatrixParams = MATRIX.infer(given, arrays)
    return found


def test_sizes_and_dtype_come_from_the_arrays() -> None:
    found = infer({}, C=((5, 7), "float32"), A=((5, 3), "float64"))
    assert found == MatrixParams(5, 7, 3, "float64")


def test_sizes_may_come_from_both_sides() -> None:
    assert infer({"rows": "5", "dtype": "f64"}, B=((3, 7), "uint8")) == MatrixParams(
        5, 7, 3, "float64"
    )


def test_numbers_alone_are_a_float32_job() -> None:
    assert infer({"rows": 1, "cols": 2, "inner": 3}) == MatrixParams(1, 2, 3, "float32")


@pytest.mark.parametrize(
    ("given", "arrays", "words"),
    [
        ({"rows": 4}, {"C": ((5, 7), "float32")}, "rows is 5; the job says 4"),
        ({}, {"C": ((5, 7), "float32"), "A": ((6, 3), "float32")}, "rows is 6; C says 5"),
        ({}, {"C": ((5, 7, 1), "float32")}, "needs two axes, rows x cols"),
        ({}, {"A": ((5, 0), "float32")}, "empty"),
        ({"cols": 2}, {"A": ((5, 3), "complex64")}, "A holds complex64"),
    ],
)
def test_arrays_that_do_not_fit_are_a_data_error(
    given: dict[str, object], arrays: dict[str, tuple[tuple[int, ...], str]], words: str
) -> None:
    with pytest.raises(DataError, match=words):
        infer(given, **arrays)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"rows": 1, "cols": 2}, "needs inner"),
        ({"rows": 0, "cols": 2, "inner": 3}, "rows: 0, must be at least 1"),
        ({"rows": -4, "cols": 2, "inner": 3}, "rows: -4, must be at least 1"),
        ({"rows": "x", "cols": 2, "inner": 3}, "rows"),
        ({"rows": 1, "cols": 2, "inner": 3, "dtype": "float16"}, "did you mean float"),
        ({"rows": 1, "cols": 2, "inner": 3, "dtype": "int"}, "choose from: float32, float64"),
        ({"row": 1}, "no parameter 'row'; did you mean 'rows'|needs rows"),
    ],
)
def test_what_makes_no_sense_is_a_usage_error(given: dict[str, object], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        infer(given)


def test_memory_counts_the_resident_matrix_once() -> None:
    p = MatrixParams(10, 7, 3)
    assert MATRIX.demand(p, "cpu").need([2, 3]) == 4 * (3 * 7 + 5 * (3 + 7 + 7))
    assert MATRIX.demand(p, "cuda").need([2, 3]) == 4 * (3 * 7 + 5 * (3 + 7))


def test_the_speed_key_does_not_know_the_load() -> None:
    keys = {MATRIX.speed_key(MatrixParams(rows, 7, 3)) for rows in (10, 20)}
    assert len(keys) == 1


def test_a_load_beyond_any_machine_is_only_a_number() -> None:
    p = infer({"rows": 10**15, "cols": 512, "inner": 512})
    assert MATRIX.load(p) == 10**15
    assert MATRIX.flops(p, p.rows) == 2.0 * 10**15 * 512**2


@pytest.mark.parametrize("also_c", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("wrong", [zeroed, sign_turned])
def test_a_large_column_does_not_hide_what_is_wrong_elsewhere(
    dtype: str, also_c: bool, wrong: Callable[[np.ndarray, np.random.Generator], None]
) -> None:
    p = MatrixParams(16, 512, 256, dtype)
    inputs = normal(p)
    inputs["B"][:, 7] *= 1e5
    inputs["C"][:, 7] *= 1e5 if also_c else 1
    right = computed(p, inputs)
    assert residual(p, inputs, right).max() < 0.5
    for trial in range(TRIALS):
        c = right.copy()
        wrong(c[:, 8:], np.random.default_rng(trial))
        assert residual(p, inputs, c, trial).max() > 2, trial


def test_a_large_column_of_the_old_matrix_alone_hides_nothing_either() -> None:
    p = MatrixParams(16, 512, 256)
    inputs = normal(p)
    inputs["C"][:, 7] *= 1e7
    right = computed(p, inputs)
    assert residual(p, inputs, right).max() < 0.5
    for trial in range(10):
        c = right.copy()
        zeroed(c[:, 8:], np.random.default_rng(trial))
        assert residual(p, inputs, c, trial).max() > 2, trial


@given(
    powers=st.lists(st.integers(-12, 12), min_size=1, max_size=20),
    rows=st.integers(1, 9),
    inner=st.integers(1, 40),
)
def test_no_false_alarm_however_columns_and_rows_are_scaled(
    powers: list[int], rows: int, inner: int
) -> None:
    p = MatrixParams(rows, len(powers), inner)
    inputs = normal(p, rows)
    inputs["B"] *= np.float32(10) ** np.array(powers, np.float32)
    inputs["A"] *= np.float32(10) ** np.arange(-4, rows - 4, dtype=np.float32)[:, None]
    assert residual(p, inputs, computed(p, inputs), inner).max() < 0.5


def test_a_value_in_a_column_of_zeros_is_caught() -> None:
    p = MatrixParams(4, 8, 4)
    inputs = normal(p)
    inputs["B"][:, 3] = 0
    inputs["C"][:, 3] = 0
    c = computed(p, inputs)
    c[2, 3] = 1e-3
    assert list(residual(p, inputs, c) > 1) == [False, False, True, False]


def cancelling(p: MatrixParams, seed: int) -> dict[str, np.ndarray]:
    """C is -A B but for rounding, or but for one part in 10**6."""
    inputs = normal(p, seed)
    product = inputs["A"].astype("float64") @ inputs["B"].astype("float64")
    inputs["C"][...] = -product * (1 + 1e-6 * (seed % 2))
    return inputs


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("rows", "cols", "inner"), SIZES)
def test_what_cancels_is_not_measured_by_what_is_left(
    rows: int, cols: int, inner: int, dtype: str
) -> None:
    p = MatrixParams(rows, cols, inner, dtype)
    for seed in range(4):
        inputs = cancelling(p, seed)
        c = computed(p, inputs)
        ref, scale = MATRIX.reference(p, inputs, 0)["C"], MATRIX.scale(p, inputs, 0)["C"]
        assert scale.shape == ref.shape
        assert np.max(np.abs(c[0] - ref) / scale) <= 0.5 * MATRIX.tolerance(p)
        assert residual(p, inputs, c, seed).max() < 0.5
