"""`map` and `reduce` give what the function itself gives, on every kind of device."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import re
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hetsched
from hetsched import DataError, UsageError
from hetsched.functions import workload
from hetsched.functions.run import cores_with_memory
from hetsched.functions.session import session

WAYS = ("cores", "emulated GPU", "threads")
pytestmark = [
    pytest.mark.usefixtures("engine"),
    pytest.mark.parametrize("engine", WAYS, indirect=True, scope="module"),
]

RNG = np.random.default_rng(0)
DTYPES = ("bool", "int8", "uint16", "int64", "float16", "float32", "complex64", "complex128")
MAX_THREADS = 40
"""Of an engine with a GPU, and of libraries that earlier tests have used; a leak exceeds it."""
MODES = ("reflect", "mirror", "nearest", "wrap", "constant")


@pytest.fixture(autouse=True)
def splits_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every call with units left after the first is divided."""
    monkeypatch.setattr(type(session), "overhead", 1e-12)


def doubled(block: np.ndarray) -> np.ndarray:
    return block + block


@given(
    shape=st.lists(st.integers(0, 9), min_size=1, max_size=4),
    axis=st.integers(-4, 3),
    dtype=st.sampled_from(DTYPES),
    is_transposed=st.booleans(),
)
def test_any_array_along_any_axis(
    shape: list[int], axis: int, dtype: str, is_transposed: bool
) -> None:
    x = (RNG.standard_normal(shape) * 50).astype(dtype)
    x = x.T if is_transposed else x
    if not -x.ndim <= axis < x.ndim:
        with pytest.raises(DataError, match="has no axis"):
            hetsched.map(doubled, x, axis=axis)
        return
    y = hetsched.map(doubled, x, axis=axis)

    np.testing.assert_array_equal(y, doubled(x))
    assert y.dtype == doubled(x).dtype


PADS = {
    "reflect": "symmetric", "mirror": "reflect", "nearest": "edge", "wrap": "wrap",
    "constant": "constant",
}  # fmt: skip
"""Mode -> what NumPy calls it."""
RESULTS = ("kept", "as int16", "neighbours", "sums of units", "stacked", "with what is broadcast")


@dataclass(frozen=True)
class AnyFunction:
    """A function with one result for each of some kinds, of one array each."""

    kinds: tuple[str, ...]
    axis: int
    overlap: int

    def __call__(self, *blocks: Any, offset: float = 0) -> Any:
        *split, weights = blocks
        results = [
            self.result(kind, split[number % len(split)], weights, offset)
            for number, kind in enumerate(self.kinds)
        ]
        return tuple(results) if len(results) > 1 else results[0]

    def result(self, kind: str, x: np.ndarray, weights: np.ndarray, offset: float) -> Any:
        match kind:
            case "as int16":
                return (x.real * 2 + offset).astype("int16")
            case "neighbours":
                return sum(np.roll(x, n, self.axis) for n in range(-self.overlap, 1))
            case "sums of units":
                others = tuple(a for a in range(x.ndim) if a != self.axis)
                return x.sum(axis=others, keepdims=True, dtype=np.result_type(x, "float32"))
            case "stacked":
                return np.stack([x, x * 2], axis=-1)
            case "with what is broadcast":
                return x * weights.sum() + offset
        return x


@given(
    kinds=st.lists(st.sampled_from(RESULTS), min_size=1, max_size=3),
    dtypes=st.lists(st.sampled_from(DTYPES[1:]), min_size=1, max_size=3),
    sizes=st.lists(st.integers(1, 4), max_size=2),
    units=st.integers(0, 60),
    axis=st.integers(0, 2),
    overlap=st.sampled_from([0, 0, 1, 5, 50]),
    mode=st.sampled_from(MODES),
    out_dtype=st.sampled_from([None, None, "complex128"]),
    is_number=st.booleans(),
)
def test_any_function_gives_what_it_gives_for_the_whole(
    kinds: list[str], dtypes: list[str], sizes: list[int], units: int, axis: int,
    overlap: int, mode: str, out_dtype: str | None, is_number: bool,
) -> None:  # fmt: skip
    axis = min(axis, len(sizes))
    shape = (*sizes[:axis], units, *sizes[axis:])
    arrays = [(RNG.standard_normal(shape) * 9).astype(dtype) for dtype in dtypes]
    weights = np.array(3, dtypes[0]) if is_number else np.arange(4, dtype=dtypes[0])
    function = AnyFunction(tuple(kinds), axis, overlap)
    pads = [(overlap, overlap) if a == axis else (0, 0) for a in range(len(shape))]
    padded = [np.pad(x, pads, PADS[mode]) for x in arrays] if units else arrays  # type: ignore[call-overload]
    whole = function(*padded, weights, offset=3)
    if units and overlap:
        inner = (*(slice(None),) * axis, slice(overlap, -overlap))
        whole = tuple(y[inner] for y in whole) if len(kinds) > 1 else whole[inner]

    broadcast = () if is_number else len(arrays)
    options: dict[str, Any] = {"axis": axis, "broadcast": broadcast, "mode": mode}
    found = hetsched.map(
        function, *arrays, weights, overlap=overlap, dtype=out_dtype, offset=3, **options
    )

    assert isinstance(found, tuple) == (len(kinds) > 1)
    results = zip(found, whole, strict=True) if len(kinds) > 1 else [(found, whole)]
    for y, expected in results:
        assert y.dtype == (out_dtype or expected.dtype)
        rtol = 1e-3 if y.dtype == np.float16 else 1e-6
        np.testing.assert_allclose(y, expected, rtol, atol=1e-5)  # sums of float32 may be near 0


@given(units=st.integers(1, 3000), axis=st.integers(0, 1))
def test_a_reduction_combines_the_blocks_in_their_order(units: int, axis: int) -> None:
    x = np.arange(units).reshape((units, 1) if axis == 0 else (1, units))
    known: list[list[int]] = []
    total = hetsched.reduce(
        lambda block: block.ravel().tolist(),
        lambda left, right: left + right,
        x,
        axis=axis,
        on_partial=known.append,
    )
    assert total == list(range(units))
    assert all(part == list(range(len(part))) for part in known)


def test_results_go_to_the_given_array_as_its_dtype() -> None:
    x, out = RNG.standard_normal((500, 20)), np.zeros((500, 20), "float32")
    assert hetsched.map(np.sqrt, abs(x), out=out) is out
    np.testing.assert_allclose(out, np.sqrt(abs(x)), rtol=1e-6)
    assert hetsched.map(np.sqrt, abs(x)).dtype == np.float64  # of this call, not the last one's
    assert hetsched.map(doubled, x, dtype="int16").dtype == np.int16


def test_closures_with_the_same_code_may_return_other_things() -> None:
    def scaled(by: Any) -> Callable[[np.ndarray], np.ndarray]:
        return lambda block: block * by

    def columns(count: int) -> Callable[[np.ndarray], Any]:
        return lambda block: np.ones((len(block), count)) if count else (block, block)

    x = np.arange(3000)
    for by in (2, 0.5, 2, 1j, True):
        y = hetsched.map(scaled(by), x)
        assert y.dtype == (x * by).dtype
        np.testing.assert_array_equal(y, x * by)
    for count in (2, 3, 1):
        out = np.zeros((3000, count))
        assert hetsched.map(columns(count), x).shape == (3000, count)
        assert hetsched.map(columns(count), x, out=out) is out
    assert len(hetsched.map(columns(0), x)) == 2


def test_results_without_units_have_their_dtype_and_place() -> None:
    x, out = np.ones((0, 3)), np.ones((0, 3))
    assert hetsched.map(doubled, x, dtype="float32").dtype == np.float32
    assert hetsched.map(doubled, x, out=out) is out
    with pytest.raises(DataError, match="out is float64"):
        hetsched.map(doubled, x, out=np.ones((1, 3)))


def test_a_function_may_call_map_itself() -> None:
    def centred(block: np.ndarray) -> np.ndarray:
        total = hetsched.reduce(np.sum, np.add, block)
        return np.asarray(hetsched.map(lambda values: values - total, block))

    def in_a_thread(block: np.ndarray) -> np.ndarray:
        results: list[np.ndarray] = []
        thread = threading.Thread(target=lambda: results.append(hetsched.map(doubled, block)))
        thread.start()
        thread.join()
        return results[0]

    x = np.ones(3000)
    assert np.unique(hetsched.map(lambda block: centred(block) * 0 + 1, x)).tolist() == [1]
    np.testing.assert_array_equal(hetsched.map(in_a_thread, x), 2 * x)


def test_a_decorated_function_is_divided_when_it_is_called() -> None:
    @hetsched.divisible(axis=1)
    def halved(block: np.ndarray, by: float = 2) -> np.ndarray:
        """Return less."""
        return block / by

    x = RNG.standard_normal((3, 700))
    np.testing.assert_allclose(halved(x, by=4), x / 4)
    assert halved.__doc__ == "Return less."


def test_the_namespace_of_a_block_is_that_of_its_library() -> None:
    def magnitude(block: np.ndarray) -> np.ndarray:
        xp = hetsched.namespace(block, 2)
        return xp.abs(block) ** 2

    x = RNG.standard_normal((300, 4))
    np.testing.assert_array_equal(hetsched.map(magnitude, x), abs(x) ** 2)
    assert hetsched.namespace(x) is np
    with pytest.raises(UsageError, match="namespace: 'text' should be an array"):
        hetsched.namespace("text")
    with pytest.raises(UsageError, match="namespace: no arrays"):
        hetsched.namespace()


# ---- what goes wrong


def raises_late(block: np.ndarray) -> np.ndarray:
    if block.max() >= 150:
        raise ZeroDivisionError("no such unit")
    return block


def test_an_exception_reaches_the_caller_with_the_units_of_its_block() -> None:
    with pytest.raises(ZeroDivisionError, match="no such unit") as raised:
        hetsched.map(raises_late, np.arange(200))

    assert "raises_late, units" in raised.value.__notes__[0]
    assert raised.traceback[-1].name == "raises_late"


class Noteless(Exception):
    def add_note(self, note: str) -> None:
        raise RuntimeError


def test_an_exception_is_raised_as_it_was() -> None:
    def fails(block: np.ndarray) -> np.ndarray:
        if block.max() >= 150:
            raise Noteless from KeyError("cause")
        return block

    with pytest.raises(Noteless) as raised:
        hetsched.map(fails, np.arange(200))
    assert isinstance(raised.value.__cause__, KeyError)


def raises(*arguments: Any) -> Any:
    raise ZeroDivisionError


@pytest.mark.parametrize(("combine", "on_partial"), [(raises, None), (np.add, raises)])
def test_what_a_reduction_calls_may_raise(combine: Any, on_partial: Any) -> None:
    with pytest.raises(ZeroDivisionError):
        hetsched.reduce(np.sum, combine, np.arange(3000), on_partial=on_partial)


@pytest.mark.parametrize("f", [doubled, raises_late])
def test_arrays_are_freed_without_garbage_collection(f: Callable[..., Any], engine: str) -> None:
    if f is raises_late and engine == "emulated GPU":
        pytest.skip("an emulated GPU keeps errors until its next job")
    x = np.arange(3000)
    is_freed = threading.Event()
    weakref.finalize(x, is_freed.set)
    gc.collect()
    gc.disable()
    try:
        with contextlib.suppress(ZeroDivisionError):
            hetsched.map(f, x)
        del x
        assert is_freed.wait(60)
    finally:
        gc.enable()


def changed(block: np.ndarray) -> np.ndarray:
    block += 1
    return block


def recursive(block: np.ndarray) -> Any:
    return recursive(block)


async def later(block: np.ndarray) -> np.ndarray:
    return block


def one_by_one(block: np.ndarray) -> Iterator[np.ndarray]:
    yield from block


def raising(error: BaseException, *, late: bool = True) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function that raises an error, for the first unit or a later one."""

    def fails(block: np.ndarray) -> np.ndarray:
        if not late or block.max() >= 1500:
            raise error
        return block

    return fails


NO_NUMBERS = "it must return an array of numbers"
FAULTY: dict[str, tuple[Callable[..., Any], type[BaseException], str]] = {
    "changes its block": (changed, ValueError, "read-only"),
    "fails at once": (raising(OSError("at once"), late=False), OSError, "at once"),
    "fails later": (raising(ZeroDivisionError("later")), ZeroDivisionError, "later"),
    "exits": (raising(SystemExit(3)), SystemExit, "3"),
    "is interrupted": (raising(KeyboardInterrupt("now")), KeyboardInterrupt, "now"),
    "stops an iteration": (raising(StopIteration("end")), StopIteration, "end"),
    "has no memory": (raising(MemoryError("no memory")), MemoryError, "no memory"),
    "raises a group": (raising(ExceptionGroup("two", [OSError()])), ExceptionGroup, "two"),
    "raises one of ours": (raising(hetsched.TryAgain("ours")), hetsched.TryAgain, "ours"),
    "asserts": (raising(AssertionError("wrong")), AssertionError, "wrong"),
    "recurses": (recursive, RecursionError, "recursion"),
    "takes nothing": (lambda: 1, TypeError, "positional argument"),
    "takes more": (lambda block, other: block, TypeError, "positional argument"),
    "lacks an attribute": (lambda block: block.missing, AttributeError, "missing"),
    "misses a name": (lambda block: no_such_name, NameError, "no_such_name"),  # type: ignore[name-defined] # noqa: F821
    "returns a sum": (lambda block: block.sum(), DataError, "as many; use hetsched.reduce"),
    "returns a unit less": (lambda block: block[:-1], DataError, "axis 0 must have as many"),
    "returns a unit more": (lambda block: np.append(block, 1), DataError, "must have as many"),
    "returns no array": (lambda block: (), DataError, "returned an empty tuple"),
    "narrower later": (
        lambda block: np.ones((len(block), 2 + (block[0] > 0))), DataError,
        r"shape \(\d+, 3\), for other units one of \(\d+, 2\)",
    ),
    "several later": (
        lambda block: (block, block) if block[0] else block, DataError, "for other units 1",
    ),
    "complex later": (
        lambda block: block * (1j if block[0] else 1), DataError,
        "returned complex128, for other units float64: give dtype",
    ),
    "returns None": (lambda block: None, DataError, f"returned NoneType; {NO_NUMBERS}"),
    "returns text": (lambda block: "text", DataError, "returned str"),
    "returns objects": (lambda block: block.astype(object), DataError, "returned dtype object"),
    "returns dates": (lambda block: block.astype("M8[s]"), DataError, r"dtype datetime64\[s\]"),
    "returns records": (lambda block: np.zeros(len(block), "i4,i4"), DataError, NO_NUMBERS),
    "returns a dict": (lambda block: {"y": block}, DataError, "returned dict"),
    "returns a set": (lambda block: {1, 2}, DataError, "returned set"),
    "returns ragged lists": (lambda block: [[1], [1, 2]], DataError, "returned list"),
    "masks": (lambda block: np.ma.masked_less(block, 5), DataError, "returned a masked array"),
    "is asynchronous": (later, DataError, "returned coroutine"),
    "generates": (one_by_one, DataError, "returned generator"),
    "is a class": (dict, TypeError, "dict"),
}  # fmt: skip


@pytest.mark.parametrize("kind", FAULTY)
@pytest.mark.filterwarnings("ignore:coroutine 'later' was never awaited")
def test_a_faulty_function_is_named_with_its_units(kind: str) -> None:
    f, error, message = FAULTY[kind]
    threads = threading.active_count()
    for _ in range(2):
        with pytest.raises(error, match=message) as raised:
            hetsched.map(f, np.arange(3000.0))
        assert re.search(r":\S*, units? \d+.* of axis 0$", raised.value.__notes__[0])
    np.testing.assert_array_equal(hetsched.map(np.negative, np.arange(3000.0)), -np.arange(3000.0))
    assert threading.active_count() <= max(threads, MAX_THREADS)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"overlap": -1}, "overlap: -1 should be a number of units"),
        (
            {"overlap": 10**14},
            "overlap: blocks of 1000.* take 2910 TiB with their results; .* are free",
        ),
        ({"dtype": "flot"}, "dtype: 'flot' is none of NumPy's"),
        ({"mode": "mirrored"}, "mode: 'mirrored' should be one of reflect, "),
        ({"broadcast": 4}, "broadcast: 4 should be the position"),
        ({"broadcast": 0}, "all arrays are broadcast"),
        ({"axis": 1.5}, "axis: 1.5 should be a whole number"),
        ({"devices": "cpu9"}, "no device 'cpu9'"),
        ({"out": [np.zeros(1)] * 2}, "out has 2 arrays; "),
        ({"out": 5}, "out: 5 should be an array"),
        ({"out": np.zeros(7)}, r"out is float64 \(7,\)"),
        ({"axis": "1"}, "axis: '1' should be a whole number"),
        ({"broadcast": np.int64(4)}, "broadcast: 4 should be the position"),
        ({"broadcast": None}, "broadcast: None should be the position of an array, or several"),
        ({"broadcast": True}, "broadcast: True should be the position"),
        *(
            ({"memory": memory}, rf"^memory: {memory!r} (should be bytes from 1|is not a size)")
            for memory in (0, -1, False, True, 1.5, "much", "-4G", "")
        ),
        ({"devices": 0}, "devices: 0 should be a str"),
        ({"devices": ["cpu0", 3]}, r"devices: \['cpu0', 3\] should be a str"),
        *(
            ({"shape": shape}, "shape: .* should be a tuple of lengths")
            for shape in (3000, "3000", (3000.0,), (True,), (-1,))
        ),
        ({"shape": (7,)}, r"shape: \(7,\), but the result has \(3000,\)"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises((UsageError, DataError), match=message):
        hetsched.map(doubled, np.arange(3000.0), **options)


def test_arrays_of_different_lengths_are_refused() -> None:
    with pytest.raises(DataError, match=r"\[3, 4\] units along axis 0"):
        hetsched.map(np.add, np.ones(3), np.ones(4))


def test_out_must_not_overlap_other_arrays() -> None:
    x = np.ones(60)
    with pytest.raises(DataError, match="out overlaps an input"):
        hetsched.map(doubled, x, out=x)
    hetsched.map(np.negative, x[::2], out=x[1::2])
    assert x.tolist() == [1, -1] * 30

    y = np.zeros(61)
    with pytest.raises(DataError, match="out: two of the arrays overlap"):
        hetsched.map(lambda block: (block, 2 * block), x, out=(y[:-1], y[1:]))


def test_masks_are_not_dropped() -> None:
    with pytest.raises(DataError, match="array 0 is masked: give its values and its mask"):
        hetsched.map(doubled, np.ma.masked_less(np.arange(9), 5))


class Table:
    """Looks like a Series of pandas, which takes no tuples of slices."""

    def __init__(self, values: np.ndarray) -> None:
        self._values, self.shape, self.ndim = values, values.shape, values.ndim
        self.dtype = values.dtype

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return self._values

    def __getitem__(self, key: Any) -> Any:
        raise KeyError(key)


class Tensor:
    """An array of another library, which NumPy can't convert but by DLPack."""

    def __init__(self, values: np.ndarray) -> None:
        self._values = values

    def __dlpack__(self, **options: Any) -> Any:
        return self._values.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._values.__dlpack_device__()


def test_arrays_of_other_libraries_are_used_where_they_are() -> None:
    x, seen = np.arange(3000), set()

    def noted(block: np.ndarray) -> np.ndarray:
        seen.add(np.may_share_memory(block, x))
        return block + block

    np.testing.assert_array_equal(hetsched.map(noted, Tensor(x), devices="cpu"), 2 * x)
    assert True in seen  # an emulated GPU has copies


def test_tables_are_converted() -> None:
    x = np.arange(3000)
    np.testing.assert_array_equal(hetsched.map(doubled, Table(x)), 2 * x)


# ---- in any surroundings


def test_a_function_that_holds_the_lock_stays_in_the_callers_thread() -> None:
    threads: list[set[int]] = []

    def slow(block: np.ndarray) -> np.ndarray:
        threads[-1].add(threading.get_ident())
        return np.array([sum(range(300)) + value for value in block.tolist()])

    x = np.arange(6000)
    for _ in range(6):
        threads.append(set())
        np.testing.assert_array_equal(hetsched.map(slow, x), x + sum(range(300)))
    assert {threading.get_ident()} in threads[1:]


def test_floating_point_errors_are_treated_as_in_the_callers_thread() -> None:
    x = np.array([1.0] * 900 + [-1.0] * 900)
    with np.errstate(invalid="ignore"):
        assert np.isnan(hetsched.map(np.sqrt, x)[1000:]).all()
    with np.errstate(invalid="raise"), pytest.raises(FloatingPointError):
        hetsched.map(np.sqrt, x)


def test_keywords_may_be_anything() -> None:
    within: list[Any] = []
    within.append(within)
    for keyword in (10**5000, within, object(), {1: 2}, RNG):
        np.testing.assert_array_equal(
            hetsched.map(lambda block, k: block + 1, np.arange(9), k=keyword), np.arange(1, 10)
        )


def test_the_memory_of_a_unit_is_measured_and_stated(engine: str) -> None:
    def hungry(block: np.ndarray) -> np.ndarray:
        copies = [block + number for number in range(6)]
        time.sleep(0.1)  # one look at least, even on a busy machine
        return sum(copies)[:, :1]

    if engine == "emulated GPU":
        pytest.skip("a unit is larger than the GPU's memory")
    ctypes.CDLL(None).malloc_trim(0)  # what earlier tests freed would be used again, unseen
    hetsched.map(hungry, np.ones((4, 2 << 20)))

    line = next(line for line in hetsched.profile().splitlines() if "hungry: takes" in line)
    # Six copies, and their sum at times
    assert 80 <= float(line.partition("takes ")[2].split()[0]) <= 130
    assert "MiB a unit" in line


def test_cores_without_memory_for_a_unit_are_left_out() -> None:
    cores = ["cpu0", "cpu1", "cpu2"]
    assert cores_with_memory(cores, 100, 1e9) == cores
    assert cores_with_memory(cores, 100, 250) == ["cpu0", "cpu1"]
    assert cores_with_memory(cores, 100, 50) == ["cpu0"]


def test_an_update_of_hetsched_leaves_a_running_program_alone() -> None:
    path = Path(workload.__file__)
    before = path.stat()
    np.testing.assert_array_equal(hetsched.map(np.cbrt, np.arange(3000.0)), np.cbrt(range(3000)))
    os.utime(path)
    try:
        np.testing.assert_array_equal(hetsched.map(np.exp2, np.arange(30.0)), 2.0 ** np.arange(30))
    finally:
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_calls_from_many_threads() -> None:
    failures: list[object] = []

    def work(number: int) -> None:
        x = np.arange(1000) + number
        for _ in range(5):
            if not np.array_equal(hetsched.map(lambda block: block * number, x), x * number):
                failures.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_a_forked_process_has_an_engine_of_its_own() -> None:
    x = np.arange(2000)
    hetsched.map(doubled, x)
    child = os.fork()
    if not child:
        try:
            is_right = np.array_equal(hetsched.map(doubled, x), 2 * x)
            session.close()
            os._exit(0 if is_right else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    np.testing.assert_array_equal(hetsched.map(doubled, x), 2 * x)
