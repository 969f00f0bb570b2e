"""Jobs over several hosts: `hetsched.Client(cluster=...)`."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from hetsched import errors
from hetsched.client.client import plain_value
from hetsched.cluster.coordinator import Coordinator, HostModels, Outcome
from hetsched.cluster.tcp import ClusterSpec, TcpHosts
from hetsched.functions.files import OutputFile, is_path
from hetsched.text import columns, number
from hetsched.workload import find
from hetsched.workload.iterative import Iterative
from hetsched.workload.protocol import sizes_as_text


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

    def __init__(self, hosts: TcpHosts) -> None:
        self._hosts, self._models = hosts, HostModels()
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
        **params: Any,
    ) -> ClusterJob:
        """Submit a job; the parameters are those of `Client.submit`.

        Parameters
        ----------
        arrays : array, path of a `.npy` file, mapping of name to these, or None: generated
            A file that hosts see under the same path is read by each host itself.
        out : array, path of a `.npy` file, mapping of name to these, or None: new arrays

        Raises
        ------
        UsageError, DataError, InputMissing, CantCreate
        """
        options = {"devices": devices, "memory_limit": memory_limit, "verify": verify}
        spec, files = self._spec(workload, arrays, out, force, seed, params)
        spec.options = {name: value for name, value in options.items() if value}
        job = ClusterJob()
        self._pool.submit(self._run, job, spec, files)
        return job

    def _spec(
        self, workload: str, arrays: Any, out: Any, force: bool, seed: int, params: dict[str, Any]
    ) -> tuple[ClusterSpec, dict[str, OutputFile]]:
        plug_in = find(workload)
        params = {name: plain_value(name, value) for name, value in params.items()}
        if isinstance(plug_in, Iterative):
            raise errors.Unavailable(f"{workload} runs on one host: it is iterative")
        given = arrays if isinstance(arrays, Mapping) else {plug_in.only_input: arrays}
        if arrays is None:
            given = {}
        elif None in given:
            raise errors.UsageError(f"{workload} has several inputs: give a mapping of their names")
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
        outputs, files = self._outputs(plug_in, p, load, out, force)
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
                out_paths={n: file.hidden for n, file in files.items()},
            ),
            files,
        )

    def _outputs(
        self, plug_in: Any, p: Any, load: int, out: Any, force: bool
    ) -> tuple[dict[str, np.ndarray], dict[str, OutputFile]]:
        specs = [spec for spec in plug_in.arrays(p) if spec.is_output]
        # A job with one output has it without a name.
        names = {s.name: s.name if len(specs) > 1 else "" for s in specs}
        given = out if isinstance(out, Mapping) else {} if out is None else {specs[0].name: out}
        if len(specs) > 1 and out is not None and not isinstance(out, Mapping):
            raise errors.UsageError(f"out: there are several outputs, {', '.join(names)}: name them")
        outputs: dict[str, np.ndarray] = {}
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
            else:
                outputs[names[name]] = np.asarray(value)
        return outputs, files

    def _run(self, job: ClusterJob, spec: ClusterSpec, files: dict[str, OutputFile]) -> None:
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
                self._hosts.spec = spec
                stack.callback(self._hosts.forget)
                coordinator = Coordinator(
                    self._hosts, self._models, kind, spec.load, spec.epoch
                )
                try:
                    coordinator.run(job._is_cancelled.is_set)
                finally:
                    job.outcome = coordinator.outcome
                if job._is_cancelled.is_set():
                    raise errors.Cancelled("the job was cancelled")
                result: dict[str, Any] = dict(spec.outputs)
                for name, file in files.items():
                    result[name] = str(file.commit())
            job.set_result(result[""] if "" in result else result)
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
    head = f"{outcome.load} units in {number(outcome.seconds)} s, spread {outcome.spread:.0%}"
    if outcome.again:
        head += f", {outcome.again} units of lost hosts again"
    names = ("host", "planned", "units", "parts", "seconds", "computing", "")
    return "\n".join([head, *columns(names, rows, 1, None)])
