"""Jobs over several hosts: `hetsched.Client(cluster=...)`."""

from __future__ import annotations

import contextlib
import itertools
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from hetsched import errors, paths
from hetsched.client.client import plain_value
from hetsched.cluster.coordinator import Coordinator, HostModels, Outcome
from hetsched.functions.files import OutputFile, is_path
from hetsched.functions.map import make_call
from hetsched.functions.named import find_function
from hetsched.functions.twins import undecorated
from hetsched.hosts.channel import PATIENCE, Mapped
from hetsched.hosts.tcp import ClusterSpec, TcpHosts
from hetsched.text import columns, number
from hetsched.units import counted
from hetsched.workload import find
from hetsched.workload.iterative import Iterative
from hetsched.workload.protocol import sizes_as_text

Follow = Callable[[Outcome], object] | None


class ClusterJob(Future[Any]):
    """Future of a job's result, an array, or a dict by name where there are several outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.outcome: Outcome | None = None
        self._is_cancelled = threading.Event()

    def cancel(self) -> bool:
        """Stop a job that waits or runs; then `result` raises Cancelled or CancelledError."""
        self._is_cancelled.set()
        return super().cancel() or not self.done()

    def explain(self) -> str:
        """Return which host did what, as a table. Raises TryAgain before the end."""
        if self.outcome is None:
            raise errors.TryAgain("the job hasn't ended")
        return explain(self.outcome)


class ClusterClient:
    """Runs jobs over `hosts`, one after the other. Any thread may use it."""

    def __init__(self, hosts: TcpHosts, models: HostModels | None = None) -> None:
        self._hosts, self._models = hosts, models or HostModels()
        self._epochs = itertools.count(1)
        self._pool = ThreadPoolExecutor(1, "hetsched-cluster")

    def __enter__(self) -> ClusterClient:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End the connections to the hosts; jobs that wait are cancelled."""
        self._pool.shutdown(cancel_futures=True)
        self._hosts.close()

    def hosts(self) -> Sequence[str]:
        """Return the names of the hosts."""
        return self._hosts.hosts()

    def wait_for_hosts(self, count: int, timeout: float = 60.0) -> None:
        """Wait until there are `count` hosts. Raises WaitTimeout."""
        if not self._hosts.wait(count, timeout):
            raise errors.WaitTimeout(f"{len(self.hosts())} hosts after {timeout:g} s, not {count}")

    def submit(
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
        follow: Follow = None,
        **params: Any,
    ) -> ClusterJob:
        """Submit a job; the parameters are those of `Client.submit`.

        Parameters
        ----------
        arrays : array, path of a `.npy` file, mapping of name to these, or None: generated
            A file that hosts see under the same path is read by each host itself.
        out : array, path of a `.npy` file, mapping of name to these, or None: new arrays
        follow : callable, gets what hosts have done so far whenever one has done a part

        Raises
        ------
        UsageError, DataError, InputMissing, CantCreate
        """
        options = {"devices": devices, "memory_limit": memory_limit, "verify": verify}
        spec, files = self._spec(workload, arrays, out, force, seed, params)
        spec.options = {name: value for name, value in options.items() if value}
        job = ClusterJob()
        self._pool.submit(self._run, job, spec, files, follow)
        return job

    def map(
        self,
        f: Callable[..., Any] | str,
        *arrays: Any,
        axis: int = 0,
        overlap: int = 0,
        mode: str = "reflect",
        dtype: Any = None,
        broadcast: int | Iterable[int] = (),
        follow: Follow = None,
        **kwargs: Any,
    ) -> Any:
        """Apply a function to blocks of arrays over all hosts, as `hetsched.map` on one.

        Each host imports the function by its name, ``module:qualname`` if `f` is a str: a closure,
        a lambda or one of a script's own file won't do. `follow` is as in `submit`.

        Raises
        ------
        UsageError, DataError
        HetschedError
            What the function raised on a host, with the host and the units.
        """
        with contextlib.ExitStack() as stack:
            name = f if isinstance(f, str) else _reference(f)
            f = find_function(f) if isinstance(f, str) else f
            call = make_call(f, arrays, axis, overlap, mode, broadcast, kwargs, stack)
            if not call.load:
                raise errors.DataError("the arrays have no units: there is nothing to compute")
            positions = list(enumerate(call.positions))
            spec = ClusterSpec(
                epoch=next(self._epochs),
                workload=name,
                params={key: plain_value(key, value) for key, value in kwargs.items()},
                options={},
                load=call.load,
                split={str(i): call.split[at] for i, (is_split, at) in positions if is_split},
                whole={str(i): call.whole[at] for i, (is_split, at) in positions if not is_split},
                paths={},
                call=Mapped(call.axis, overlap, None if dtype is None else str(np.dtype(dtype))),
                block=call.with_overlap,
            )
            job = ClusterJob()
            self._pool.submit(self._run, job, spec, {}, follow).result()
            named = job.result()
            results = list(named.values()) if isinstance(named, dict) else [named]
            joined = [np.moveaxis(result, 0, call.axis) for result in results]
            return tuple(joined) if isinstance(named, dict) else joined[0]

    def _spec(
        self, workload: str, arrays: Any, out: Any, force: bool, seed: int, params: dict[str, Any]
    ) -> tuple[ClusterSpec, dict[str, OutputFile]]:
        plug_in = find(workload)
        params = {name: plain_value(name, value) for name, value in params.items()}
        if isinstance(plug_in, Iterative):
            raise errors.Unavailable(f"{workload} runs on one host: it is iterative")
        if isinstance(arrays, Mapping) or arrays is None:
            given = dict(arrays or {})
        elif plug_in.only_input is not None:
            given = {plug_in.only_input: arrays}
        else:
            raise errors.UsageError(
                f"{workload} has several inputs: give a mapping of their names"
            )
        if "" in given and plug_in.only_input is not None:
            given[plug_in.only_input] = given.pop("")
        inputs: dict[str, np.ndarray] = {}
        paths: dict[str, Path] = {}
        for name, value in given.items():
            if is_path(value):
                paths[name] = Path(value).resolve()
                inputs[name] = _open(paths[name])
            else:
                inputs[name] = np.asarray(value)
        params = dict(sizes_as_text(plug_in, params))
        p = plug_in.infer(params, {n: (a.shape, str(a.dtype)) for n, a in inputs.items()})
        load = plug_in.load(p)
        specs = {spec.name: spec for spec in plug_in.arrays(p)}
        for spec in specs.values():
            if spec.is_input and spec.name not in inputs:
                if spec.name in plug_in.optional_inputs:
                    continue
                inputs[spec.name] = np.empty(spec.shape(load), spec.dtype)
                plug_in.generate(p, seed, spec.name, 0, inputs[spec.name])
        outputs, targets, files = self._outputs(plug_in, p, load, out, force, inputs)
        return (
            ClusterSpec(
                epoch=next(self._epochs),
                workload=workload,
                params=_own(plug_in, params, p, inputs),
                options={},
                load=load,
                split={n: a for n, a in inputs.items() if not specs[n].is_whole},
                whole={n: a for n, a in inputs.items() if specs[n].is_whole},
                paths=paths,
                outputs=outputs,
                targets=targets,
                out_paths={n: file.hidden for n, file in files.items()},
            ),
            files,
        )

    def _outputs(
        self,
        plug_in: Any,
        p: Any,
        load: int,
        out: Any,
        force: bool,
        inputs: Mapping[str, np.ndarray],
    ) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], dict[str, OutputFile]]:
        """Return where results arrive, the caller's own arrays, and files."""
        specs = [spec for spec in plug_in.arrays(p) if spec.is_output]
        # A job with one output has it without a name.
        names = {s.name: s.name if len(specs) > 1 else "" for s in specs}
        given = out if isinstance(out, Mapping) else {} if out is None else {specs[0].name: out}
        if len(specs) > 1 and out is not None and not isinstance(out, Mapping):
            raise errors.UsageError(f"out: there are several, {', '.join(names)}: name them")
        if "" in given and len(specs) == 1:
            given = {specs[0].name: given[""]}
        outputs: dict[str, np.ndarray] = {}
        targets: dict[str, np.ndarray] = {}
        files: dict[str, OutputFile] = {}
        for name, value in given.items():
            spec = next((s for s in specs if s.name == name), None)
            if spec is None:
                raise errors.UsageError(f"out: there is no output {name!r:.50}")
            if is_path(value):
                file = OutputFile(value, force)
                if file.path.suffix != ".npy":
                    raise errors.UsageError(f"out: {file.path}: results of hosts go to .npy files")
                outputs[names[name]] = file.create(spec.shape(load), np.dtype(spec.dtype), 0, 1)
                files[names[name]] = file
                continue
            target, shape = _target(value), spec.shape(load)
            if target.shape != shape or not np.can_cast(spec.dtype, target.dtype, "same_kind"):
                raise errors.DataError(
                    f"out: {target.shape} {target.dtype}, but the result is {shape} {spec.dtype}"
                )
            targets[names[name]] = target
            # A host that dies in mid-result must not leave torn rows in an input.
            is_apart = not any(np.may_share_memory(target, x) for x in inputs.values())
            if is_apart and target.flags.c_contiguous and target.dtype == spec.dtype:
                outputs[names[name]] = target
        return outputs, targets, files

    def _run(
        self,
        job: ClusterJob,
        spec: ClusterSpec,
        files: dict[str, OutputFile],
        follow: Follow = None,
    ) -> None:
        if not job.set_running_or_notify_cancel():
            return
        try:
            with contextlib.ExitStack() as stack:
                for file in files.values():
                    stack.callback(file.discard)
                kind = f"{spec.workload} {sorted(spec.params.items())}" + "".join(
                    f" {n}{a.shape[1:]}{a.dtype}" for n, a in sorted(spec.split.items())
                )
                self._hosts.find_shared([*spec.paths.values(), *spec.out_paths.values()])
                self._hosts.begin(spec)
                stack.callback(self._hosts.forget)
                coordinator = Coordinator(
                    self._hosts, self._models, kind, spec.load, spec.epoch, follow=follow
                )
                try:
                    coordinator.run(job._is_cancelled.is_set)
                finally:
                    job.outcome = coordinator.outcome
                    self._models.save()
                if job._is_cancelled.is_set():
                    raise errors.Cancelled("the job was cancelled")
                result: dict[str, Any] = dict(spec.outputs)
                for name, target in spec.targets.items():
                    if result[name] is not target:
                        np.copyto(target, result[name], casting="same_kind")
                        result[name] = target
                for name, file in files.items():
                    result[name] = str(file.commit())
            job.set_result(result.get("", result))
        except BaseException as error:
            job.set_exception(error)


def _own(
    plug_in: Any, params: dict[str, Any], p: Any, inputs: Mapping[str, np.ndarray]
) -> dict[str, Any]:
    """Return the parameters that don't follow from the arrays, as the load does in each part."""
    layouts = {name: (array.shape, str(array.dtype)) for name, array in inputs.items()}
    for name in params:
        fewer = {other: value for other, value in params.items() if other != name}
        with contextlib.suppress(errors.HetschedError):
            if plug_in.infer(fewer, layouts) == p:
                params = fewer
    return params


def connect(
    cluster: str,
    *,
    security: Any = None,
    insecure: bool = False,
    timeout: float = 30.0,
    patience: float = PATIENCE,
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
    try:
        from hetsched.hosts.dask_hosts import DaskHosts
    except ImportError:
        raise errors.Unavailable("Dask isn't installed: pip install 'hetsched[cluster]'") from None
    hosts = DaskHosts(
        cluster, security=security, insecure=insecure, timeout=timeout, patience=patience
    )
    return ClusterClient(hosts, HostModels(paths.state_dir() / "hosts.json"))


def _target(value: Any) -> np.ndarray:
    if not isinstance(value, np.ndarray) or not value.flags.writeable:
        raise errors.UsageError(f"out: {type(value).__name__} isn't an array to write to")
    return value


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


def _open(path: Path) -> np.ndarray:
    try:
        array: np.ndarray = np.load(path, mmap_mode="r", allow_pickle=False)
    except OSError as error:
        raise errors.InputMissing(f"{path}: {error.strerror or error}") from None
    except (ValueError, EOFError) as error:
        raise errors.DataError(f"{path}: isn't a usable .npy file: {error}") from None
    if not isinstance(array, np.ndarray):
        raise errors.DataError(f"{path}: isn't a .npy file")
    return array


def explain(outcome: Outcome) -> str:
    """Return a table of hosts and what they did."""
    rows = [
        [
            host,
            "-" if work.planned is None else str(work.planned),
            str(work.units),
            str(work.parts),
            number(work.seconds),
            number(work.busy),
            f"lost: {work.lost}" if work.lost else "",
        ]
        for host, work in outcome.work.items()
    ]
    load, seconds = counted(outcome.load, "unit"), number(outcome.seconds)
    head = f"{load} in {seconds} s, spread {outcome.spread:.0%}"
    if outcome.again:
        head += f", {counted(outcome.again, 'unit')} of lost hosts again"
    names = ("host", "planned", "units", "parts", "seconds", "computing", "")
    return "\n".join([head, *columns(names, rows, 1, None)])
