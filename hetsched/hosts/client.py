"""Jobs over several hosts: `hetsched.Client(cluster=...)`."""

from __future__ import annotations

import atexit
import contextlib
import functools
import itertools
import math
import mmap
import os
import sys
import threading
import uuid
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from hetsched import errors, paths
from hetsched.client.client import by_name, plain_value
from hetsched.client.job import check_process, wait_awake
from hetsched.cluster.coordinator import LINK, Coordinator, HostModels, Outcome
from hetsched.cluster.stencil import SAVE_EVERY, StencilCoordinator, StencilOutcome
from hetsched.functions.call import Call
from hetsched.functions.function import find_function, function_name, undecorated
from hetsched.functions.map import checked_options, make_call
from hetsched.functions.outputs import NewFile, Outputs
from hetsched.functions.workload import Layout as UnitLayout
from hetsched.hosts import channel
from hetsched.hosts.grid_hosts import GridHosts, GridSpec
from hetsched.hosts.grid_messages import Open, layouts
from hetsched.hosts.shared_files import RowFile, absolute, place_in
from hetsched.hosts.tcp import ClusterSpec, Rows, TcpHosts
from hetsched.machine_limits import free_memory
from hetsched.paths import is_path
from hetsched.store.formats import open_array
from hetsched.store.stored import Stored
from hetsched.units import format_bytes, parse_time, quoted
from hetsched.workload import ArraySpec, Blocks, Iterative, find
from hetsched.workload import Rows as GridRows
from hetsched.workload.protocol import sizes_as_text

Follow = Callable[[Any], object] | None
MAX_SHARED = 8
"""Clusters to which `hetsched.map` stays connected."""
STATUS_SECONDS = 1.0
MEASURE_SECONDS = 120.0
CASTING: Any = "same_kind"


class ClusterJob(Future[Any]):
    """Future of a job's result, an array, or a dict by name where there are several outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.outcome: Outcome | StencilOutcome | None = None
        self._is_cancelled = threading.Event()

    def cancel(self) -> bool:
        """Stop a job that waits or runs; then `result` raises Cancelled or CancelledError."""
        self._is_cancelled.set()
        return super().cancel() or not self.done()

    def result(self, timeout: float | None = None) -> Any:
        """Return the result, or raise what the job failed with; TimeoutError after `timeout` s."""
        wait_awake(self, timeout)
        return super().result(0)

    def explain(self) -> str:
        """Return which host did what, as a table. Raises TryAgain before the end."""
        if self.outcome is None:
            raise errors.TryAgain("the job hasn't ended")
        return self.outcome.explain()


class ClusterClient:
    """Runs jobs over `hosts`, one after the other. Any thread may use it."""

    def __init__(self, hosts: TcpHosts, models: HostModels | None = None) -> None:
        self._hosts, self._models = hosts, models or HostModels()
        self._epochs = itertools.count(1)
        self._pool = ThreadPoolExecutor(1, "hetsched-cluster")
        # Ctrl-C while a pool starts its thread would have it start another one later.
        self._pool.submit(int).result()
        self._jobs: set[ClusterJob] = set()
        self._lock = threading.Lock()
        self._is_open = True
        self._pid = os.getpid()

    def __enter__(self) -> ClusterClient:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Cancel the jobs that haven't ended, and end the connections to the hosts."""
        if os.getpid() != self._pid:
            return  # they are the parent's
        with self._lock:
            self._is_open, jobs = False, list(self._jobs)
        for job in jobs:
            job.cancel()
        self._pool.shutdown()
        self._hosts.close()

    @property
    def is_closed(self) -> bool:
        return not self._is_open or os.getpid() != self._pid

    def hosts(self) -> Sequence[str]:
        return self._hosts.hosts()

    def refused(self) -> list[errors.HetschedError]:
        """Return why members of the cluster take no part."""
        return self._hosts.refusals()

    def status(self) -> dict[str, channel.Status | None]:
        """Return what each host does; None if it doesn't answer within a second."""
        answers = self._hosts.ask(dict.fromkeys(self.hosts(), channel.Ask), STATUS_SECONDS)
        return {host: answers.get(host) for host in self.hosts()}

    def measure_links(self) -> dict[tuple[str, str], channel.LinkTimes | errors.HetschedError]:
        """Measure the links from here, "", to each host, and those of each pair of hosts.

        One after the other. Those from here tell later jobs about hosts that they know nothing of.
        """
        found: dict[tuple[str, str], channel.LinkTimes | errors.HetschedError] = {}
        places = {name: link.place for name, link in self._hosts.links().items()}
        for target, place in places.items():
            try:
                link = channel.measure(target, place, self._hosts.context)
                found["", target] = link
                self._models.learn(
                    LINK, target, channel.LARGE, link.latency + channel.LARGE / link.bandwidth
                )
            except errors.HetschedError as error:
                found["", target] = error
        self._models.save()
        for source, target in itertools.combinations(places, 2):
            question = functools.partial(channel.Measure, host=target, place=places[target])
            answer = self._hosts.ask({source: question}, MEASURE_SECONDS).get(source)
            if answer is None:
                found[source, target] = errors.Unavailable(f"{source} doesn't answer")
            elif answer.error is not None:
                found[source, target] = errors.from_record(answer.error)
            else:
                found[source, target] = answer.link
        return found

    def wait_for_hosts(self, count: int, timeout: float = 60.0) -> None:
        """Wait until there are `count` hosts. Raises WaitTimeout."""
        if not self._hosts.wait(count, timeout):
            raise errors.WaitTimeout(f"{len(self.hosts())} hosts after {timeout:g} s, not {count}")

    def submit(  # noqa: PLR0913 - optional keywords
        self,
        workload: str,
        arrays: Any = None,
        *,
        out: Any = None,
        force: bool = False,
        seed: int = 0,
        devices: str | Sequence[str] = (),
        memory_limit: int | str | None = None,
        verify: bool = False,
        every: float | str | None = None,
        follow: Follow = None,
        **params: Any,
    ) -> ClusterJob:
        """Submit a job; the parameters are those of `Client.submit`.

        Parameters
        ----------
        arrays : array, path of a file, mapping of name to these, or None: generated
            A file that hosts see under the same path is read by each host itself.
        out : array, path of a `.npy` file, mapping of name to these, or None: new arrays
        every : float, s, or str ("1min"): between checkpoints of a grid; 30 s if not given
        follow : callable, gets what hosts have done so far whenever one has done a part

        Raises
        ------
        UsageError, DataError, InputMissing, CantCreate
        """
        check_process(self._pid)
        options = {"devices": devices, "memory_limit": memory_limit, "verify": verify}
        options = {name: value for name, value in options.items() if value is not None}
        job = _Resolved(workload, arrays, seed, params)
        results = _JobResults(job, out, force)
        spec: ClusterSpec | GridSpec
        try:
            if isinstance(job.plug_in, Iterative):
                spec = self._grid(job, results, options, seed, every)
            else:
                spec = self._spec(job, results, options)
        except BaseException:
            results.discard()
            raise
        job_over_hosts = ClusterJob()
        self._start(job_over_hosts, spec, results, follow)
        return job_over_hosts

    def map(  # noqa: PLR0913 - optional keywords
        self,
        f: Callable[..., Any] | str,
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
        follow: Follow = None,
        **kwargs: Any,
    ) -> Any:
        """Apply a function to blocks of arrays over all hosts, as `hetsched.map` on one.

        Each host imports the function by its name, ``module:qualname`` if `f` is a str: a closure,
        a lambda or one of a script's own file won't do. `follow` is as in `submit`; `memory` and
        `devices` are those of each host.

        Raises
        ------
        UsageError, DataError
        HetschedError
            What the function raised on a host, with the host and the units.
        """
        check_process(self._pid)
        checked_options(shape=shape, memory=memory, devices=devices)
        with contextlib.ExitStack() as stack:
            name = f if isinstance(f, str) else _reference(f)
            f = find_function(f) if isinstance(f, str) else f
            call = make_call(
                f, arrays, kwargs, stack,
                axis=axis, overlap=overlap, mode=mode, broadcast=broadcast, dtype=dtype,
            )  # fmt: skip
            if not call.load:
                raise errors.DataError("the arrays have no units: there is nothing to compute")
            outputs = Outputs(call, out, shape)
            results = _MapResults(call, outputs, out)
            positions = list(enumerate(call.positions))
            options = {"memory": memory, "devices": devices}
            spec = ClusterSpec(
                part=channel.Part(
                    next(self._epochs),
                    name,
                    {key: plain_value(key, value) for key, value in kwargs.items()},
                    {key: value for key, value in options.items() if value is not None},
                    channel.Mapped(call.axis, overlap, None if dtype is None else str(call.dtype)),
                ),
                load=call.load,
                split={str(i): call.split[at] for i, (is_split, at) in positions if is_split},
                whole={str(i): call.whole[at] for i, (is_split, at) in positions if not is_split},
                store=results.store,
                paths=_shared_paths(arrays, call),
                out=results.places,
                folders=results.folders,
                block=call.with_overlap,
                granule=outputs.granule,
            )
            job = ClusterJob()
            try:
                self._start(job, spec, results, follow)
                return job.result()
            except BaseException:  # such as Ctrl-C
                job.cancel()
                raise

    def _start(
        self,
        job: ClusterJob,
        spec: ClusterSpec | GridSpec,
        results: _MapResults | _JobResults,
        follow: Follow,
    ) -> None:
        job.add_done_callback(lambda _: results.discard())
        with self._lock:
            if not self._is_open:
                results.discard()
                raise errors.UsageError("this client is closed; create another one")
            self._jobs.add(job)
            self._pool.submit(self._run, job, spec, results, follow)
        job.add_done_callback(self._jobs.discard)

    def _spec(self, job: _Resolved, results: _JobResults, options: dict[str, Any]) -> ClusterSpec:
        specs = job.specs
        return ClusterSpec(
            part=channel.Part(next(self._epochs), job.workload, job.own_params(), options),
            load=job.load,
            split={n: a for n, a in job.inputs.items() if not specs[n].is_whole},
            whole={n: a for n, a in job.inputs.items() if specs[n].is_whole},
            store=results.store,
            paths=job.paths,
            out=results.places,
            folders={file.path.resolve().parent for file in results.files.values()},
        )

    def _grid(
        self,
        job: _Resolved,
        results: _JobResults,
        options: dict[str, Any],
        seed: int,
        every: float | str | None,
    ) -> GridSpec:
        """Return a job on a grid, whose results go to `results`. Raises UsageError."""
        plug_in, verify = job.plug_in, options.pop("verify", False)
        blocks: Blocks | None = plug_in.blocks(job.p)
        if blocks is None:
            raise errors.UsageError(
                f"{plug_in.name} with these parameters runs on one host: hosts advance grids, for"
                " a fixed number of steps"
            )
        if others := set(blocks.state.values()) - {each.result for each in plug_in.state(job.p)}:
            raise errors.UsageError(
                f"{plug_in.name} runs on one host: {', '.join(sorted(others))} of its blocks isn't"
                " the result of a state array"
            )
        inputs, steps = blocks.complete(job.inputs), getattr(job.p, blocks.steps)

        def complete() -> None:
            for name, array in results.arrays.items():
                if name not in blocks.axes:
                    array[...] = steps
            if verify:
                rows = GridRows(0, job.load, job.load)
                found = plug_in.errors(job.p, job.inputs, results.arrays, rows, seed)
                wrong = np.asarray(found)
                if not wrong.max() <= 1:
                    row = int(np.argmax(~(wrong <= 1)))
                    raise errors.JobFailed(
                        f"verification failed: row {row}: the error is {wrong[row]:.3g} times what"
                        " is allowed"
                    )

        results.complete = complete
        name = next(iter(blocks.state))
        rows, columns = (inputs[name].shape[axis] for axis in blocks.axes[name])
        outputs = {n: a for n, a in results.arrays.items() if n in blocks.axes}
        opening = Open(
            epoch=next(self._epochs),
            job=uuid.uuid4().hex,
            workload=job.workload,
            params=dict(blocks.params),
            options=options,
            shape=(rows, columns),
            periodic=blocks.periodic,
            reach=blocks.reach,
            steps=steps,
            limit=blocks.steps,
            axes=dict(blocks.axes),
            state=dict(blocks.state),
            inputs=layouts(inputs),
            outputs=layouts(outputs),
        )
        pause = SAVE_EVERY if every is None else parse_time(str(every))
        return GridSpec(opening, plug_in.limits, inputs, outputs, pause)

    def _run(
        self,
        job: ClusterJob,
        spec: ClusterSpec | GridSpec,
        results: _MapResults | _JobResults,
        follow: Follow,
    ) -> None:
        if not job.set_running_or_notify_cancel():
            return
        try:
            self._compute(job, spec, follow)
            job.set_result(results.finish())
        except BaseException as error:
            job.set_exception(error)

    def _compute(self, job: ClusterJob, spec: ClusterSpec | GridSpec, follow: Follow) -> None:
        """Run a job. Raises what it fails with, or Cancelled."""
        hosts, models = self._hosts, self._models
        coordinator: Coordinator | StencilCoordinator
        is_done = False
        if isinstance(spec, GridSpec):
            grid = GridHosts(hosts, spec)
            hosts.begin(None, grid)
            coordinator = StencilCoordinator(
                grid, models, spec.kind, spec.grid, spec.opening.epoch, spec.opening.job,
                every=spec.every, follow=follow,
            )  # fmt: skip
        else:
            hosts.begin(spec)
            coordinator = Coordinator(
                hosts, models, spec.kind, spec.load, spec.part.epoch,
                granule=spec.granule, unit_bytes=spec.unit_bytes, follow=follow,
            )  # fmt: skip
        try:
            coordinator.run(job._is_cancelled.is_set)
            is_done = not job._is_cancelled.is_set()
        finally:
            hosts.end(is_done=is_done)
            job.outcome = coordinator.outcome
            models.save()
        if not is_done:
            raise errors.Cancelled("the job was cancelled")


class _Resolved:
    """A job with all parameters, `p`, and inputs. Raises UsageError, DataError, InputMissing."""

    def __init__(self, workload: str, arrays: Any, seed: int, params: dict[str, Any]) -> None:
        self.workload = workload
        """Its name, or where hosts import it."""
        self.plug_in: Any = find(workload)
        self.inputs: dict[str, Any] = {}
        """Of np.ndarray, or `Stored` where hosts read the file."""
        self.paths: dict[str, str] = {}
        given: dict[str, Any] = by_name("arrays", arrays)
        if "" in given:
            if self.plug_in.only_input is None:
                raise errors.UsageError(
                    f"{workload} has several inputs: give a mapping of their names"
                )
            given[self.plug_in.only_input] = given.pop("")
        with contextlib.ExitStack() as closers:
            for name, value in given.items():
                is_file = is_path(value)
                self.inputs[name] = open_array(value, 0, closers) if is_file else np.asarray(value)
            plain = {name: plain_value(name, value) for name, value in params.items()}
            self.params = dict(sizes_as_text(self.plug_in, plain))
            self.p = self.plug_in.infer(self.params, self.shapes)
            self.load = self.plug_in.load(self.p)
            self.specs = {spec.name: spec for spec in self.plug_in.arrays(self.p)}
            for name, array in self.inputs.items():
                is_divided = not (isinstance(self.plug_in, Iterative) or self.specs[name].is_whole)
                if is_divided and _has_rows(array, given[name]):
                    self.paths[name] = absolute(given[name])
                elif isinstance(array, Stored):
                    self.inputs[name] = array[: array.shape[0]]
        for spec in self.specs.values():
            is_missing = spec.is_input and spec.name not in self.inputs
            if is_missing and spec.name not in self.plug_in.optional_inputs:
                self._generate(spec, seed)

    @property
    def shapes(self) -> dict[str, tuple[tuple[int, ...], str]]:
        return {name: (array.shape, str(array.dtype)) for name, array in self.inputs.items()}

    def _generate(self, spec: ArraySpec, seed: int) -> None:
        shape, dtype = spec.shape(self.load), np.dtype(spec.dtype)
        needed, free = math.prod(shape) * dtype.itemsize, free_memory()
        if needed > free:
            raise errors.DataError(
                f"{spec.name}: generating {dtype} {shape} takes {format_bytes(needed)};"
                f" {format_bytes(int(free))} are free: use smaller sizes"
            )
        self.inputs[spec.name] = np.empty(shape, dtype)
        self.plug_in.generate(self.p, seed, spec.name, 0, self.inputs[spec.name])

    def own_params(self) -> dict[str, Any]:
        """Return the parameters that don't follow from the arrays, as the load does in parts."""
        params = self.params
        for name in params:
            fewer = {other: value for other, value in params.items() if other != name}
            with contextlib.suppress(errors.HetschedError):
                if self.plug_in.infer(fewer, self.shapes) == self.p:
                    params = fewer
        return params


class _ResultFiles:
    """Of the results of a job, those to which hosts may write, too."""

    def __init__(self) -> None:
        self.places: dict[str, channel.Place] = {}
        self._files: dict[str, RowFile] = {}

    def _add_file(self, name: str, array: Any) -> None:
        """Add that of an array that has just been created, if its rows lie in it as they are."""
        if isinstance(array, np.memmap):
            self.places[name] = place_in(array)
            self._files[name] = RowFile(self.places[name])

    def _close_files(self) -> None:
        for file in self._files.values():
            file.close()


class _MapResults(_ResultFiles):
    """Results of a function: what they look like is known when the first ones come."""

    def __init__(self, call: Call, outputs: Outputs, out: Any) -> None:
        super().__init__()
        self._call, self._outputs = call, outputs
        self._layouts: tuple[UnitLayout, ...] | None = None
        self._out = tuple(out) if isinstance(out, tuple | list) else (out,)
        files = [Path(paths.split_path(each).file) for each in self._out if is_path(each)]
        self.folders = {file.resolve().parent for file in files}  # as those of the places

    def store(self, first: int, count: int, rows: Rows) -> None:
        call, values = self._call, list(rows.values())
        layouts = tuple(UnitLayout(value.shape[1:], str(value.dtype)) for value in values)
        if self._layouts is None:
            self._layouts, call.is_tuple = layouts, "" not in rows
            self._outputs.allocate(layouts)
            for name, given, array in zip(rows, self._out, call.outputs, strict=False):
                if is_path(given) and not call.axis:
                    self._add_file(name, array)
        if layouts != self._layouts or any(value.shape[0] != count for value in values):
            raise errors.DataError(
                f"{function_name(call.f)} returned {_described(layouts)} for units {first} to"
                f" {first + count - 1}, for others {_described(self._layouts)}"
            )
        for (name, value), output in zip(rows.items(), call.outputs, strict=True):
            if isinstance(value, np.ndarray) and name in self._files:
                self._files[name].write(first, value)
            elif isinstance(value, np.ndarray):
                call.write([value], [output[first : first + count]])

    def finish(self) -> Any:
        self._close_files()
        results = self._outputs.results()
        return results if self._call.is_tuple else results[0]

    def discard(self) -> None:
        self._outputs.discard()
        self._close_files()


def _shared_paths(arrays: Sequence[Any], call: Call) -> dict[str, str]:
    """Return position -> file of the arrays whose blocks are rows of it, as they are."""
    return {
        str(i): absolute(given)
        for i, (given, (is_split, at)) in enumerate(zip(arrays, call.positions, strict=True))
        if is_split and not call.axis and not call.overlap and _has_rows(call.split[at], given)
    }


def _has_rows(array: Any, given: Any) -> bool:
    """Return whether `array` is opened from a path, and rows of it can be read there."""
    if not is_path(given) or isinstance(array, Stored):
        return is_path(given)
    owner = array  # of its memory; a map's views needn't be np.memmap
    while isinstance(owner, np.ndarray):
        owner = owner.base
    return isinstance(owner, mmap.mmap) and bool(array.flags.c_contiguous)


def _described(layouts: Sequence[UnitLayout]) -> str:
    return ", ".join(f"{each.dtype} {each.shape}" for each in layouts)


class _JobResults(_ResultFiles):
    """Results of a workload: `out` and `force` are those of `ClusterClient.submit`."""

    def __init__(self, job: _Resolved, out: Any, force: bool) -> None:
        super().__init__()
        specs = [spec for spec in job.specs.values() if spec.is_output]
        # A job with one output has it without a name.
        names = {s.name: s.name if len(specs) > 1 else "" for s in specs}
        mains = [s.name for s in specs if s.name not in job.plug_in.optional_outputs]
        given = by_name("out", out)
        if "" in given:
            if len(mains) > 1:
                raise errors.UsageError(f"out: there are several, {', '.join(names)}: name them")
            given[mains[0]] = given.pop("")
        for name in given:
            if name not in names:
                raise errors.UsageError(f"out: there is no output {name!r:.50}")
        self.files: dict[str, NewFile] = {}
        self.arrays: dict[str, np.ndarray] = {}
        self.complete: Callable[[], None] = lambda: None
        """What is left to do when all has come."""
        self._targets: dict[str, np.ndarray] = {}
        """The caller's own arrays, if results arrive elsewhere."""
        try:
            for spec in specs:
                self._add(names[spec.name], spec, job, given.get(spec.name), force)
        except BaseException:
            self.discard()
            raise

    def _add(self, name: str, spec: ArraySpec, job: _Resolved, out: Any, force: bool) -> None:
        shape, dtype = spec.shape(job.load), np.dtype(spec.dtype)
        if out is None:
            try:
                self.arrays[name] = np.empty(shape, dtype)
            except (MemoryError, ValueError):  # as of sizes beyond any memory
                text = f"{spec.name}: no memory for the result, {dtype} {shape}: use smaller sizes"
                raise errors.DataError(text) from None
            return
        if is_path(out):
            file = NewFile(out, force)
            if file.path.suffix != ".npy":
                raise errors.UsageError(f"out: {file.path}: results of hosts go to .npy files")
            self.files[name] = file
            self.arrays[name] = file.create(shape, dtype, 0, 1)
            self._add_file(name, self.arrays[name])
            return
        if not isinstance(out, np.ndarray) or not out.flags.writeable:
            raise errors.UsageError(f"out: {type(out).__name__} isn't an array to write to")
        if out.shape != shape or not np.can_cast(dtype, out.dtype, CASTING):
            raise errors.DataError(
                f"out: {out.shape} {out.dtype}, but the result is {shape} {dtype}"
            )
        # Units of a lost host are sent again, from an input that must still be as it was.
        arrays = [x for x in job.inputs.values() if isinstance(x, np.ndarray)]
        self.arrays[name] = out
        if any(np.may_share_memory(out, x) for x in arrays):
            self.arrays[name], self._targets[name] = np.empty(shape, dtype), out

    def store(self, first: int, count: int, rows: Rows) -> None:
        for name, values in rows.items():
            place = self.arrays[name][first : first + count]
            if values.shape != place.shape or not np.can_cast(values.dtype, place.dtype, CASTING):
                raise errors.DataError(
                    f"a host returned {values.dtype} {values.shape}, the result is"
                    f" {place.dtype} {place.shape}"
                )
            if isinstance(values, np.ndarray):
                cast = values.astype(place.dtype, casting=CASTING, copy=False)
                if name in self._files:
                    self._files[name].write(first, cast)
                else:
                    np.copyto(place, cast)

    def finish(self) -> Any:
        self.complete()
        self._close_files()
        results: dict[str, Any] = dict(self.arrays)
        for name, target in self._targets.items():
            np.copyto(target, results[name], casting=CASTING)
            results[name] = target
        for name, file in self.files.items():
            results[name] = str(file.commit())
        return results.get("", results)

    def discard(self) -> None:
        for file in self.files.values():
            file.discard()
        self._close_files()


def connect(
    cluster: str,
    *,
    security: Any = None,
    insecure: bool = False,
    timeout: float = 30.0,
    patience: float = channel.PATIENCE,
) -> ClusterClient:
    """Return a client of the hosts that are workers of the Dask cluster at `cluster`.

    Parameters
    ----------
    cluster : str, ``tls://HOST:PORT`` or ``tcp://HOST:PORT`` of its scheduler
    security : distributed.Security, optional; by default that of Dask's configuration
    insecure : bool, allow tcp:// to another machine: no encryption, and no check of who is there
    timeout : float, seconds for the scheduler to answer
    patience : float, seconds without a sign of life after which a host counts as lost

    Raises
    ------
    UsageError, Unavailable, NotPermitted, ProtocolError
    """
    low, high = channel.MIN_PATIENCE, channel.MAX_PATIENCE
    if not isinstance(patience, int | float) or not low <= patience <= high:
        raise errors.UsageError(
            f"patience: {quoted(patience)} should be {low:g} to {high:g} seconds"
        )
    try:
        from hetsched.hosts.dask_hosts import DaskHosts
    except ImportError:
        raise errors.Unavailable("Dask isn't installed: pip install 'hetsched[cluster]'") from None
    hosts = DaskHosts(
        cluster, security=security, insecure=insecure, timeout=timeout, patience=patience
    )
    return ClusterClient(hosts, HostModels(paths.state_dir() / "hosts.json"))


_shared: dict[str, ClusterClient] = {}
_shared_lock = threading.Lock()


def shared_client(cluster: str) -> ClusterClient:
    """Return this process's client of a cluster, with Dask's configured security; as `connect`."""
    with _shared_lock:
        client = _shared.pop(cluster, None)
        if client is None or client.is_closed:
            client = connect(cluster)
        _shared[cluster] = client  # the latest is the last
        if len(_shared) > MAX_SHARED:
            _shared.pop(next(iter(_shared))).close()
        return client


@atexit.register
def _close_shared() -> None:
    while _shared:
        _shared.popitem()[1].close()


os.register_at_fork(
    before=_shared_lock.acquire,
    after_in_parent=_shared_lock.release,
    after_in_child=_shared_lock.release,
)


def _reference(f: Any) -> str:
    """Return ``module:qualname`` of a function that hosts can import. Raises UsageError."""
    module, name = getattr(f, "__module__", ""), getattr(f, "__qualname__", "")
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    if module in ("", "__main__") or found is None or undecorated(found) is not undecorated(f):
        raise errors.UsageError(
            f"{name or f!r:.100} can't be imported by hosts: put it at the top level of a module"
        )
    return f"{module}:{name}"
