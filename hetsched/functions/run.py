"""One call from its first unit to its results: in this thread, on the devices, in processes."""

from __future__ import annotations

import contextlib
import os
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from hetsched.errors import DataError, HetschedError, InternalError, JobFailed, UsageError
from hetsched.functions import processes, workload
from hetsched.functions.call import HANDING, Call, Outdated, Race, compute_in_threads
from hetsched.functions.function import asked, function_name, identity, twins_of
from hetsched.functions.outputs import Outputs
from hetsched.functions.session import SMALL, SPLIT, calls, session
from hetsched.functions.workload import FunctionParams
from hetsched.machine_limits import free_memory
from hetsched.units import format_bytes

if TYPE_CHECKING:
    from hetsched.client.job import Job

MAX_KINDS = 1000
"""Kinds of calls whose results' layout and speed are remembered; with more, all are forgotten."""
REMEMBERED = 5
"""Last calls whose times count."""
MIN_DIVIDED = 3
"""Calls that are divided before that is known to be slower: the first ones still learn."""
RETRY_CALLS = 16
"""One in so many calls is divided although it was slower so."""
MEANWHILE_SECONDS = 0.01
"""Between two looks whether the devices are free."""
SEGMENT_SECONDS, SEGMENT_RATE = 1.0, 50e6
"""Of a job after which its units are noted as complete: this may be lost by an interruption. It
takes a second longer for so many bytes that are copied for each job: they cost about 2 %."""
MIN_WATCHED, WATCH_SECONDS = 16 << 20, 1e-3
"""Bytes of a unit's arrays from which its memory is measured, and the time between two looks: who
allocates so much takes longer."""
WITHOUT = re.compile("^without |takes no part")
"""What notes of a job say about devices that were left out."""


def run_call(
    call: Call,
    out: Any = None,
    shape: Sequence[int] | None = None,
    memory: int | str | None = None,
    devices: str | Sequence[str] = (),
    identity: str = "",
) -> Any:
    """Compute what `make_call` returned, as `map` and `reduce` do, and count it."""
    outputs = Outputs(call, out, shape, identity)
    begun = time.perf_counter()
    try:
        run = Run(call, outputs, memory_limit=memory, devices=devices)
        run.run()
        what = SMALL if run.saved is None else SPLIT
        seconds = time.perf_counter() - begun
        calls.note(function_name(call.f), what, seconds, run.saved or 0.0)
        if call.reduction is not None:
            return call.reduction.value
        results = outputs.results()
        return results if call.is_tuple else results[0]
    finally:
        outputs.close()


def divided(
    f: Callable[[np.ndarray], np.ndarray],
    x: np.ndarray,
    *,
    axis: int,
    identity: str,
    always: bool,
    alternative: Callable[[np.ndarray, np.ndarray], object] | None = None,
) -> tuple[np.ndarray, float | None]:
    """Return `map` of an array with units, and the seconds saved, None: by this thread alone.

    `identity` names the function; `always`: divided also where it doesn't pay.
    """
    call = Call(f, {}, ((True, 0),), [np.moveaxis(x, axis, 0)], [], axis)
    call.alternative = alternative
    run = Run(call, Outputs(call), identity, always)
    run.run()
    return np.moveaxis(call.outputs[0], 0, axis), run.saved


@dataclass
class Kind:
    """What earlier calls of the same kind have shown. Times are seconds per unit."""

    outputs: tuple[workload.Layout, ...]
    is_tuple: bool
    race: Race | None
    is_portable: bool
    """The function asks `namespace` for its library."""
    peak: int
    """Bytes that a unit takes, its result included; 0: few."""
    alone: deque[float] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    """In the caller's thread."""
    divided: deque[float] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    """From the caller's view, on the devices."""
    calls: int = 0
    holds_lock: bool | None = None
    """The function holds the interpreter's lock: two threads are no faster. None: unknown."""
    stays: bool = False
    """The function can't be called in other processes."""

    def stay(self, call: Call, reason: str) -> None:
        self.stays = True
        text = f"holds the interpreter's lock, and no other processes call it: {reason}"
        calls.remark(function_name(call.f), [text])

    def may_hold_lock(self, units: int) -> bool:
        if self.calls % RETRY_CALLS == 0:
            self.holds_lock = None
        is_long = min(self.alone) * units > processes.MIN_SECONDS
        return self.holds_lock is None and is_long and len(os.sched_getaffinity(0)) > 1

    def is_faster_alone(self, units: int, overhead: float) -> bool:
        alone = min(self.alone)  # disturbances only make times longer
        if alone * units <= overhead:
            return True
        if self.holds_lock and (self.stays or alone * units < processes.MIN_SECONDS):
            return True
        is_tried = len(self.divided) < MIN_DIVIDED or self.calls % RETRY_CALLS == 0
        return not is_tried and alone <= min(self.divided)


_kinds: dict[tuple[Any, ...], Kind] = {}


class Run:
    def __init__(
        self,
        call: Call,
        outputs: Outputs,
        function: str = "",
        always: bool = False,
        **options: Any,
    ) -> None:
        """`function`: identity of one of this package; "": it is the user's. With `always`, or
        with `options` of jobs, calls are divided that needn't be.
        """
        self._call, self._outputs, self._options = call, outputs, options
        call.granule = outputs.granule
        self._function = function or identity(call.f, call.keywords)
        self._is_users = not function
        self._is_always = always or any(options.values())
        self.saved: float | None = None  # Seconds against one core; None: it wasn't divided
        self._split = tuple(workload.unit_layout(x) for x in call.split)
        self._whole = tuple(workload.Layout(w.shape, w.dtype.name) for w in call.whole)
        self._key = (
            self._function, self._split, self._whole, call.positions, call.axis, call.overlap,
            call.mode, str(call.dtype), call.reduction is None, call.granule,
        )  # fmt: skip

    def run(self) -> None:
        """Compute all units. Functions with the same code may return other things, as closures do:
        then again, without what is remembered.
        """
        try:
            with contextlib.suppress(Outdated):
                self._compute()
                return
            _kinds.pop(self._key, None)
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
        call = self._call
        kind = _kinds.get(self._key)
        if kind is None:
            kind, done = self._begin(done, end)
            if len(_kinds) >= MAX_KINDS:
                _kinds.clear()
            _kinds[self._key] = kind
        else:
            call.is_tuple = kind.is_tuple
            call.race = kind.race if call.alternative else None  # as remembered of other calls
            call.remembered = kind.outputs
            try:
                self._outputs.allocate(kind.outputs)
            except DataError:  # of what is remembered, perhaps not of what comes
                raise Outdated from None
        if self._is_users or not self._is_always:
            done = self._compute_meanwhile(kind, done, end)
        if done == end:
            return
        kind.calls += 1
        call.twins = self._twins(kind)
        if self._is_users and not call.twins and kind.may_hold_lock(end - done):
            done, seen, kind.holds_lock = processes.measure_lock(call, done, end)
            kind.alone.extend(seen)
            if kind.holds_lock and (reason := processes.reason_against(call)):
                kind.stay(call, reason)
        rest, begun = end - done, time.perf_counter()
        is_short = self._is_short(kind, rest)
        overhead = HANDING if is_short else session.overhead
        if not self._is_always and kind.is_faster_alone(rest, overhead):
            call.compute_here(done, end)
            kind.alone.append((time.perf_counter() - begun) / rest)
            return
        if is_short:
            with session.busy():
                compute_in_threads(call, done, end, min(kind.alone), session.cores)
        else:
            session.local()  # its start isn't part of what a call costs
            begun = time.perf_counter()
            with session.busy():
                self._compute_by_jobs(kind, done, end)
        seconds = time.perf_counter() - begun
        kind.divided.append(seconds / rest)
        if units := sum(chunk for chunk, _ in call.busy):
            kind.alone.append(sum(busy for _, busy in call.busy) / units)
        # Against one thread.
        self.saved = (self.saved or 0.0) + min(kind.alone) * rest - seconds

    def _is_short(self, kind: Kind, units: int) -> bool:
        call = self._call
        if self._is_always or not call.is_in_memory or call.twins or kind.peak or kind.holds_lock:
            return False
        return session.cores > 1 and min(kind.alone) * units / session.cores < session.short

    def _compute_by_jobs(self, kind: Kind, done: int, end: int) -> None:
        """Compute units by a job; by several if what each has done is noted after it."""
        call = self._call
        # Threads note what they compute themselves.
        progress = call.progress if call.twins or kind.holds_lock else None
        copied = sum(x.nbytes for x in [*call.whole, *(call.split if call.overlap else ())])
        segment = SEGMENT_SECONDS + copied / SEGMENT_RATE
        per_unit = min([*kind.alone, *kind.divided])
        while done < end:
            stop = end
            if progress is not None:
                granules = int(segment / max(per_unit, 1e-9)) // call.granule
                stop = min(end, done + max(1, granules) * call.granule)
            begun = time.perf_counter()
            self._compute_by_job(kind, done, stop)
            if progress is not None:
                progress.add(done, stop)
            per_unit, done = (time.perf_counter() - begun) / (stop - done), stop

    def _twins(self, kind: Kind) -> dict[str, Callable[..., Any]]:
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

    def _compute_meanwhile(self, kind: Kind, done: int, end: int) -> int:
        """Compute units here while the devices work for another call, which may wait for this one:
        its function may call `map` itself, in any thread. Return the next unit.
        """
        call = self._call
        while done < end and session.is_busy():
            units = int(MEANWHILE_SECONDS / max(min(kind.alone), 1e-9))
            stop = min(end, done + max(1, units // call.granule) * call.granule)
            call.compute_here(done, stop)
            done = stop
        return done

    def _begin(self, first: int, end: int) -> tuple[Kind, int]:
        """Compute first units here, twice as many each time, until that takes as long as a job;
        return what they have shown, and the next unit.
        """
        call, begun = self._call, time.perf_counter()
        call.race = Race() if call.alternative else None
        count = min(call.granule, end - first)
        with watched_memory(sum(x.nbytes for x in call.split) // call.load) as taken:
            outputs = self._compute_first(first, first + count)
            peak = taken() // count
        kind = Kind(outputs, call.is_tuple, call.race, asked.is_true, peak)
        done, now = first + count, time.perf_counter()
        seconds = (now - begun) / count
        enough = begun + (0.0 if self._is_always else session.overhead)
        while done < end and now < enough:
            count, begun = min(done - first, end - done), now
            call.compute_here(done, done + count)
            done, now = done + count, time.perf_counter()
            seconds = (now - begun) / count
        kind.alone.append(seconds)
        return kind, done

    def _compute_first(self, first: int, end: int) -> tuple[workload.Layout, ...]:
        call, asked.is_true = self._call, False
        try:
            blocks = [x[first:end] for x in call.split]
            returned = call.apply(blocks, call.whole, first, None)
            if call.reduction is not None:
                call.reduction.add(first, end, returned)
                return ()
            values = call.results(returned, end - first)
            call.is_tuple = isinstance(returned, tuple)
            layouts = call.layouts(values)
            self._outputs.allocate(layouts)
            if end > first:
                call.write(values, [y[first:end] for y in call.outputs])
                if call.progress is not None:
                    call.progress.add(first, end)
            return layouts
        except BaseException as error:
            call.fail(error, first, end)
            raise

    def _compute_by_job(self, kind: Kind, done: int, end: int) -> None:
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
            outputs=tuple(workload.unit_layout(y) for y in call.outputs) if out else (),
            work=1 << (kind.peak - 1).bit_length() if kind.peak else 0,
        )
        if kind.peak:
            self._fit_memory(kind.peak)
        can_leave = kind.holds_lock and not kind.stays
        if can_leave and self._has_computed_in_processes(kind, params, done, end, out):
            return
        with workload.registered(call) as number:
            arrays[workload.CALL] = np.array([number])
            begun = time.perf_counter()
            seconds = self._run_job(workload.reference(call.twins), arrays, out, params)
            whole = time.perf_counter() - begun
        call.raise_failure()
        if seconds is not None:
            session.note_overhead(whole - seconds)
        if call.reduction is not None and call.reduction.known < call.load:
            raise InternalError(f"units from {call.reduction.known} on weren't reduced")

    def _fit_memory(self, peak: int) -> None:
        """State the memory that the call takes, and leave cores out for which there is none."""
        name, free = function_name(self._call.f), free_memory()
        text = f"takes {format_bytes(peak)} a unit; {format_bytes(int(free))} are free"
        infos = session.local().devices()[0]
        cores = [info.name for info in infos if info.is_plain_core]
        fitting = cores_with_memory(cores, peak, free)
        if len(fitting) < len(cores) and not self._options.get("devices"):
            others = [info.name for info in infos if info.link]
            self._options = {**self._options, "devices": [*fitting, *others]}
            text += f": without {', '.join(cores[len(fitting) :])}"
        calls.remark(name, [text])

    def _has_computed_in_processes(
        self, kind: Kind, common: FunctionParams, done: int, end: int, out: dict[str, np.ndarray]
    ) -> bool:
        """Return whether processes have computed units; else threads must. Raises what the
        function raises, by computing the same block here.
        """
        call = self._call
        params, arrays = processes.process_job(call, common, done, end)
        failure: HetschedError | None = None
        try:
            try:
                self._run_job(processes.REFERENCE, arrays, out, params)
                return True
            except HetschedError as error:
                failure = error
            call.is_cancelled = False
            if (units := processes.failed_units(failure)) is not None:
                call.compute_here(*units)
            if isinstance(failure, JobFailed):  # such as the end of a process: not of this one
                failure.add_note(f"hetsched: {function_name(call.f)}, in processes of its own")
                raise failure
            kind.stay(call, str(failure))
            return False
        finally:
            del failure  # its traceback refers to this frame

    def _run_job(
        self, name: str, arrays: dict[str, Any], out: dict[str, Any], params: FunctionParams
    ) -> float | None:
        """Run the call's job; return the seconds of its computing, None if the function raised.

        When this returns or raises, no device works on the caller's arrays any more.
        """
        call = self._call
        job: Job | None = None
        try:
            options = {**self._options, **msgspec.to_builtins(params)}
            try:
                job = session.local().submit(name, arrays, out=out or None, **options)
                job.result()
            except UsageError as error:
                raise UsageError(str(error).replace("memory_limit", "memory")) from None
            report = job.report
            assert report is not None
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


@contextlib.contextmanager
def watched_memory(unit: int) -> Iterator[Callable[[], int]]:
    """Yield what returns the most bytes that this process has taken meanwhile; 0 if the arrays of
    a unit, of `unit` bytes, are small.
    """
    if unit < MIN_WATCHED:
        yield lambda: 0
        return
    before = most = _private_bytes()
    is_over = threading.Event()

    def taken() -> int:
        nonlocal most
        most = max(most, _private_bytes())
        return most - before

    def watch() -> None:
        while not is_over.wait(WATCH_SECONDS):
            taken()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield taken
    finally:
        is_over.set()
        thread.join()


def _private_bytes() -> int:
    """Of the memory in place, without pages of files and shared memory."""
    _, resident, shared, *_ = map(int, Path("/proc/self/statm").read_text().split())
    return (resident - shared) * os.sysconf("SC_PAGE_SIZE")


def cores_with_memory(cores: Sequence[str], peak: int, free: float) -> list[str]:
    return list(cores[: max(1, int(free // max(1, peak)))])
