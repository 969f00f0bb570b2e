"""`map`, `reduce` and `divisible`: a function of the caller on all devices."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from hetsched.errors import DataError, UsageError
from hetsched.functions.arguments import checked_options, make_call
from hetsched.functions.call import Reduction
from hetsched.functions.identity import same_call
from hetsched.functions.run import run_call
from hetsched.functions.twins import KINDS, decorated
from hetsched.units import quoted

T = TypeVar("T")


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
    blocks: dict[str, Any]
    blocks = {"axis": axis, "overlap": overlap, "mode": mode, "broadcast": broadcast}
    checked_options(shape=shape, memory=memory, devices=devices)
    if cluster is not None:
        if resume:
            raise UsageError("resume: a call over the hosts of a cluster can't be resumed")
        from hetsched.hosts.client import shared_client

        return shared_client(cluster).map(
            f, *arrays, out=out, dtype=dtype, shape=shape, memory=memory, devices=devices,
            **blocks, **kwargs,
        )  # fmt: skip
    with contextlib.ExitStack() as stack:
        call = make_call(f, arrays, kwargs, stack, dtype=dtype, **blocks)
        options = {**kwargs, "": [blocks, str(call.dtype)]}
        identity = same_call(call.f, arrays, options) if resume else ""
        return run_call(call, out, shape, memory, devices, identity)


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
    if on_partial is not None and not callable(on_partial):
        raise UsageError(f"on_partial: {quoted(on_partial)} should be a function of a result")
    checked_options(devices=devices)
    with contextlib.ExitStack() as stack:
        call = make_call(f, arrays, kwargs, stack, axis=axis, broadcast=broadcast)
        if not call.load:
            raise DataError(f"axis {axis} has no units: there is nothing to reduce")
        call.reduction = Reduction(combine, on_partial)
        result: T = run_call(call, devices=devices)
        return result


def divisible(f: Callable[..., Any] | None = None, /, **options: Any) -> Callable[..., Any]:
    """Decorate a function so that a call applies it by `map`; `options` as there.

    The function itself is the attribute ``__wrapped__``. The attributes `cuda` and `opencl`
    decorate its twins for these devices, which get and return arrays of CuPy, or of pyopencl.
    """
    if f is None:
        return functools.partial(divisible, **options)
    if not callable(f):
        raise UsageError(f"divisible: {quoted(f)} should be a function")
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
