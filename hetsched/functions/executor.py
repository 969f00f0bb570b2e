"""Single calls of functions on all cores: `Executor`."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar

from hetsched.devices.probe import core_pool
from hetsched.errors import UsageError
from hetsched.functions.session import session
from hetsched.units import quoted

P = ParamSpec("P")
T = TypeVar("T")


class Executor(ThreadPoolExecutor):
    """A `concurrent.futures.Executor` with a thread for each core that hetsched may use.

    For calls that differ, such as the tasks of Dask and joblib; `hetsched.map` is faster for a
    function of the units of an array. While such a call runs, calls of `hetsched.map` and
    `hetsched.fft`, in it as well as in other threads, compute in their own threads: the cores are
    in use.

    Parameters
    ----------
    cores : int, optional
        Calls at once; by default the cores of this process, less if a quota allows less.

    Raises
    ------
    UsageError
    """

    def __init__(self, cores: int | None = None) -> None:
        if cores is not None and (type(cores) is not int or cores < 1):
            raise UsageError(f"cores: {quoted(cores)} should be a whole number from 1 on")
        super().__init__(cores or core_pool().usable, thread_name_prefix="hetsched-call")

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        return super().submit(_call, fn, *args, **kwargs)


def _call(fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    with session.busy():
        return fn(*args, **kwargs)
