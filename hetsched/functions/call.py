"""One call of `map` or `reduce`: its arrays, and how the function is applied to a range of units.

All arrays here have the axis of units first.
"""

from __future__ import annotations

import contextlib
import contextvars
import inspect
import math
import statistics
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from hetsched.dtypes import NUMERIC
from hetsched.errors import DataError
from hetsched.functions.function import function_name
from hetsched.functions.workload import Layout
from hetsched.store.stored import Place, Stored, drop_pages, is_mapped
from hetsched.units import counted

if TYPE_CHECKING:
    from hetsched.functions.outputs import Progress

PIECE_BYTES = 1 << 21
"""About so many bytes of all arrays a function gets and returns at once. With half as many,
Python's share is a tenth of a simple function; with more, temporary arrays leave the caches."""
LANES = 16
"""Units that libraries compute at once, in one vector register: 31 rows by ducc0 take a third
longer than 32."""

TRIED, REMEMBERED = 3, 5
"""Times that each way of a race is tried first; whose median is its time: one that was disturbed
must not count."""
RETRY_BLOCKS = 400
"""The slower function computes one in so many blocks: what is faster may change."""

HANDING = 1e-4
"""Seconds that another thread takes to begin: what takes less stays in the caller's."""
LEAST = 3e-4
"""Seconds of the smallest part: Python's share of each is a tenth of that."""
AWAKE_SECONDS = 0.5
"""Between two looks for signals: one that comes just before a thread begins to sleep is lost."""
GRACE = 1.0
"""Seconds for other threads to end what they are at after an interruption."""


class Cancelled(Exception):
    """The caller has given up."""


class Outdated(Exception):
    """The function returns other shapes or dtypes than in an earlier call of the same kind."""


@dataclass
class Reduction:
    """The partial results of a reduction, in the order of their units."""

    combine: Callable[[Any, Any], Any]
    on_partial: Callable[[Any], object] | None = None
    known: int = 0
    """Units from the first on of which `value` is the result."""
    value: Any = None
    _parts: dict[int, tuple[int, Any]] = field(default_factory=dict)
    """First unit -> the next one after it, and the result of those between."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, first: int, end: int, value: Any) -> None:
        with self._lock:
            self._parts[first] = (end, value)
            while self.known in self._parts:
                begun = self.known > 0
                self.known, part = self._parts.pop(self.known)
                self.value = self.combine(self.value, part) if begun else part
            if self.on_partial is not None and self.known >= end:
                self.on_partial(self.value)


class Race:
    """Between a function and another way to compute the same: blocks, or calls, show which is
    faster. Any thread may use it.

    `retry`: the slower way is taken once in so many. `warm_ups`: times of the function's own that
    don't count.
    """

    def __init__(self, retry: int = RETRY_BLOCKS, warm_ups: int = 0) -> None:
        self.is_over = False
        """The other one has failed."""
        self._seconds = {is_other: deque[float](maxlen=REMEMBERED) for is_other in (False, True)}
        self._retry, self._warm_ups = retry, warm_ups
        self._count = 0

    def note(self, is_other: bool, seconds: float) -> None:
        """Note what a block took, per unit, or a call."""
        if is_other or not self._warm_ups:
            self._seconds[is_other].append(seconds)
        else:
            self._warm_ups -= 1

    def is_others_turn(self) -> bool:
        if self.is_over:
            return False
        for is_other, seconds in self._seconds.items():
            if len(seconds) < TRIED:
                return is_other
        self._count += 1
        own, other = map(statistics.median, self._seconds.values())
        return (other < own) != (self._count % self._retry == 0)


@dataclass(eq=False)
class Call:
    f: Callable[..., Any]
    keywords: dict[str, Any]
    positions: tuple[tuple[bool, int], ...]
    """Of each argument: whether it is split, and its index among the split or whole arrays."""
    split: list[Any]
    """Of np.ndarray or `Stored`."""
    whole: list[np.ndarray]
    axis: int
    overlap: int = 0
    mode: str = "reflect"
    dtype: np.dtype[Any] | None = None
    casting: Any = "safe"
    """Which results go into the outputs, as for `numpy.can_cast`."""
    reduction: Reduction | None = None
    progress: Progress | None = None
    """What is noted for a later call, should this one be interrupted; None: nothing."""
    outputs: list[Any] = field(default_factory=list)
    """Of np.ndarray or `Target`."""
    granule: int = 1
    """Units of which none is computed without the others: chunks of stores."""
    is_tuple: bool = False
    """The function returns several arrays."""
    remembered: tuple[Layout, ...] | None = None
    """What the function has returned in an earlier call; None: the first unit has shown it."""
    offset: int = 0
    """The first unit of the engine's job; those before are done."""
    context: contextvars.Context = field(default_factory=contextvars.copy_context)
    """Of the caller, for other threads: NumPy's treatment of floating-point errors is in there."""
    twins: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    """Kind of GPU -> what computes the function there."""
    alternative: Callable[[np.ndarray, np.ndarray], object] | None = None
    """(block, out): another way to compute the same, of one array and one result."""
    race: Race | None = None
    """Between the function and this."""
    busy: list[tuple[int, float]] = field(default_factory=list)
    """Units and processor time of each chunk on the cores, seconds."""
    failure: BaseException | None = None
    is_cancelled: bool = False

    @property
    def load(self) -> int:
        return int(self.split[0].shape[0])

    @property
    def is_in_memory(self) -> bool:
        """Whether devices with memory of their own can have its arrays."""
        return not any(isinstance(each, Stored) for each in (*self.split, *self.outputs))

    def in_context(self, f: Callable[..., Any], *arguments: Any) -> Any:
        return self.context.copy().run(f, *arguments)

    def compute_chunk(
        self,
        split: Sequence[np.ndarray],
        whole: Sequence[np.ndarray],
        outputs: Sequence[np.ndarray],
        first: int,
        count: int,
    ) -> None:
        """Compute a chunk of the engine's job, in the arrays of a device. If the call's own aren't
        in memory, the job's units are granules.
        """
        begun = time.thread_time()
        if self.is_in_memory:
            self.compute(split, whole, outputs, self.offset + first, count)
        else:
            start = self.offset + first * self.granule
            self.compute_here(start, min(start + count * self.granule, self.load))
        units = count if self.is_in_memory else count * self.granule
        self.busy.append((units, time.thread_time() - begun))

    def compute(
        self,
        split: Sequence[Any],
        whole: Sequence[np.ndarray],
        outputs: Sequence[Any],
        start: int,
        count: int,
        base: int = 0,
    ) -> None:
        """Compute `count` units from unit `start` on, at `base` in `split`, at 0 in `outputs`."""
        arrays = [*self.split, *self.outputs]
        mapped = [array for array in arrays if is_mapped(array)]
        unit_bytes = int(sum(a.nbytes // max(1, a.shape[0]) for a in arrays))
        step = 1 << round(math.log2(max(1, PIECE_BYTES / max(1, unit_bytes))))
        step = max(1, max(step, 4 * self.overlap) // self.granule) * self.granule
        partial: Any = None
        for low in range(0, count, step):
            if self.is_cancelled or self.failure is not None:
                raise Cancelled
            high = min(count, low + step)
            unit = start + low
            try:
                blocks = [x[base + low : base + high] for x in split]
                places = [y[low:high] for y in outputs]
                if self.race is not None and isinstance(places[0], np.ndarray):
                    values = self._compete(self.race, blocks, whole, unit, places)
                else:
                    values = self.apply(blocks, whole, unit, places)
                for array in mapped:
                    drop_pages(array[unit : start + high])
                if self.progress is not None and self._are_own(places):
                    self.progress.add(unit, start + high)
                if self.reduction is not None:
                    partial = values if not low else self.reduction.combine(partial, values)
                    if high == count:
                        self.reduction.add(start, start + count, partial)
            except BaseException as error:
                self.fail(error, unit, start + high)
                raise

    def _are_own(self, places: Sequence[Any]) -> bool:
        """Whether these are parts of the outputs: an engine may copy its results there later."""
        return not any(
            isinstance(own, np.ndarray) and not np.may_share_memory(place, own)
            for place, own in zip(places, self.outputs, strict=True)
        )

    def _compete(
        self,
        race: Race,
        blocks: Sequence[np.ndarray],
        whole: Sequence[np.ndarray],
        unit: int,
        places: Sequence[np.ndarray],
    ) -> Any:
        is_other, begun = race.is_others_turn(), time.thread_time()
        if is_other:
            assert self.alternative is not None
            block, out = (_transposed(array, 0, self.axis) for array in (blocks[0], places[0]))
            try:
                self.alternative(_read_only(block), out)
            except Exception:  # the function says what is wrong, if anything is
                race.is_over, is_other = True, False
        values = None if is_other else self.apply(blocks, whole, unit, places)
        race.note(is_other, (time.thread_time() - begun) / blocks[0].shape[0])
        return values

    def compute_by_twin(
        self,
        kind: str,
        split: Sequence[Any],
        whole: Sequence[Any],
        outputs: Sequence[Any],
        first: int,
        xp: Any,
    ) -> None:
        """Compute a chunk of the engine's job in the memory of a GPU; `xp`: CuPy, or None. What it
        raises isn't the call's failure: other devices compute the chunk then.
        """
        if self.is_cancelled or self.failure is not None:
            raise Cancelled
        units = outputs[0].shape[0]
        if self.overlap:
            start = self.offset + first
            halos = [self.with_overlap(x, start, start + units) for x in self.split]
            split = [xp.asarray(halo) for halo in halos]
        moved = [_transposed(block, 0, self.axis) for block in split]
        resident = [copy if w.ndim else w[()] for w, copy in zip(self.whole, whole, strict=True)]
        arguments = [moved[i] if is_split else resident[i] for is_split, i in self.positions]
        returned = self.twins[kind](*arguments, **self.keywords)
        values = returned if isinstance(returned, tuple) else (returned,)
        if len(values) != len(outputs):
            raise ValueError(f"it returned {len(values)} arrays, on a core {len(outputs)}")
        for value, output in zip(values, outputs, strict=True):
            part = _transposed(value, self.axis, 0)
            if self.overlap:
                part = part[self.overlap : self.overlap + units]
            casting: Any = "same_kind" if self.dtype is None else "unsafe"
            if part.shape != output.shape or not np.can_cast(part.dtype, output.dtype, casting):
                raise ValueError(
                    f"it returned {part.dtype} {self._shape(part.shape)} for {output.dtype}"
                    f" {self._shape(output.shape)}"
                )
            output[...] = part if part.dtype == output.dtype else part.astype(output.dtype)

    def compute_here(self, first: int, end: int) -> None:
        outputs = [y[first:end] for y in self.outputs]
        self.compute(self.split, self.whole, outputs, first, end - first, first)

    def fail(self, error: BaseException, first: int, end: int) -> None:
        """Note why the call fails: the first error counts."""
        if self.failure is None and not isinstance(error, Cancelled):
            where = f"unit {first}" if end == first + 1 else f"units {first} to {end - 1}"
            with contextlib.suppress(Exception):  # of a class that takes no notes
                error.add_note(f"hetsched: {function_name(self.f)}, {where} of axis {self.axis}")
            self.failure = error

    def raise_failure(self) -> None:
        """Raise why the call has failed, if it has, as the function has raised it."""
        failure, self.failure = self.failure, None
        try:
            if failure is not None:
                raise failure
        finally:
            del failure  # its traceback refers to this frame, which must not keep arrays alive

    def forget(self) -> None:
        """Begin again after a failure, without what earlier calls have shown."""
        self.failure, self.is_cancelled, self.remembered = None, False, None
        self.outputs, self.offset = [], 0
        self.busy.clear()

    def apply(
        self,
        blocks: Sequence[np.ndarray],
        whole: Sequence[np.ndarray],
        first: int,
        outputs: Sequence[np.ndarray | Place] | None,
    ) -> Any:
        """Call the function on a block, and write its results to `outputs`, if there are any."""
        units = blocks[0].shape[0]
        only = (
            outputs[0] if outputs and isinstance(self.f, np.ufunc) and self.f.nout == 1 else None
        )
        if isinstance(only, np.ndarray) and not self.overlap:
            target = _transposed(only, 0, self.axis)
            arguments = self._arguments(blocks, whole, first)
            return self.f(*arguments, **{"out": target, "casting": self.casting, **self.keywords})
        returned = self.f(*self._arguments(blocks, whole, first), **self.keywords)
        if outputs is not None and self.reduction is None:
            values = self.results(returned, units)
            if self.remembered is not None and (
                isinstance(returned, tuple) != self.is_tuple
                or not self._have_layouts(values, self.remembered)
            ):
                raise Outdated
            if self.is_cancelled:  # while this thread was in the function
                raise Cancelled
            self.write(values, outputs)
        return returned

    def _arguments(
        self, blocks: Sequence[np.ndarray], whole: Sequence[np.ndarray], first: int
    ) -> list[np.ndarray]:
        if self.overlap:
            end = first + blocks[0].shape[0]
            blocks = [self.with_overlap(x, first, end) for x in self.split]
        moved = [_read_only(_transposed(block, 0, self.axis)) for block in blocks]
        return [moved[i] if is_split else _read_only(whole[i]) for is_split, i in self.positions]

    def write(self, values: Sequence[np.ndarray], outputs: Sequence[np.ndarray | Place]) -> None:
        if len(values) != len(outputs):
            raise DataError(
                f"{function_name(self.f)} returned {len(values)} arrays, for other units"
                f" {len(outputs)}"
            )
        for value, output in zip(values, outputs, strict=True):
            if value.shape != output.shape:
                raise DataError(
                    f"{function_name(self.f)} returned an array of shape"
                    f" {self._shape(value.shape)}, for other units one of"
                    f" {self._shape(output.shape)}"
                )
            if isinstance(output, Place):
                output.write(value)
                continue
            if value.dtype != output.dtype and not np.can_cast(
                value.dtype, output.dtype, self.casting
            ):
                raise DataError(
                    f"{function_name(self.f)} returned {value.dtype}, for other units"
                    f" {output.dtype}: give dtype"
                )
            np.copyto(output, value, casting=self.casting)

    def results(self, returned: Any, units: int) -> list[np.ndarray]:
        values = list(returned) if isinstance(returned, tuple) else [returned]
        if not values:
            raise DataError(f"{function_name(self.f)} returned an empty tuple, no arrays")
        return [self._result(value, units) for value in values]

    def layouts(self, values: Sequence[np.ndarray]) -> tuple[Layout, ...]:
        return tuple(
            Layout(v.shape[1:], str(v.dtype if self.dtype is None else self.dtype)) for v in values
        )

    def _have_layouts(self, values: Sequence[np.ndarray], layouts: Sequence[Layout]) -> bool:
        return len(values) == len(layouts) and all(
            value.shape[1:] == layout.shape
            and (self.dtype is not None or value.dtype == layout.dtype)
            for value, layout in zip(values, layouts, strict=True)
        )

    def _result(self, value: Any, units: int) -> np.ndarray:
        name = function_name(self.f)
        if inspect.iscoroutine(value):
            value.close()  # or Python warns that it is never awaited
        if isinstance(value, np.ma.MaskedArray):
            raise DataError(f"{name} returned a masked array; use its method filled")
        try:
            array = np.asarray(value)
        except ValueError:  # as of lists of several lengths
            array = np.array(None)
        if array.dtype.kind not in NUMERIC:
            what = f"dtype {array.dtype}" if array is value else type(value).__name__
            raise DataError(f"{name} returned {what}; it must return an array of numbers")
        got = units + 2 * self.overlap
        if array.ndim <= self.axis or array.shape[self.axis] != got:
            raise DataError(
                f"{name} returned an array of shape {array.shape} for a block with"
                f" {counted(got, 'unit')}: axis {self.axis} must have as many; use hetsched.reduce"
                " for a result of all"
            )
        moved: np.ndarray = _transposed(array, self.axis, 0)
        return moved[self.overlap : self.overlap + units]

    def with_overlap(self, x: Any, first: int, end: int) -> np.ndarray:
        """Return units `first` to `end` with `overlap` more on either side, also past the ends."""
        low, high, load = first - self.overlap, end + self.overlap, x.shape[0]
        if low >= 0 and high <= load:
            inner: np.ndarray = x[low:high]
            return inner
        wanted = np.arange(low, high)
        block: np.ndarray = x[_index_within(wanted, load, self.mode)]
        if self.mode == "constant":
            block[(wanted < 0) | (wanted >= load)] = 0
        return block

    def _shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        first, *rest = shape
        return (*rest[: self.axis], first, *rest[self.axis :])


def _transposed(array: Any, source: int, target: int) -> Any:
    """Return an array of any library with an axis moved. Faster than NumPy's moveaxis."""
    if source == target:
        return array
    order = [axis for axis in range(array.ndim) if axis != source]
    order.insert(target, source)
    return array.transpose(tuple(order))


def _read_only(array: np.ndarray) -> np.ndarray:
    view = array.view()
    view.flags.writeable = False
    return view


def _index_within(wanted: np.ndarray, load: int, mode: str) -> np.ndarray:
    """Return for each unit, perhaps beyond the ends, the one that stands for it."""
    if mode in ("nearest", "constant"):
        wanted = np.clip(wanted, 0, load - 1)
    period = 2 * load if mode == "reflect" else max(1, 2 * load - 2)
    index: np.ndarray = np.remainder(wanted, period if mode in ("reflect", "mirror") else load)
    if mode in ("reflect", "mirror"):
        index = np.minimum(index, period - index - (mode == "reflect"))
    return index


# ---- short calls: each thread takes the next units when it is free, without a plan or the engine


def compute_in_threads(call: Call, first: int, end: int, seconds: float, cores: int) -> None:
    """Compute units in this thread and in others; `seconds`: about those of a unit. Parts become
    smaller towards the end, so that all end at once.
    """
    # The threads begin one after the other, so more of them soon cost more than they gain.
    wanted = math.isqrt(int(seconds * (end - first) / max(HANDING, 1e-9)))
    count = min(cores, end - first, max(2, wanted))
    least = max(1, int(LEAST / max(seconds, 1e-9)))
    taken, lock = first, threading.Lock()

    def take() -> tuple[int, int]:
        nonlocal taken
        with lock:
            begin = taken
            part = (end - begin) // (2 * count)
            part += -part % LANES if part > LANES else 0
            taken = min(end, begin + max(least, part))
            return begin, taken

    def work() -> None:
        while True:
            begin, stop = take()
            if begin == stop:
                return
            start = time.thread_time()
            call.compute_here(begin, stop)
            call.busy.append((stop - begin, time.thread_time() - start))

    together(call, [work] * count)


def together(call: Call, works: Sequence[Callable[[], object]]) -> None:
    """Do the last of `works` here and each other one in a thread. Raises the function's error."""
    left, ended, begun = list(works), threading.Semaphore(0), 0

    def help_out(work: Callable[[], object]) -> None:
        try:
            with contextlib.suppress(BaseException):  # the call knows its failure
                work()
        finally:
            ended.release()

    # Not those of a pool, for which the end of the interpreter waits whatever they do; not joined:
    # a thread counts as ended where Ctrl-C interrupts `join`.
    try:
        with contextlib.suppress(RuntimeError):  # no more threads at exit, or by a limit
            while len(left) > 1:
                arguments = (help_out, left[0])
                threading.Thread(target=call.in_context, args=arguments, daemon=True).start()
                begun += 1
                del left[0]
        with contextlib.suppress(Exception):
            for work in left:
                work()
        while begun:
            begun -= ended.acquire(timeout=AWAKE_SECONDS)
    except BaseException:  # such as Ctrl-C
        call.is_cancelled = True
        deadline = time.monotonic() + GRACE
        while begun and ended.acquire(timeout=max(0.0, deadline - time.monotonic())):
            begun -= 1
        raise
    call.raise_failure()
