"""Arrays and keywords become a job, and its end arrays: `Client`, and what `Local` shares with it.

When the daemon is replaced by another one, segments that are still needed are passed to that.
"""

from __future__ import annotations

import datetime
import inspect
import logging
import math
import operator
import os
import resource
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from msgspec.structs import asdict, replace

from hetsched import errors, job
from hetsched.client.connection import Connection, Session
from hetsched.client.control import TIMEOUT, Control
from hetsched.client.job import Job, Listener
from hetsched.dtypes import NUMERIC
from hetsched.paths import new_file, real_path
from hetsched.sparse import sparse_arrays
from hetsched.transport import messages
from hetsched.transport.arena import Segment, locate_in_segment
from hetsched.units import NUMBER_LIMIT, parse_size, parse_time, quoted

log = logging.getLogger(__name__)

ONLY = ""
"""Name that stands for the only array."""
MAX_AXES = 64
"""NumPy's limit on the axes of an array."""
MAX_ITEM_BYTES = 32
"""Bytes of NumPy's largest number, clongdouble."""

MAX_KEPT_SEGMENTS = 256
"""Segments of a daemon whose descriptors are kept, or a quarter of those that the process may
have: the caller's own files need room. Arrays in others can't be passed to another daemon."""

ArrayOrPath = np.ndarray | str | os.PathLike[str]
"""An array, or the path of a file: .npy, .zarr, .h5:dataset, .tif or raw:DTYPE:SHAPE[:OFFSET]."""
Inputs = Any
"""An ArrayOrPath, a sparse matrix of SciPy, or a mapping of names to these."""
Earlier = int | str | Job | job.Dependency
"""A job to run after: its number, "12:any", its Future, or a Dependency."""


class SharedArrays(Protocol):
    """Source of arrays in shared memory: the daemon's for `Client`, its own for `Local`.

    `map` raises InputMissing if the result is no longer kept. `claim` makes a segment usable for
    jobs in place, if it is one of this source. `lend` does so with an array in other memory, while
    the object returned exists; None: it must be copied.
    """

    def empty(self, shape: tuple[int, ...], dtype: str) -> np.ndarray: ...

    def map(self, ref: job.ArenaRef) -> np.ndarray: ...

    def claim(self, segment: Segment) -> bool: ...

    def lend(self, array: np.ndarray) -> tuple[job.ArenaRef, object] | None: ...


class JobSubmitter(ABC):
    """The methods that `Client` and `Local` share. `_segments`: their source of shared memory.

    Parameters of `submit` that concern the queue
    ---------------------------------------------
    priority : int, -20 to 19; larger ones run first, as in Slurm (unlike nice)
    label : str, for people, shown by `hetsched status`
    id : str, your own name for this job of a `Client`: submitted again it is found, not added
    after : job, number, "12:any", "12:fail", or a sequence of them
        Run after these jobs have succeeded (or ended in any way; or failed). If that can no
        longer happen, this job fails.
    retries : int, 0 to 100
        Run a failed job again this often, unless it was cancelled or its request or data were
        wrong.
    timeout : float, seconds, or str ("10m"); a run that takes longer fails
    deadline : datetime or float, seconds since the epoch; a job that hasn't ended by then fails
    hold : bool, wait until the job is released

    Parameters of `submit` that concern iterative jobs
    --------------------------------------------------
    balance : "auto", "functional", "constant", "imbalance-factor" or "none"
        How rows are shared out while the job runs; "none": the first split stays.
    warm_up : "dfpa", True for that, or None
        Measure all devices in short benchmarks before the first iteration.
    checkpoint : path or None, of a file to which the state is saved now and then
    every : float, seconds, or str ("30s") between two checkpoints; default 30
    resume : path or None, of the checkpoint to continue from
    hold_every : int, iterations after which the job waits, for `Job.next_hold`; 0: it never does
    """

    _segments: SharedArrays

    def __reduce__(self) -> Any:
        name = type(self).__name__
        raise TypeError(f"a {name} belongs to its process: make one in each, and pass arrays")

    @abstractmethod
    def _request(self, submission: Submission, follow: Listener | None) -> Job: ...

    def empty(self, shape: int | Sequence[int], dtype: Any = "complex64") -> np.ndarray:
        """Allocate a shared array, which jobs read and write without a copy. Contents undefined.

        Raises DataError beyond the limit, TryAgain if too much shared memory is in use at present.
        """
        return self._segments.empty(_extents(shape), _numeric(dtype))

    def submit(  # noqa: PLR0913 - optional keywords
        self,
        workload: str,
        arrays: Inputs = None,
        *,
        out: ArrayOrPath | Mapping[str, ArrayOrPath] | None = None,
        devices: str | Sequence[str] = (),
        memory_limit: int | str | None = None,
        schedule: str = "best",
        verify: bool = False,
        seed: int = 0,
        priority: int = 0,
        force: bool = False,
        follow: Listener | None = None,
        label: str = "",
        id: str = "",
        after: Earlier | Sequence[Earlier] = (),
        retries: int = 0,
        timeout: float | str | None = None,
        deadline: float | datetime.datetime | None = None,
        hold: bool = False,
        balance: str = "auto",
        warm_up: str | bool | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        every: float | str | None = None,
        resume: str | os.PathLike[str] | None = None,
        hold_every: int = 0,
        **params: Any,
    ) -> Job:
        """Submit a job and return once it has been accepted; `JobSubmitter` has more parameters.

        Parameters
        ----------
        workload : str, a name or ``module:qualname``
        arrays : array, path, sparse matrix, mapping of name to these, or None
            Inputs; None: generated. C-contiguous parts of arrays from `empty` are used in place,
            others are copied once; a path names a file, in any format of `map`. A sparse matrix
            of SciPy may have any format.
        out : array, path, mapping of name to array or path, or None
            Where results go. None: new shared arrays.
        devices : str ("cpu,gpu0") or sequence of str; default: all devices
        memory_limit : int, bytes, at least 1; or str ("256MiB"), of each device's own memory
        schedule : "best", "ring", "multi-installment" or "factoring"
            How devices with memory of their own cut their shares into chunks.
        verify : bool, check every unit; the job fails (JobFailed) if any is wrong
        seed : int, 0 to 2**63-1, of generated inputs
        force : bool, overwrite output files that exist
        follow : callable, gets every state of the job, on the thread that serves this client
        **params : the workload's own parameters; those implied by the inputs are optional

        Raises HetschedError: UsageError for a wrong type or range or in a job's callback, ...
        """
        options = _given(
            devices=devices, memory_limit=memory_limit, schedule=schedule, verify=verify,
            seed=seed, priority=priority, label=label, id=id, after=after, retries=retries,
            timeout=timeout, deadline=deadline, hold=hold, balance=balance, warm_up=warm_up,
            checkpoint=checkpoint, every=every, resume=resume, hold_every=hold_every,
        )  # fmt: skip
        plain = {name: plain_value(name, value) for name, value in params.items()}
        spec = job.checked(job.JobSpec, workload=workload, params=plain, **options)
        return self._request(Submission(spec, self._segments, arrays, out, force), follow)


class Client(JobSubmitter, Control):
    """A connection to the daemon, arrays included. `Control` documents its parameters.

    With `cluster`, the address of a Dask scheduler, jobs run over the hosts of that cluster: then
    this is a `hetsched.hosts.client.ClusterClient`.

    Any thread may use it. One background thread serves it until `close`, or the end of the `with`.
    Arrays stay valid after that.
    """

    _segments: SharedMemory

    def __new__(cls, *args: Any, cluster: str | None = None, **options: Any) -> Any:
        if cluster is None:
            return super().__new__(cls)
        from hetsched.hosts.client import connect

        return connect(cluster, *args, **options)

    def __init__(
        self,
        endpoint: str | os.PathLike[str] | None = None,
        timeout: float = TIMEOUT,
        reconnect: float | None = None,
    ) -> None:
        super().__init__(endpoint, timeout, reconnect)
        self._segments = SharedMemory(self._connection)

    def _request(self, submission: Submission, follow: Listener | None) -> Job:
        return self._request_job(submission.spec, submission.result, follow, submission.renew)

    def _fetch(self, end: job.Ended) -> Any:
        return _result(end, lambda name, ref: self._segments.map(ref))

    def _view(self, ref: job.ArenaRef) -> np.ndarray:
        return self._segments.map(ref)


class Submission:
    """A JobSpec with arrays in shared memory, and what converts the job's end to a result."""

    def __init__(
        self,
        spec: job.JobSpec,
        segments: SharedArrays,
        arrays: Inputs = None,
        out: ArrayOrPath | Mapping[str, ArrayOrPath] | None = None,
        force: bool = False,
    ) -> None:
        ins, outs = by_name("arrays", arrays), by_name("out", out)
        if not isinstance(force, bool | np.bool_):
            raise errors.UsageError(f"force: {quoted(force)} should be True or False")
        self._segments = segments
        # Kept until the job's end is known: the next daemon needs the same data if this one is
        # killed after it has released its own references.
        self._inputs: dict[str, np.ndarray] = {}
        self._targets: dict[str, np.ndarray] = {}  # The caller's own arrays
        self._loans: list[object] = []  # Keep arrays lent that aren't in shared memory
        outputs: dict[str, job.OutputRef] = {}
        for name, value in outs.items():
            if isinstance(value, str | os.PathLike):
                outputs[name] = job.FileOut(new_file(value), bool(force))
            else:
                self._targets[name] = _writable(name, value)
        inputs: dict[str, job.InputRef] = {}
        for name, value in ins.items():
            if isinstance(value, str | os.PathLike):
                inputs[name] = job.FileRef(real_path(os.fspath(value)))
            else:
                self._inputs[name], inputs[name] = self._input(value)
        for name, target in self._targets.items():
            ref = _shared(target, segments)
            others = [array for other, array in self._targets.items() if other != name]
            # An array that overlaps with another one gets its result as a copy
            if ref is None and not any(
                np.may_share_memory(target, each) for each in (*self._inputs.values(), *others)
            ):
                ref = self._lent(target)
            outputs[name] = job.ArenaOut(ref)
        self.spec = replace(spec, inputs=spec.inputs | inputs, outputs=spec.outputs | outputs)

    def _input(self, value: Any) -> tuple[np.ndarray, job.ArenaRef]:
        """Return `value` as an array that jobs can use, a copy if need be, and its place."""
        if isinstance(value, Job):
            raise errors.UsageError(
                f"arrays: {value} is a job: give its result(), or its output's path"
            )
        try:
            array = np.asarray(value)
        except (TypeError, ValueError) as error:  # rows of different lengths
            raise errors.DataError(f"arrays: {quoted(value)} is not an array: {error}") from None
        ref = _shared(array, self._segments) or self._lent(array)
        if ref is not None:
            return array, ref
        copy = self._segments.empty(array.shape, _numeric(array.dtype))
        np.copyto(copy, array)
        return copy, _in_place(copy, self._segments)

    def _lent(self, array: np.ndarray) -> job.ArenaRef | None:
        is_usable = array.dtype.kind in NUMERIC and array.dtype.isnative
        lent = self._segments.lend(array) if is_usable else None
        if lent is None:
            return None
        self._loans.append(lent[1])
        return lent[0]

    def result(self, end: job.Ended) -> Any:
        """As `_result`. Raises DataError if the caller's array has another shape or can't hold the
        dtype, InputMissing if the result is no longer kept."""
        value = _result(end, self._array)
        # Before the caller submits the next job, which may use their memory
        self._inputs.clear()
        self._loans.clear()
        return value

    def renew(self, spec: job.JobSpec) -> job.JobSpec:
        """Pass the arrays to the next daemon; return `spec` with their segments there.

        Raises TryAgain if one can't be passed on, or the job has been held: who knows what has
        changed meanwhile.
        """
        if spec.hold_every:
            raise errors.TryAgain(
                "the daemon has ended; a job that is held now and then can't go on"
            )
        inputs = {name: _in_place(array, self._segments) for name, array in self._inputs.items()}
        outputs = {
            name: job.ArenaOut(_in_place(self._targets[name], self._segments))
            for name, out in spec.outputs.items()
            if isinstance(out, job.ArenaOut) and out.into is not None
        }
        self.spec = replace(spec, inputs=spec.inputs | inputs, outputs=spec.outputs | outputs)
        return self.spec

    def _array(self, name: str, ref: job.ArenaRef) -> np.ndarray:
        key = name if name in self._targets else ONLY
        target, out = self._targets.get(key), self.spec.outputs.get(key)
        if target is None:
            return self._segments.map(ref)
        place = out.into if isinstance(out, job.ArenaOut) else None
        if place is not None and (place.segment, place.offset) == (ref.segment, ref.offset):
            return target
        result = self._segments.map(ref)
        can_cast = np.can_cast(result.dtype, target.dtype, "same_kind")
        if result.shape != target.shape or not can_cast:
            raise errors.DataError(
                f"out {name}: the result is {result.dtype} {result.shape}, but the array is"
                f" {target.dtype} {target.shape}; use client.empty({result.shape},"
                f' "{result.dtype}")'
            )
        np.copyto(target, result)
        return target


def _result(end: job.Ended, array: Callable[[str, job.ArenaRef], np.ndarray]) -> Any:
    """Return the only output, or a dict by name; a Path for an output saved as file.

    Always a dict if the job has iterations.
    """
    values: dict[str, Any] = {name: array(name, ref) for name, ref in end.results.items()}
    values |= {name: Path(path) for name, path in end.report.outputs.items()}
    is_alone = len(values) == 1 and end.report.iterations is None
    return next(iter(values.values())) if is_alone else values


# ---- keywords


def _given(**options: Any) -> dict[str, Any]:
    return {
        name: _converted(name, value.item() if isinstance(value, np.generic) else value)
        for name, value in options.items()
        if value is not _DEFAULTS[name]
    }


_DEFAULTS = {
    name: parameter.default
    for name, parameter in inspect.signature(JobSubmitter.submit).parameters.items()
}


def _converted(name: str, value: Any) -> Any:
    """Return a keyword's value as JobSpec has it; `checked` says what is wrong with others."""
    match name, value:
        case "devices", Iterable():
            return tuple(value.split(",") if isinstance(value, str) else value)
        case "memory_limit" | "timeout" | "every", str():
            try:
                return parse_size(value) if name == "memory_limit" else parse_time(value)
            except errors.UsageError as error:
                raise errors.UsageError(f"{name}: {error}") from None
        case "after", _:
            return _dependencies(value)
        case "deadline", _:
            seconds = value.timestamp() if isinstance(value, datetime.datetime) else value
            if isinstance(seconds, int | float) and seconds <= time.time():
                raise errors.UsageError(
                    f"deadline: {quoted(value)} has passed; give one in the future"
                )
            return seconds
        case "warm_up", bool():
            return job.WARM_UPS[0] if value else ""
        case "checkpoint" | "resume", str() | os.PathLike():
            if value == "":
                raise errors.UsageError(f"{name}: '' should be the path of a checkpoint")
            return real_path(os.fspath(value))
    return value


def _dependencies(after: Any) -> tuple[job.Dependency, ...]:
    if isinstance(after, int | str | Job | job.Dependency):
        after = (after,)
    if not isinstance(after, Iterable):
        raise errors.UsageError(
            f"after: {quoted(after)} should be a job or its number, or a sequence of them"
        )
    return tuple(
        job.checked(job.Dependency, **asdict(earlier))
        if isinstance(earlier, job.Dependency)
        else job.parse_dependency(str(earlier.id if isinstance(earlier, Job) else earlier))
        for earlier in after
    )


def plain_value(name: str, value: Any) -> Any:
    """Convert NumPy's types in `value` to plain ones, which msgpack can encode."""
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, np.dtype):
        return value.name
    if isinstance(value, type) and issubclass(value, np.generic):
        return np.dtype(value).name
    if isinstance(value, list | tuple):
        return [plain_value(name, item) for item in value]
    if isinstance(value, int) and not -NUMBER_LIMIT <= value < NUMBER_LIMIT:
        raise errors.UsageError(
            f"{name}: a number of {value.bit_length()} bits; the maximum is 63"
        )
    if isinstance(value, str) and errors.encodable(value) != value:  # as a file's name may be
        raise errors.UsageError(f"parameter {name}: {quoted(value)} should be text in UTF-8")
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise errors.UsageError(f"parameter {name}: {quoted(value)} is neither a number nor text")


def _extents(shape: Any) -> tuple[int, ...]:
    try:
        extents = tuple(operator.index(extent) for extent in np.atleast_1d(shape))
    except (TypeError, ValueError):  # not integers; rows of different lengths
        extents = (-1,)
    if len(extents) > MAX_AXES or min(extents, default=0) < 0:
        raise errors.UsageError(
            f"shape: {quoted(shape)} should be an integer from 0 on, or at most {MAX_AXES} of them"
        )
    if math.prod(extents) >= NUMBER_LIMIT // MAX_ITEM_BYTES:
        raise errors.DataError(f"shape: {quoted(shape)} is more than any machine has")
    return extents


def _numeric(dtype: Any) -> str:
    try:
        kind = np.dtype(dtype)
    except (TypeError, ValueError, SyntaxError) as error:
        raise errors.DataError(f"dtype {quoted(dtype)}: {error}") from None
    if kind.kind not in NUMERIC:
        raise errors.DataError(f"dtype {kind}: only numeric dtypes are supported")
    return str(kind.newbyteorder("=").name)


# ---- arrays


def _shared(array: np.ndarray, segments: SharedArrays) -> job.ArenaRef | None:
    """Return the location of `array` in shared memory; None if it must be copied."""
    if not (array.flags.c_contiguous and array.dtype.isnative):
        return None
    location = locate_in_segment(array)
    if location is None or not segments.claim(location[0]):
        return None
    segment, offset = location
    return job.ArenaRef(segment.id, array.shape, array.dtype.name, offset)


def _in_place(array: np.ndarray, segments: SharedArrays) -> job.ArenaRef:
    """As `_shared`, of an array in shared memory. Raises TryAgain if its daemon has stopped."""
    ref = _shared(array, segments)
    if ref is None:
        raise errors.TryAgain("the job's shared memory couldn't be passed to the next daemon")
    return ref


def by_name(parameter: str, arrays: Any) -> dict[str, ArrayOrPath]:
    """Return arrays by name, with the three arrays of a sparse matrix in its place."""
    if arrays is None:
        return {}
    found: dict[str, ArrayOrPath] = {}
    for name, value in (arrays if isinstance(arrays, Mapping) else {ONLY: arrays}).items():
        if not isinstance(name, str) or errors.encodable(name) != name:
            raise errors.UsageError(f"{parameter}: {quoted(name)} should be an array's name")
        parts = sparse_arrays(name, value) if hasattr(value, "tocsr") else {name: value}
        for twice in parts.keys() & found.keys():
            raise errors.UsageError(
                f"{parameter}: {twice} is given twice: by name and as part of a matrix"
            )
        found |= parts
    return found


def _writable(name: str, array: ArrayOrPath) -> np.ndarray:
    if not isinstance(array, np.ndarray):
        raise errors.UsageError(
            f"out{name and ' '}{name}: {quoted(array)} should be a NumPy array to write to, or the"
            " path of a new file"
        )
    if not array.flags.writeable:
        raise errors.DataError(f"out {name or 'array'} is read-only; give one that can be written")
    return array


# ---- the daemon's shared memory


class ClientSegment(Segment):
    """A segment that this client has mapped, under the number that the present daemon gives it.

    Each array on it holds a reference of the session that it came by. A reference that a daemon
    gave for passing the segment on is kept while there are arrays.
    """

    def __init__(self, segment_id: int, fd: int, nbytes: int) -> None:
        super().__init__(segment_id, fd, nbytes)
        self._arrays: set[object] = set()
        self.adopted: deque[tuple[Session, int]] = deque()

    def add_array(self, session: Session) -> Callable[[], None]:
        """Return the function to call when the array is freed, which never blocks."""
        array, ident = object(), self.id
        self._arrays.add(array)
        session.arrays.add(array)

        def on_freed() -> None:  # the garbage collector may call it
            self._arrays.discard(array)
            session.drop(ident, array)
            while self.adopted and not self._arrays:
                try:
                    adopter, number = self.adopted.pop()
                except IndexError:  # another thread has taken it
                    return
                adopter.drop(number)

        return on_freed


class SharedMemory:
    """Arrays on the daemon's segments: the client's `SharedArrays`. Any thread may use it.

    Each array holds one of the session's references until its last view is freed. Mappings stay
    until the daemon discards the segment, so that reusing one costs nothing.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._max_kept = min(MAX_KEPT_SEGMENTS, limit // 4)

    def empty(self, shape: tuple[int, ...], dtype: str) -> np.ndarray:
        nbytes = math.prod(shape) * np.dtype(dtype).itemsize
        return self._array(messages.Allocate(nbytes), shape, dtype, 0)

    def map(self, ref: job.ArenaRef) -> np.ndarray:
        return self._array(messages.Map(ref.segment), ref.shape, ref.dtype, ref.offset)

    def claim(self, segment: Segment) -> bool:
        """Make a segment of this client usable for the present daemon; return whether it is.

        One that an earlier daemon gave is passed on, and gets another number.
        """
        session = self._connection.session
        if session is not None and session.knows(segment):
            return True
        if not isinstance(segment, ClientSegment) or segment.fd < 0:
            return False
        try:
            session = self._connection.live_session()
            with session.lock:
                if not session.knows(segment):
                    segment.id = session.request(messages.Adopt(), [segment.fd])[0].segment
                    segment.adopted.append((session, segment.id))
                    session.segments[segment.id] = segment
        except errors.HetschedError as error:
            log.warning("shared memory %d wasn't passed to the daemon: %s", segment.id, error)
            return False
        return True

    def lend(self, array: np.ndarray) -> None:
        return  # the daemon sees shared memory only

    def _array(
        self,
        request: messages.Allocate | messages.Map,
        shape: tuple[int, ...],
        dtype: str,
        offset: int,
    ) -> np.ndarray:
        session, segment = self._request(request)
        on_freed = segment.add_array(session)
        try:
            segment.mapping()
            if len(session.segments) > self._max_kept:
                segment.release_fd()  # the mapping doesn't need it
            return segment.array(shape, dtype, offset, on_freed)
        except BaseException:
            on_freed()
            raise

    def _request(self, request: messages.Allocate | messages.Map) -> tuple[Session, ClientSegment]:
        while True:
            session = self._connection.live_session()  # may wait for a daemon
            try:
                with session.lock:  # the fd comes only once: keep it before another thread asks
                    answer, fd = session.request(request)
                    ident = answer.segment
                    if fd is not None:
                        session.segments[ident] = ClientSegment(ident, fd, answer.nbytes)
                    return session, session.segments[ident]
            except errors.TryAgain:
                if isinstance(request, messages.Map) or not session.is_lost:
                    raise
