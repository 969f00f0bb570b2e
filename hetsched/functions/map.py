"""`map`, `reduce` and `divisible`: a function of the caller on all devices."""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec
import numpy as np

from hetsched.bounded_cache import BoundedCache
from hetsched.errors import DataError, HetschedError, UsageError
from hetsched.functions.call import MODES, Call, Reduction
from hetsched.functions.identity import function_name, identity
from hetsched.functions.profile import SMALL, SPLIT, statistics
from hetsched.functions.session import session
from hetsched.functions.workload import (
    CALL,
    MAX_ARRAYS,
    REFERENCE,
    FunctionParams,
    Layout,
    Registered,
)
from hetsched.units import quoted

T = TypeVar("T")
NUMERIC = "biufc"
MAX_KINDS = 1000
"""Kinds of calls whose results' layout and speed are remembered."""


def map(  # noqa: PLR0913 - optional keywords
    f: Callable[..., Any],
    *arrays: Any,
    axis: int = 0,
    overlap: int = 0,
    mode: str = "reflect",
    out: np.ndarray | Sequence[np.ndarray] | None = None,
    dtype: Any = None,
    shape: Sequence[int] | None = None,
    broadcast: int | Iterable[int] = (),
    memory: int | str | None = None,
    devices: str | Sequence[str] = (),
    **kwargs: Any,
) -> Any:
    """Apply a function to blocks of arrays, on all devices, and return the blocks' results joined.

    ``map(f, x)`` is ``f(x)`` for a function that treats each unit along `axis` by itself, such as
    a filter of each image of a stack. The function gets blocks of several units; it must return
    as many.

    Parameters
    ----------
    f : callable
        ``f(*blocks, **kwargs)`` -> block, or a tuple of blocks. Called in several threads at
        once. Blocks are read-only views of the arrays; other axes are whole.
    *arrays : array_like
        Divided along `axis`, which must be equally long in all.
    axis : int
        The axis of the units, in arrays and results.
    overlap : int, units
        Blocks have so many more units on either side, which are cut off the results.
    mode : "reflect", "mirror", "nearest", "wrap" or "constant"
        What lies beyond the ends, as in `scipy.ndimage`; "constant": zero.
    out : ndarray or sequence of ndarray, optional
        Where the results go; several if the function returns several.
    dtype : dtype, optional
        Of the results; by default as the function returns them.
    shape : tuple of int, optional
        Of the result, if it is to be checked.
    broadcast : int or iterable of int
        Positions of the arrays that each block gets whole; those without axes are always whole.
    memory : int (bytes) or str ("256MiB"), optional
        Limit of each device's own memory.
    devices : str or sequence of str
        Names or groups of devices; all by default.
    **kwargs
        Passed to the function.

    Returns
    -------
    ndarray, or tuple of ndarray if the function returns a tuple

    Raises
    ------
    DataError
        Arrays or results have shapes or dtypes that don't fit.
    UsageError
    Exception
        What the function raises, with a note that names the units.
    """
    call = _make_call(f, arrays, axis, overlap, mode, broadcast, kwargs)
    call.dtype = None if dtype is None else _numeric(np.dtype(dtype), "dtype")
    given = None if out is None else tuple(out) if isinstance(out, tuple | list) else (out,)
    options = {"memory_limit": memory, "devices": devices}
    if not call.load:
        return _of_nothing(call, given)
    _run(call, given, shape, options)
    results = tuple(np.moveaxis(y, 0, call.axis) for y in call.outputs)
    if given is not None:
        return tuple(given) if call.is_tuple else given[0]
    return results if call.is_tuple else results[0]


def reduce(
    f: Callable[..., T],
    combine: Callable[[T, T], T],
    *arrays: Any,
    axis: int = 0,
    broadcast: int | Iterable[int] = (),
    devices: str | Sequence[str] = (),
    on_partial: Callable[[T], object] | None = None,
    **kwargs: Any,
) -> T:
    """Combine a function's results of blocks: ``combine(f(block 0), f(block 1)), ...``.

    Parameters
    ----------
    f : callable
        ``f(*blocks, **kwargs)`` -> anything.
    combine : callable
        ``combine(left, right)`` of the results of neighbouring blocks; associative. It is called
        in the order of the blocks, in several threads.
    *arrays, axis, broadcast, devices, **kwargs
        As in `map`.
    on_partial : callable, optional
        Gets the result of all units from the first on that are known so far, now and then.

    Raises
    ------
    DataError
        There are no units.
    """
    if not callable(combine):
        raise UsageError(f"combine: {quoted(combine)} should be a function of two results")
    call = _make_call(f, arrays, axis, 0, "reflect", broadcast, kwargs)
    if not call.load:
        raise DataError(f"axis {axis} has no units: there is nothing to reduce")
    call.reduction = Reduction(combine, on_partial)
    _run(call, None, None, {"devices": devices})
    result: T = call.reduction.value
    return result


def divisible(f: Callable[..., Any] | None = None, /, **options: Any) -> Callable[..., Any]:
    """Decorate a function so that a call applies it by `map`; `options` as there.

    The function itself is the attribute ``__wrapped__``.
    """
    if f is None:
        return functools.partial(divisible, **options)

    @functools.wraps(f)
    def divided(*arrays: Any, **kwargs: Any) -> Any:
        return map(f, *arrays, **options, **kwargs)

    return divided


def divided(
    f: Callable[[np.ndarray], np.ndarray], x: np.ndarray, *, axis: int, identity: str, always: bool
) -> tuple[np.ndarray, float]:
    """Return `map` of an array with units, and the seconds saved; `identity` names the function.

    `always`: also where it doesn't pay.
    """
    call = Call(f, {}, ((True, 0),), [np.moveaxis(x, axis, 0)], [], axis)
    run = _Run(call, None, None, {}, identity, always)
    run.run()
    return np.moveaxis(call.outputs[0], 0, axis), run.saved or 0.0


# ---- arguments


def _make_call(
    f: Callable[..., Any],
    arrays: Sequence[Any],
    axis: int,
    overlap: int,
    mode: str,
    broadcast: int | Iterable[int],
    kwargs: dict[str, Any],
) -> Call:
    if not callable(f):
        raise UsageError(f"{quoted(f)} should be a function")
    if not arrays:
        raise UsageError("give at least one array")
    if len(arrays) > MAX_ARRAYS:
        raise UsageError(f"{len(arrays)} arrays; at most {MAX_ARRAYS}")
    if isinstance(overlap, bool) or not isinstance(overlap, int | np.integer) or overlap < 0:
        raise UsageError(f"overlap: {quoted(overlap)} should be a number of units from 0 on")
    if mode not in MODES:
        raise UsageError(f"mode: {quoted(mode)}, choose from: {', '.join(MODES)}")
    whole_positions = set([broadcast] if isinstance(broadcast, int) else broadcast)
    for position in whole_positions:
        if not isinstance(position, int | np.integer) or not 0 <= position < len(arrays):
            raise UsageError(
                f"broadcast: {quoted(position)} should be the position of an array,"
                f" 0 to {len(arrays) - 1}"
            )
    split: list[np.ndarray] = []
    whole: list[np.ndarray] = []
    positions: list[tuple[bool, int]] = []
    number: int | None = None
    for position, value in enumerate(arrays):
        array = _as_array(value, position)
        if position in whole_positions or not array.ndim:
            positions.append((False, len(whole)))
            whole.append(array)
            continue
        number = _axis(axis, array, position) if number is None else number
        if array.ndim <= number:
            raise DataError(f"array {position} has shape {array.shape}: it has no axis {axis}")
        positions.append((True, len(split)))
        split.append(np.moveaxis(array, number, 0))
    if not split:
        raise UsageError("all arrays are broadcast: there is nothing to divide")
    lengths = [x.shape[0] for x in split]
    if len(set(lengths)) > 1:
        raise DataError(f"the arrays have {lengths} units along axis {axis}: they must be equal")
    return Call(f, kwargs, tuple(positions), split, whole, number or 0, int(overlap), mode)


def _as_array(value: Any, position: int) -> np.ndarray:
    try:
        array = np.asarray(value)
    except (TypeError, ValueError) as error:
        raise DataError(f"array {position}: {quoted(value)} is not an array: {error}") from None
    _numeric(array.dtype, f"array {position}")
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def _numeric(dtype: np.dtype[Any], what: str) -> np.dtype[Any]:
    if dtype.kind not in NUMERIC:
        raise DataError(f"{what}: {dtype}; only numeric dtypes are supported")
    return dtype


def _axis(axis: Any, array: np.ndarray, position: int) -> int:
    if isinstance(axis, bool) or not isinstance(axis, int | np.integer):
        raise UsageError(f"axis: {quoted(axis)} should be a whole number")
    if not -array.ndim <= axis < array.ndim:
        raise DataError(f"array {position} has shape {array.shape}: it has no axis {axis}")
    return int(axis) % array.ndim


def _of_nothing(call: Call, given: Sequence[np.ndarray] | None) -> Any:
    """Return what the function returns for blocks without units."""
    call.overlap = 0
    moved = [np.moveaxis(x, 0, call.axis) for x in call.split]
    arguments = [moved[i] if is_split else call.whole[i] for is_split, i in call.positions]
    returned = call.f(*arguments, **call.keywords)
    if given is not None:
        return tuple(given) if isinstance(returned, tuple) else given[0]
    return returned


# ---- running


@dataclass(frozen=True)
class _Known:
    """What an earlier call of the same kind has shown."""

    outputs: tuple[Layout, ...]
    is_tuple: bool
    seconds_per_unit: float


_kinds: BoundedCache[tuple[Any, ...], _Known] = BoundedCache(max_entries=MAX_KINDS)
_kinds_lock = threading.Lock()


def _run(
    call: Call,
    given: Sequence[np.ndarray] | None,
    shape: Sequence[int] | None,
    options: dict[str, Any],
) -> None:
    """Run a call of the user, and count it."""
    begun = time.perf_counter()
    run = _Run(call, given, shape, options)
    run.run()
    what = SMALL if run.saved is None else SPLIT
    seconds = time.perf_counter() - begun
    statistics.note(function_name(call.f), what, seconds, run.saved or 0.0)


class _Run:
    """One call, from its first unit to its results."""

    def __init__(
        self,
        call: Call,
        given: Sequence[np.ndarray] | None,
        shape: Sequence[int] | None,
        options: dict[str, Any],
        function: str = "",
        always: bool = False,
    ) -> None:
        self._call, self._given, self._shape, self._options = call, given, shape, options
        self._function = function or identity(call.f, call.keywords)
        self._min_seconds = 0.0 if always else session.overhead
        self.saved: float | None = None  # Seconds against one core; None: it wasn't divided
        self._split = tuple(_layout(x) for x in call.split)
        self._whole = tuple(_layout(w, is_whole=True) for w in call.whole)
        self._key = (
            self._function, self._split, self._whole, call.positions, call.axis, call.overlap,
            call.mode, str(call.dtype), call.reduction is None,
        )  # fmt: skip

    def run(self) -> None:
        """Compute all units: some in this thread, to see what they are, or all if they are few."""
        call = self._call
        with _kinds_lock:
            known = _kinds.get(self._key)
        done, per_unit = 0, 0.0
        if known is None:
            done, per_unit = self._begin()
            known = _Known(tuple(_layouts(call.outputs)), call.is_tuple, per_unit)
            with _kinds_lock:
                _kinds.put(self._key, known)
        else:
            call.is_tuple = known.is_tuple
            self._allocate(known.outputs)
            per_unit = known.seconds_per_unit
        rest = call.load - done
        if rest and per_unit * rest <= self._min_seconds:
            call.compute_here(done, call.load)
        elif rest:
            self._compute_on_devices(done)

    def _begin(self) -> tuple[int, float]:
        """Compute first units here, twice as many each time, until that takes as long as a job.

        Return how many, and the seconds of one by the last of these calls.
        """
        call = self._call
        start = time.perf_counter()
        self._compute_first()
        done, seconds = 1, time.perf_counter() - start
        begun = start
        while done < call.load and time.perf_counter() - begun < self._min_seconds:
            count = min(done, call.load - done)
            start = time.perf_counter()
            call.compute_here(done, done + count)
            seconds = (time.perf_counter() - start) / count
            done += count
        return done, seconds

    def _compute_first(self) -> None:
        """Compute unit 0, which shows what the results look like."""
        call = self._call
        blocks = [x[:1] for x in call.split]
        try:
            if call.reduction is not None:
                call.reduction.add(0, 1, call.apply(blocks, call.whole, 0, None))
                return
            returned = call.apply(blocks, call.whole, 0, None)
            values = call.results(returned, 1)
            call.is_tuple = isinstance(returned, tuple)
            layouts = [
                Layout(v.shape[1:], str(v.dtype if call.dtype is None else call.dtype))
                for v in values
            ]
            self._allocate(layouts)
            call.write(values, [y[:1] for y in call.outputs])
        except BaseException as error:
            call.fail(error, 0, 1)
            raise

    def _allocate(self, layouts: Sequence[Layout]) -> None:
        """Take the caller's arrays for the results, or new ones."""
        call = self._call
        if call.reduction is not None:
            return
        if self._given is None:
            call.outputs = [_empty(call, layout) for layout in layouts]
        else:
            if len(self._given) != len(layouts):
                raise DataError(
                    f"out has {len(self._given)} arrays; {function_name(call.f)} returns"
                    f" {len(layouts)}"
                )
            call.outputs = [
                _checked_out(call, array, layout)
                for array, layout in zip(self._given, layouts, strict=True)
            ]
        if self._shape is not None:
            shape = np.moveaxis(call.outputs[0], 0, call.axis).shape
            if tuple(self._shape) != shape:
                raise DataError(f"shape: {tuple(self._shape)}, but the result has {shape}")

    def _compute_on_devices(self, done: int) -> None:
        call, local = self._call, session.local()
        call.offset = done
        params = FunctionParams(
            load=call.load - done,
            function=self._function,
            split=self._split,
            whole=self._whole,
            outputs=tuple(_layouts(call.outputs)),
        )
        with Registered(call) as number:
            arrays = {f"x{i}": x[done:] for i, x in enumerate(call.split)}
            arrays |= {f"w{i}": w for i, w in enumerate(call.whole)}
            arrays[CALL] = np.array([number])
            out = {f"y{i}": y[done:] for i, y in enumerate(call.outputs)}
            begun = time.perf_counter()
            job = local.submit(
                REFERENCE, arrays, out=out or None, **self._options, **msgspec.to_builtins(params)
            )
            try:
                job.result()
            except BaseException as error:
                call.is_cancelled = True
                if not isinstance(error, HetschedError | CancelledError):  # such as Ctrl-C
                    job.cancel()
                    _wait(job)
                if call.failure is not None:
                    raise call.failure from None
                raise
            whole = time.perf_counter() - begun
            report = job.report
            assert report is not None, "it has ended"
            self.saved = sum(device.seconds or 0.0 for device in report.devices) - whole
            if report.seconds is not None:
                session.note_overhead(whole - report.seconds)


def _wait(job: Any) -> None:
    """Wait until no device works on the caller's arrays any more."""
    with contextlib.suppress(HetschedError, CancelledError):
        job.result()


def _layout(array: np.ndarray, *, is_whole: bool = False) -> Layout:
    return Layout(array.shape if is_whole else array.shape[1:], array.dtype.name)


def _layouts(arrays: Iterable[np.ndarray]) -> Iterable[Layout]:
    return [_layout(each) for each in arrays]


def _empty(call: Call, layout: Layout) -> np.ndarray:
    """Return an array for a result, C-contiguous in the caller's order of axes."""
    unit = layout.shape
    shape = (*unit[: call.axis], call.load, *unit[call.axis :])
    return np.moveaxis(np.empty(shape, layout.dtype), call.axis, 0)


def _checked_out(call: Call, array: Any, layout: Layout) -> np.ndarray:
    unit = layout.shape
    shape = (*unit[: call.axis], call.load, *unit[call.axis :])
    if not isinstance(array, np.ndarray):
        raise UsageError(f"out: {quoted(array)} should be a NumPy array")
    if array.shape != shape or not np.can_cast(layout.dtype, array.dtype, "same_kind"):
        raise DataError(
            f"out is {array.dtype} {array.shape}; the result is {layout.dtype} {shape}"
        )
    if not array.flags.writeable:
        raise DataError("out is read-only; give an array that can be written")
    if any(np.may_share_memory(array, x) for x in (*call.split, *call.whole)):
        raise DataError("out overlaps an input; use another array")
    return np.moveaxis(array, call.axis, 0)
