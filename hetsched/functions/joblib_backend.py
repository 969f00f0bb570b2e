"""`Executor` as a backend of joblib, which this file alone imports. Nothing is pickled."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from joblib.parallel import ParallelBackendBase, SequentialBackend, register_parallel_backend

from hetsched.devices.probe import core_pool
from hetsched.functions.session import Executor


def register_joblib() -> None:
    """Let ``joblib.parallel_config(backend="hetsched")`` run calls by `hetsched.Executor`.

    Raises ImportError without joblib.
    """
    register_parallel_backend("hetsched", _Backend)


class _Backend(ParallelBackendBase):  # type: ignore[misc]  # joblib has no types
    supports_retrieve_callback = True
    supports_sharedmem = True
    uses_threads = True
    default_n_jobs = -1

    def effective_n_jobs(self, n_jobs: int | None) -> int:
        if n_jobs == 0:
            raise ValueError("n_jobs == 0 in Parallel has no meaning")
        cores = core_pool().usable
        wanted = cores if n_jobs is None else n_jobs
        return wanted if wanted > 0 else max(1, cores + 1 + wanted)

    def configure(self, n_jobs: int = -1, parallel: Any = None, **options: Any) -> int:
        self.parallel = parallel
        self._cores = self.effective_n_jobs(n_jobs)
        self._executor = Executor(self._cores)
        return self._cores

    def submit(self, func: Callable[[], Any], callback: Any = None) -> Future[Any]:
        future = self._executor.submit(func)
        if callback is not None:
            future.add_done_callback(callback)
        return future

    def retrieve_result_callback(self, out: Future[Any]) -> Any:
        return out.result()

    def abort_everything(self, ensure_ready: bool = True) -> None:
        # joblib would count a call that ends later among those of the next Parallel.__call__
        self._executor.shutdown(wait=ensure_ready, cancel_futures=True)
        if ensure_ready:
            self._executor = Executor(self._cores)

    def terminate(self) -> None:
        self._executor.shutdown(wait=False, cancel_futures=True)

    def get_nested_backend(self) -> tuple[Any, int | None]:
        return SequentialBackend(nesting_level=(self.nesting_level or 0) + 1), None
