"""`map`, `reduce` and `divisible`: a function of the caller on all devices."""

from __future__ import annotations

import contextlib
import functools
import math
import os
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import numpy as np

from hetsched.bounded_cache import BoundedCache
from hetsched.dtypes import NUMERIC
from hetsched.errors import DataError, HetschedError, InternalError, JobFailed, UsageError
from hetsched.functions.call import MODES, Call, Outdated, Reduction
from hetsched.functions.files import is_path
from hetsched.functions.identity import function_name, identity
from hetsched.functions.outputs import Outputs
from hetsched.functions.peak import Peak, cores_with_memory, free_memory
from hetsched.functions.processes import REFERENCE as PROCESS
from hetsched.functions.processes import failed_units, process_job, reason_against
from hetsched.functions.profile import SMALL, SPLIT, calls
from hetsched.functions.race import Race
from hetsched.functions.same_call import same_call
from hetsched.functions.session import session
from hetsched.functions.twins import KINDS, asked, decorated, twins_of, undecorated
from hetsched.functions.workload import (
    CALL,
    MAX_ARRAYS,
    FunctionParams,
    Layout,
    Registered,
    reference,
)
from hetsched.store.formats import open_array
from hetsched.store.stored import Stored, checked_axis, is_stored
from hetsched.units import format_bytes, quoted

if TYPE_CHECKING:
    from hetsched.client.job import Job
    from hetsched.local import Local

T = TypeVar("T")
MAX_KINDS = 1000
"""Kinds of calls whose results' layout and speed are remembered."""
REMEMBERED = 5
"""Last calls whose times count."""
MIN_DIVIDED = 3
"""Calls that are divided before that is known to be slower: the first ones still learn."""
MEANWHILE_SECONDS = 0.01
"""Between two looks whether the devices are free."""
LOCK_SECONDS, LOCK_ROUNDS = 0.01, 3
"""Of a block by which is seen whether a function holds the interpreter's lock, which changes hands
each 5 ms; the fastest of so many counts."""
MAX_GROWTH = 64
"""Of a block on the way to one that takes as long."""
LOCKED = 1.5
"""Times that a block in each of two threads takes longer than one block: 1 or 2."""
MIN_PROCESS_SECONDS = 0.5
"""Of computing for which processes may pay: their start takes some tenths, and data is copied."""
WITHOUT = re.compile("^without |takes no part")
"""What notes of a job say about devices that were left out."""
SEGMENT_SECONDS = 30.0
"""Of a job after which its units are noted as complete: this may be lost by an interruption."""
RETRY_CALLS = 16
"""One in so many calls is divided although it was slower so."""


def map(  # noqa: PLR0913 - optional keywords
    f: Callable[..., Any],
    *arrays: Any,
    axis: int = 0,
    overlap: int = 0,
    mode: str = "reflect",
    out: Any = None,
    dtype: Any = None,
    shape: Sequence[int] | None = None,
    broadcast: int | Iterable[int] = (),
    memory: int | str | None = None,
    devices: str | Sequence[str] = (),
    cluster: str | None = None,
    resume: bool = False,
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
    *arrays : array_like, stored array or path
        Divided along `axis`, which must be equally long in all. `zarr.Array`, `h5py.Dataset` and
        `dask.array.Array` are read block by block, as are files: a str or Path names one.
    axis : int
        The axis of the units, in arrays and results.
    overlap : int, units
        Blocks have so many more units on either side, which are cut off the results.
    mode : "reflect", "mirror", "nearest", "wrap" or "constant"
        What lies beyond the ends, as in `scipy.ndimage`; "constant": zero.
    out : ndarray, stored array or path, or a sequence of these, optional
        Where the results go; several if the function returns several. A path is that of a new
        file, which appears when it is complete: .npy, .zarr, .h5, .tif or .raw.
    dtype : dtype, optional
        Of the results; by default as the function returns them.
    shape : tuple of int, optional
        Of the result, if it is to be checked.
    broadcast : int or iterable of int
        Positions of the arrays that each block gets whole; those without axes are always whole.
    memory : int (bytes) or str ("256MiB"), optional
        Limit of each device's own memory.
    devices : str or sequence of str
        Names or groups of devices; all by default, and none for small calls.
    cluster : str, ``tls://HOST:PORT``, optional
        The scheduler of a Dask cluster, over whose hosts the call is divided. They import `f` by
        its name. The connection stays for later calls.
    resume : bool
        If the call is interrupted, by an error, Ctrl-C or the end of the process, what is
        complete is kept beside `out`, new files; the same call computes only what is missing. It
        is the same with the same code, arguments, options and inputs: arrays by their contents,
        files by their times.
    **kwargs
        Passed to the function.

    Returns
    -------
    ndarray, or what is given as `out`; a tuple if the function returns one

    Raises
    ------
    DataError
        Arrays or results have shapes or dtypes that don't fit.
    UsageError
    Exception
        What the function raises, with a note that names the units.
    """
    if cluster is not None:
        if resume:
            raise UsageError("resume: a call over the hosts of a cluster can't be resumed")
        from hetsched.hosts.client import shared_client

        return shared_client(cluster).map(
            f, *arrays, axis=axis, overlap=overlap, mode=mode, out=out, dtype=dtype, shape=shape,
            broadcast=broadcast, memory=memory, devices=devices, **kwargs,
        )  # fmt: skip
    with contextlib.ExitStack() as stack:
        call = make_call(f, arrays, axis, overlap, mode, broadcast, kwargs, stack)
        call.dtype = None if dtype is None else named_dtype(dtype)
        identity = ""
        if resume:
            choices = {"axis": axis, "overlap": overlap, "mode": mode, "broadcast": broadcast}
            options = {**kwargs, "": [choices, str(call.dtype)]}
            identity = same_call(call.f, arrays, options)
        return run_call(call, out, shape, memory, devices, identity)


def run_call(
    call: Call,
    out: Any = None,
    shape: Sequence[int] | None = None,
    memory: int | str | None = None,
    devices: str | Sequence[str] = (),
    identity: str = "",
) -> Any:
    """Compute what `make_call` returned, as `map` does; `identity` as of `Outputs`."""
    outputs = make_outputs(call, out, shape, identity)
    try:
        _run(call, outputs, {"memory_limit": memory, "devices": devices})
        results = outputs.results()
        return results if call.is_tuple else results[0]
    finally:
        outputs.close()


def make_outputs(call: Call, out: Any, shape: Sequence[int] | None, identity: str = "") -> Outputs:
    """Return where the results go: `out` and `shape` are those of `map`."""
    given = None if out is None else tuple(out) if isinstance(out, tuple | list) else (out,)
    return Outputs(call, given, None if shape is None else tuple(shape), identity)


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
    with contextlib.ExitStack() as stack:
        call = make_call(f, arrays, axis, 0, "reflect", broadcast, kwargs, stack)
        if not call.load:
            raise DataError(f"axis {axis} has no units: there is nothing to reduce")
        call.reduction = Reduction(combine, on_partial)
        _run(call, Outputs(call), {"devices": devices})
        result: T = call.reduction.value
        return result


def divisible(f: Callable[..., Any] | None = None, /, **options: Any) -> Callable[..., Any]:
    """Decorate a function so that a call applies it by `map`; `options` as there.

    The function itself is the attribute ``__wrapped__``. The attributes `cuda` and `opencl`
    decorate its twins for these devices, which get and return arrays of CuPy, or of pyopencl.
    """
    if f is None:
        return functools.partial(divisible, **options)
    function = functools.partial(f)  # whose attributes are free

    @functools.wraps(f)
    def divided(*arrays: Any, **kwargs: Any) -> Any:
        return map(function, *arrays, **options, **kwargs)

    def register(kind: str, twin: Callable[..., Any]) -> Callable[..., Any]:
        setattr(function, kind, twin)
        return twin

    for kind in KINDS:
        setattr(divided, kind, functools.partial(register, kind))
    decorated[divided] = function
    return divided


def divided(
    f: Callable[[np.ndarray], np.ndarray],
    x: np.ndarray,
    *,
    axis: int,
    identity: str,
    always: bool,
    alternatives: Sequence[Callable[[np.ndarray, np.ndarray], object]] = (),
) -> tuple[np.ndarray, float | None]:
    """Return `map` of an array with units, and the seconds saved; `identity` names the function.

    `always`: also where it doesn't pay. `alternatives`: as of `Call`. None: it was computed in
    this thread.
    """
    call = Call(f, {}, ((True, 0),), [np.moveaxis(x, axis, 0)], [], axis)
    call.alternatives = alternatives
    run = _Run(call, Outputs(call), {}, identity, always)
    run.run()
    return np.moveaxis(call.outputs[0], 0, axis), run.saved


# ---- arguments


def make_call(
    f: Callable[..., Any],
    arrays: Sequence[Any],
    axis: int,
    overlap: int,
    mode: str,
    broadcast: int | Iterable[int],
    kwargs: dict[str, Any],
    stack: contextlib.ExitStack,
) -> Call:
    if not callable(f):
        raise UsageError(f"{quoted(f)} should be a function")
    f = undecorated(f)
    if not arrays:
        raise UsageError("give at least one array")
    if len(arrays) > MAX_ARRAYS:
        raise UsageError(f"{len(arrays)} arrays; at most {MAX_ARRAYS}")
    if isinstance(overlap, bool) or not isinstance(overlap, int | np.integer) or overlap < 0:
        raise UsageError(f"overlap: {quoted(overlap)} should be a number of units from 0 on")
    if mode not in MODES:
        raise UsageError(f"mode: {quoted(mode)}, choose from: {', '.join(MODES)}")
    if isinstance(axis, bool) or not isinstance(axis, int | np.integer):
        raise UsageError(f"axis: {quoted(axis)} should be a whole number")
    whole_positions = _whole_positions(broadcast, len(arrays))
    split: list[Any] = []
    whole: list[np.ndarray] = []
    positions: list[tuple[bool, int]] = []
    number: int | None = None
    for position, value in enumerate(arrays):
        array = _as_array(value, position, axis, stack)
        if position in whole_positions or not array.ndim:
            positions.append((False, len(whole)))
            whole.append(np.asarray(array.array) if isinstance(array, Stored) else array)
            continue
        if isinstance(array, Stored):
            number = array.axis if number is None else number
            if array.axis != number:
                raise DataError(f"axis {axis} isn't the same in all arrays: give it from 0 on")
            positions.append((True, len(split)))
            split.append(array)
            continue
        number = checked_axis(axis, array, f"array {position}") if number is None else number
        if array.ndim <= number:
            raise DataError(f"array {position} has shape {array.shape}: it has no axis {number}")
        positions.append((True, len(split)))
        split.append(np.moveaxis(array, number, 0))
    if not split:
        raise UsageError("all arrays are broadcast: there is nothing to divide")
    lengths = [x.shape[0] for x in split]
    if len(set(lengths)) > 1:
        raise DataError(f"the arrays have {lengths} units along axis {axis}: they must be equal")
    _check_room(split, int(overlap))
    return Call(f, kwargs, tuple(positions), split, whole, number or 0, int(overlap), mode)


def _check_room(split: Sequence[Any], overlap: int) -> None:
    """Raise DataError if memory doesn't hold the smallest block, with `overlap` on either side."""
    block = (1 + 2 * overlap) * sum(x.nbytes // max(1, x.shape[0]) for x in split)
    if overlap and block > (free := int(free_memory())):
        raise DataError(
            f"overlap: blocks of {overlap} units on either side take {format_bytes(block)};"
            f" {format_bytes(free)} are free"
        )


def _whole_positions(broadcast: int | Iterable[int], count: int) -> set[int]:
    positions = set([broadcast] if isinstance(broadcast, int | np.integer) else broadcast)
    for position in positions:
        if not isinstance(position, int | np.integer) or not 0 <= position < count:
            raise UsageError(
                f"broadcast: {quoted(position)} should be the position of an array,"
                f" 0 to {count - 1}"
            )
    return positions


def _as_array(value: Any, position: int, axis: Any, stack: contextlib.ExitStack) -> Any:
    """Return an ndarray, or a `Stored` array, which `stack` closes."""
    if is_path(value):
        value = open_array(value, axis, stack)
    elif is_stored(value):
        value = (
            Stored(value, checked_axis(axis, value, f"array {position}"))
            if value.ndim
            else np.asarray(value)
        )
    if isinstance(value, Stored):
        numeric(value.dtype, f"array {position}")
        return value
    if isinstance(value, np.ma.MaskedArray):
        raise DataError(
            f"array {position} is masked: give its values and its mask, or use its method filled"
        )
    try:
        array = np.asarray(_on_host(value))
    except (TypeError, ValueError, BufferError, RuntimeError) as error:
        raise DataError(f"array {position}: {quoted(value)} is not an array: {error}") from None
    numeric(array.dtype, f"array {position}")
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def _on_host(value: Any) -> Any:
    """Return an array of another library as one of NumPy, without a copy if it is in memory."""
    if hasattr(value, "__cuda_array_interface__") and hasattr(value, "get"):  # of CuPy
        return value.get()
    if hasattr(value, "__dlpack__") and not isinstance(value, np.ndarray | np.generic):
        return np.from_dlpack(value)
    return value


def numeric(dtype: np.dtype[Any], what: str) -> np.dtype[Any]:
    if dtype.kind not in NUMERIC:
        raise DataError(f"{what}: {dtype}; only numeric dtypes are supported")
    return dtype


def named_dtype(dtype: Any) -> np.dtype[Any]:
    """Return what a user calls a dtype. Raises UsageError, DataError."""
    try:
        return numeric(np.dtype(dtype), "dtype")
    except TypeError:
        raise UsageError(f"dtype: {quoted(dtype)} is none of NumPy's") from None


# ---- running


def _last() -> deque[float]:
    return deque(maxlen=REMEMBERED)


@dataclass
class _Kind:
    """What earlier calls of the same kind have shown. Times are seconds per unit."""

    outputs: tuple[Layout, ...]
    is_tuple: bool
    alone: deque[float] = field(default_factory=_last)
    """In the caller's thread."""
    divided: deque[float] = field(default_factory=_last)
    """From the caller's view, on the devices."""
    calls: int = 0
    race: Race | None = None
    is_portable: bool = False
    """The function asks `namespace` for its library."""

    holds_lock: bool | None = None
    """The function holds the interpreter's lock: two threads are no faster. None: unknown."""
    peak: int = 0
    """Bytes that a unit takes, its result included; 0: few."""
    stays: bool = False
    """The function can't be called in other processes."""

    def stay(self, call: Call, reason: str) -> None:
        """Don't use processes, and say why."""
        self.stays = True
        text = f"holds the interpreter's lock, and no other processes call it: {reason}"
        calls.remark(function_name(call.f), [text])

    def may_hold_lock(self, units: int) -> bool:
        """Return whether that isn't known, and matters for so many units."""
        if self.calls % RETRY_CALLS == 0:
            self.holds_lock = None
        is_long = min(self.alone) * units > MIN_PROCESS_SECONDS
        return self.holds_lock is None and is_long and len(os.sched_getaffinity(0)) > 1

    def is_faster_alone(self, units: int, overhead: float) -> bool:
        """Return whether the caller's thread is expected to be faster than the devices.

        It is for few units, and for functions that hold the interpreter's lock.
        """
        alone = min(self.alone)  # disturbances only make times longer
        if alone * units <= overhead:
            return True
        if self.holds_lock and (self.stays or alone * units < MIN_PROCESS_SECONDS):
            return True
        is_tried = len(self.divided) < MIN_DIVIDED or self.calls % RETRY_CALLS == 0
        return not is_tried and alone <= min(self.divided)


_kinds: BoundedCache[tuple[Any, ...], _Kind] = BoundedCache(max_entries=MAX_KINDS)
_kinds_lock = threading.Lock()
os.register_at_fork(
    before=_kinds_lock.acquire,
    after_in_parent=_kinds_lock.release,
    after_in_child=_kinds_lock.release,
)


def _run(
    call: Call,
    outputs: Outputs,
    options: dict[str, Any],
) -> None:
    """Run a call of the user, and count it."""
    begun = time.perf_counter()
    run = _Run(call, outputs, options, always=any(options.values()))
    run.run()
    what = SMALL if run.saved is None else SPLIT
    seconds = time.perf_counter() - begun
    calls.note(function_name(call.f), what, seconds, run.saved or 0.0)


class _Run:
    """One call, from its first unit to its results."""

    def __init__(
        self,
        call: Call,
        outputs: Outputs,
        options: dict[str, Any],
        function: str = "",
        always: bool = False,
    ) -> None:
        self._call, self._outputs, self._options = call, outputs, options
        call.granule = outputs.granule
        self._function = function or identity(call.f, call.keywords)
        self._is_users = not function
        self._is_always = always
        self._peak = 0
        self.saved: float | None = None  # Seconds against one core; None: it wasn't divided
        self._returned: tuple[Layout, ...] = ()  # By the function, for the first unit
        self._split = tuple(_layout(x) for x in call.split)
        self._whole = tuple(_layout(w, is_whole=True) for w in call.whole)
        self._key = (
            self._function, self._split, self._whole, call.positions, call.axis, call.overlap,
            call.mode, str(call.dtype), call.reduction is None, call.granule,
        )  # fmt: skip

    def run(self) -> None:
        """Compute all units: some in this thread, to see what they are, or all if they are few.

        Functions with the same code may return other things, as closures do: then again, without
        what is remembered.
        """
        try:
            with contextlib.suppress(Outdated):
                self._compute()
                return
            with _kinds_lock:
                _kinds.pop(self._key)
            self._call.forget()
            self._outputs.discard()
            self._compute()
        finally:
            self._call.failure = None  # its traceback refers to the call, and so to the arrays

    def _compute(self) -> None:
        call = self._call
        if not call.load:
            call.overlap = 0
            self._compute_first(0, 0)
        for first, end in self._outputs.missing():
            self._compute_range(first, end)

    def _compute_range(self, done: int, end: int) -> None:
        """Compute units from `done` on."""
        call = self._call
        with _kinds_lock:
            kind = _kinds.get(self._key)
        if kind is None:
            call.race = Race(1 + len(call.alternatives)) if call.alternatives else None
            done, per_unit = self._begin(done, end)
            kind = _Kind(self._returned, call.is_tuple, race=call.race, is_portable=asked.is_true)
            kind.alone.append(per_unit)
            kind.peak = self._peak
            with _kinds_lock:
                _kinds.put(self._key, kind)
        else:
            call.is_tuple, call.race = kind.is_tuple, kind.race
            call.remembered = kind.outputs
            try:
                self._outputs.allocate(kind.outputs)
            except DataError:  # of what is remembered, perhaps not of what comes
                raise Outdated from None
        if self._is_users or not self._is_always:
            done = self._compute_meanwhile(kind, done, end)
        rest = end - done
        if not rest:
            return
        kind.calls += 1
        call.twins = self._twins(kind)
        if self._is_users and not call.twins and kind.may_hold_lock(rest):
            done = self._measure_lock(kind, done, end)
            rest = end - done
        begun = time.perf_counter()
        if not self._is_always and kind.is_faster_alone(rest, session.overhead):
            call.compute_here(done, end)
            kind.alone.append((time.perf_counter() - begun) / rest)
        else:
            local = session.local()  # its start isn't part of what a call costs
            begun = time.perf_counter()
            with session.busy():
                for start, stop in self._segments(kind, done, end):
                    self._compute_on_devices(kind, start, stop, local)
            seconds = time.perf_counter() - begun
            kind.divided.append(seconds / rest)
            if units := sum(chunk for chunk, _ in call.busy):
                kind.alone.append(sum(busy for _, busy in call.busy) / units)
            # Against one thread.
            self.saved = (self.saved or 0.0) + min(kind.alone) * rest - seconds

    def _segments(self, kind: _Kind, done: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield ranges for a job each: what threads don't compute is noted after its job."""
        call, step = self._call, end - done
        progress = call.progress
        if progress is not None and (call.twins or kind.holds_lock):
            pieces = int(SEGMENT_SECONDS / max(min([*kind.alone, *kind.divided]), 1e-9))
            step = max(1, pieces // call.granule) * call.granule
        for start in range(done, end, step):
            stop = min(end, start + step)
            yield start, stop
            if progress is not None:
                progress.add(start, stop)

    def _measure_lock(self, kind: _Kind, done: int, end: int) -> int:
        """See whether two threads compute faster than one; return how many units are done."""
        call = self._call
        units, seconds = call.granule, 0.0
        # The first unit alone says little: most of its time may have been the call itself.
        while seconds < LOCK_SECONDS:
            growth = min(max(2.0, LOCK_SECONDS / max(seconds, 1e-6)), MAX_GROWTH) if seconds else 1
            units = math.ceil(units / call.granule * growth) * call.granule
            if done + (1 + 3 * LOCK_ROUNDS) * units >= end:
                return done
            begun = time.perf_counter()
            call.compute_here(done, done + units)
            seconds = time.perf_counter() - begun
            kind.alone.append(seconds / units)
            done += units
        if not kind.may_hold_lock(end - done):
            return done
        best = {1: math.inf, 2: math.inf}
        for threads in (1, 2) * LOCK_ROUNDS:
            begun = time.perf_counter()
            self._compute_in_threads(done, units, threads)
            best[threads] = min(best[threads], time.perf_counter() - begun)
            done += threads * units
        kind.alone.append(best[1] / units)
        kind.holds_lock = best[2] > LOCKED * best[1]
        if kind.holds_lock and (reason := reason_against(call)):
            kind.stay(call, reason)
        return done

    def _compute_in_threads(self, done: int, units: int, count: int) -> None:
        """Compute `units` in this thread, and as many in each of the others of `count`."""
        call = self._call

        def compute(start: int) -> None:
            with contextlib.suppress(BaseException):  # the call knows its failure
                call.compute_here(start, start + units)

        others = [
            threading.Thread(target=compute, args=(done + number * units,), daemon=True)
            for number in range(1, count)
        ]
        try:
            for thread in others:
                thread.start()
            compute(done)
            for thread in others:
                thread.join()
        except BaseException:  # such as Ctrl-C
            call.is_cancelled = True
            raise
        call.raise_failure()

    def _twins(self, kind: _Kind) -> dict[str, Callable[..., Any]]:
        """Return what computes the function on GPUs: nothing for stored arrays and reductions."""
        call = self._call
        if not call.is_in_memory or call.reduction is not None:
            return {}
        twins = twins_of(call.f)
        if kind.is_portable:
            twins.setdefault("cuda", call.f)
        if call.overlap:
            twins.pop("opencl", None)
        return twins

    def _compute_meanwhile(self, kind: _Kind, done: int, end: int) -> int:
        """Compute units here while the devices work for another call; return how many are done.

        That call may wait for this one: its function may call `map` itself, in any thread.
        """
        call = self._call
        while done < end and session.is_busy():
            units = int(MEANWHILE_SECONDS / max(min(kind.alone), 1e-9))
            stop = min(end, done + max(1, units // call.granule) * call.granule)
            call.compute_here(done, stop)
            done = stop
        return done

    def _begin(self, first: int, end: int) -> tuple[int, float]:
        """Compute first units here, twice as many each time, until that takes as long as a job.

        Return the next unit, and the seconds of one by the last of these calls.
        """
        call = self._call
        start = time.perf_counter()
        count = min(call.granule, end - first)
        with Peak(sum(x.nbytes for x in call.split) // call.load) as peak:
            self._compute_first(first, first + count)
        self._peak = peak.nbytes // count
        seconds, done = (time.perf_counter() - start) / count, first + count
        enough = start + (0.0 if self._is_always else session.overhead)
        while done < end and time.perf_counter() < enough:
            count = min(done - first, end - done)
            start = time.perf_counter()
            call.compute_here(done, done + count)
            seconds = (time.perf_counter() - start) / count
            done += count
        return done, seconds

    def _compute_first(self, first: int, end: int) -> None:
        """Compute some units, which show what the results look like."""
        call, asked.is_true = self._call, False
        try:
            blocks = [x[first:end] for x in call.split]
            returned = call.apply(blocks, call.whole, first, None)
            if call.reduction is not None:
                call.reduction.add(first, end, returned)
                return
            values = call.results(returned, end - first)
            call.is_tuple = isinstance(returned, tuple)
            self._returned = call.layouts(values)
            self._outputs.allocate(self._returned)
            if end > first:
                call.write(values, [y[first:end] for y in call.outputs])
                if call.progress is not None:
                    call.progress.add(first, end)
        except Outdated:
            raise
        except BaseException as error:
            call.fail(error, first, end)
            raise

    def _compute_on_devices(self, kind: _Kind, done: int, end: int, local: Local) -> None:
        call = self._call
        call.offset = done
        arrays: dict[str, np.ndarray] = {}
        out: dict[str, np.ndarray] = {}
        function, load = self._function, end - done
        if call.is_in_memory:
            arrays |= {f"x{i}": x[done:end] for i, x in enumerate(call.split)}
            arrays |= {f"w{i}": w for i, w in enumerate(call.whole)}
            out |= {f"y{i}": y[done:end] for i, y in enumerate(call.outputs)}
        else:  # the engine sees numbers of granules only
            load = -(-load // call.granule)
            layouts = (f"{a.shape[1:]} {a.dtype}" for a in (*call.split, *call.outputs))
            function = " ".join([function, "stored", str(call.granule), *layouts])
        params = FunctionParams(
            load=load,
            function=function,
            split=self._split if arrays else (),
            whole=self._whole if arrays else (),
            outputs=tuple(_layouts(call.outputs)) if out else (),
            work=1 << (kind.peak - 1).bit_length() if kind.peak else 0,
        )
        if kind.peak:
            self._fit_memory(kind.peak, local)
        can_leave = kind.holds_lock and not kind.stays
        if can_leave and self._has_computed_in_processes(kind, done, end, local, params, out):
            return
        with Registered(call) as number:
            arrays[CALL] = np.array([number])
            begun = time.perf_counter()
            seconds = self._run_job(local, reference(call.twins), arrays, out, params)
            whole = time.perf_counter() - begun
        call.raise_failure()
        if seconds is not None:
            session.note_overhead(whole - seconds)
        if call.reduction is not None and call.reduction.known < call.load:
            raise InternalError(f"units from {call.reduction.known} on weren't reduced")

    def _fit_memory(self, peak: int, local: Local) -> None:
        """State the memory that the call takes, and leave cores out for which there is none."""
        name, free = function_name(self._call.f), free_memory()
        text = f"takes {format_bytes(peak)} a unit; {format_bytes(int(free))} are free"
        infos = local.devices()[0]
        cores = [info.name for info in infos if info.is_plain_core]
        fitting = cores_with_memory(cores, peak, free)
        if len(fitting) < len(cores) and not self._options.get("devices"):
            others = [info.name for info in infos if info.link]
            self._options = {**self._options, "devices": [*fitting, *others]}
            text += f": without {', '.join(cores[len(fitting) :])}"
        calls.remark(name, [text])

    def _has_computed_in_processes(
        self,
        kind: _Kind,
        done: int,
        end: int,
        local: Local,
        common: FunctionParams,
        out: dict[str, np.ndarray],
    ) -> bool:
        """Return whether processes have computed the units from `done` on; else threads must.

        Raises what the function raises, by computing the same block here.
        """
        call = self._call
        params, arrays = process_job(call, common, done, end)
        failure: HetschedError | None = None
        try:
            self._run_job(local, PROCESS, arrays, out, params)
        except HetschedError as error:
            failure = error
        try:
            if failure is None:
                return True
            call.is_cancelled = False
            if (units := failed_units(failure)) is not None:
                call.compute_here(*units)
            if isinstance(failure, JobFailed):  # such as the end of a process: not of this one
                failure.add_note(f"hetsched: {function_name(call.f)}, in processes of its own")
                raise failure
            kind.stay(call, str(failure))
            return False
        finally:
            del failure  # its traceback refers to this frame

    def _run_job(
        self,
        local: Local,
        workload: str,
        arrays: dict[str, Any],
        out: dict[str, Any],
        params: FunctionParams,
    ) -> float | None:
        """Run the call's job; return the seconds of its computation, None if the function raised.

        When this returns or raises, no device works on the caller's arrays any more.
        """
        call = self._call
        job: Job | None = None
        try:
            options = {**self._options, **msgspec.to_builtins(params)}
            try:
                job = local.submit(workload, arrays, out=out or None, **options)
                job.result()
            except UsageError as error:
                raise UsageError(str(error).replace("memory_limit", "memory")) from None
            report = job.report
            if report is None:
                return None
            missing = [note for note in report.notes if WITHOUT.search(note)]
            if missing:
                calls.remark(function_name(call.f), missing)
            return report.seconds
        except BaseException as error:
            call.is_cancelled = True
            if not isinstance(error, HetschedError | CancelledError):  # such as Ctrl-C
                if job is not None:
                    job.cancel()
                    with contextlib.suppress(HetschedError, CancelledError):
                        job.result()
                raise
            if call.failure is None:
                raise
            return None
        finally:
            del job  # its error refers to this frame, which must not keep arrays alive


def _layout(array: np.ndarray, *, is_whole: bool = False) -> Layout:
    return Layout(array.shape if is_whole else array.shape[1:], array.dtype.name)


def _layouts(arrays: Iterable[np.ndarray]) -> Iterable[Layout]:
    return [_layout(each) for each in arrays]
