"""`map`, `reduce` and `divisible`: a function of the caller on all devices."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any, Literal, TypeVar, get_args

import msgspec
import numpy as np
from msgspec import Meta

from hetsched.dtypes import NUMERIC
from hetsched.errors import DataError, UsageError
from hetsched.functions.call import Call, Reduction
from hetsched.functions.function import KINDS, decorated, same_call, undecorated
from hetsched.functions.run import run_call
from hetsched.functions.workload import MAX_ARRAYS
from hetsched.job import Bytes, DeviceNames, checked
from hetsched.machine_limits import free_memory
from hetsched.paths import is_path
from hetsched.store.formats import open_array
from hetsched.store.stored import Stored, checked_axis, is_stored
from hetsched.units import format_bytes, parse_size, quoted

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
    if cluster is not None:
        if resume:
            raise UsageError("resume: a call over the hosts of a cluster can't be resumed")
        from hetsched.hosts.client import shared_client

        return shared_client(cluster).map(
            f, *arrays, out=out, dtype=dtype, shape=shape, memory=memory, devices=devices,
            **blocks, **kwargs,
        )  # fmt: skip
    checked_options(shape=shape, memory=memory, devices=devices)
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


# ---- their arguments

Mode = Literal["reflect", "mirror", "nearest", "wrap", "constant"]
"""What lies beyond the ends of an array, as in scipy.ndimage."""


class Options(msgspec.Struct, frozen=True):
    """Those of `map` that don't depend on its arrays."""

    axis: Annotated[int, Meta(description="a whole number")] = 0
    overlap: Annotated[int, Meta(ge=0, description="a number of units from 0 on")] = 0
    mode: Annotated[Mode, Meta(description=f"one of {', '.join(get_args(Mode))}")] = "reflect"
    broadcast: Annotated[
        tuple[int, ...], Meta(description="the position of an array, or several")
    ] = ()
    shape: (
        Annotated[tuple[Annotated[int, Meta(ge=0)], ...], Meta(description="a tuple of lengths")]
        | None
    ) = None
    memory: Bytes | None = None
    devices: DeviceNames = ()


def checked_options(*, devices: Any = (), memory: Any = None, **others: Any) -> Options:
    """Check options also of calls that become no job, which would check them."""
    given = {name: _plain(value) for name, value in {"memory": memory, **others}.items()}
    if type(given.get("broadcast")) is int:  # no bool
        given["broadcast"] = (given["broadcast"],)
    if isinstance(memory, str):
        try:
            given["memory"] = parse_size(memory)
        except UsageError as error:
            raise UsageError(f"memory: {error}") from None
    if isinstance(devices, str):
        devices = devices.split(",") if devices else ()
    return checked(Options, devices=() if devices is None else devices, **given)


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        return tuple(_plain(item) for item in value)
    return value


def make_call(
    f: Callable[..., Any],
    arrays: Sequence[Any],
    keywords: dict[str, Any],
    stack: contextlib.ExitStack,
    *,
    axis: int = 0,
    overlap: int = 0,
    mode: str = "reflect",
    broadcast: int | Iterable[int] = (),
    dtype: Any = None,
) -> Call:
    """`stack` closes the files that the call reads. Raises UsageError, DataError, InputMissing."""
    if not callable(f):
        raise UsageError(f"{quoted(f)} should be a function")
    f = undecorated(f)
    if not arrays:
        raise UsageError("give at least one array")
    if len(arrays) > MAX_ARRAYS:
        raise UsageError(f"{len(arrays)} arrays; at most {MAX_ARRAYS}")
    options = checked_options(axis=axis, overlap=overlap, mode=mode, broadcast=broadcast)
    axis, overlap, mode = options.axis, options.overlap, options.mode
    if wrong := [each for each in options.broadcast if not 0 <= each < len(arrays)]:
        raise UsageError(
            f"broadcast: {wrong[0]} should be the position of an array, 0 to {len(arrays) - 1}"
        )
    split: list[Any] = []
    whole: list[np.ndarray] = []
    positions: list[tuple[bool, int]] = []
    number: int | None = None
    for position, value in enumerate(arrays):
        array = _as_array(value, position, axis, stack)
        if position in options.broadcast or not array.ndim:
            positions.append((False, len(whole)))
            whole.append(np.asarray(array.array) if isinstance(array, Stored) else array)
            continue
        positions.append((True, len(split)))
        if isinstance(array, Stored):
            number = array.axis if number is None else number
            if array.axis != number:
                raise DataError(f"axis {axis} isn't the same in all arrays: give it from 0 on")
            split.append(array)
            continue
        number = checked_axis(axis, array, f"array {position}") if number is None else number
        if array.ndim <= number:
            raise DataError(f"array {position} has shape {array.shape}: it has no axis {number}")
        split.append(np.moveaxis(array, number, 0))
    if not split:
        raise UsageError("all arrays are broadcast: there is nothing to divide")
    lengths = [x.shape[0] for x in split]
    if len(set(lengths)) > 1:
        raise DataError(f"the arrays have {lengths} units along axis {axis}: they must be equal")
    _check_room(split, overlap)
    call = Call(f, keywords, tuple(positions), split, whole, number or 0, overlap, mode)
    call.dtype = None if dtype is None else _named_dtype(dtype)
    return call


def _check_room(split: Sequence[Any], overlap: int) -> None:
    """Raise DataError if memory doesn't hold the smallest block, with `overlap` on either side,
    and a result of its size.
    """
    block = 2 * (1 + 2 * overlap) * sum(x.nbytes // max(1, x.shape[0]) for x in split)
    if overlap and block > (free := int(free_memory())):
        raise DataError(
            f"overlap: blocks of {overlap} units on either side take {format_bytes(block)} with"
            " their results;"
            f" {format_bytes(free)} are free"
        )


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
        _numeric(value.dtype, f"array {position}")
        return value
    if isinstance(value, np.ma.MaskedArray):
        raise DataError(
            f"array {position} is masked: give its values and its mask, or use its method filled"
        )
    try:
        array = np.asarray(_on_host(value))
    except (TypeError, ValueError, BufferError, RuntimeError) as error:
        raise DataError(f"array {position}: {quoted(value)} is not an array: {error}") from None
    _numeric(array.dtype, f"array {position}")
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def _on_host(value: Any) -> Any:
    """Return an array of another library as one of NumPy, without a copy if it is in memory."""
    if hasattr(value, "__cuda_array_interface__") and hasattr(value, "get"):  # of CuPy
        return value.get()
    if hasattr(value, "__dlpack__") and not isinstance(value, np.ndarray | np.generic):
        return np.from_dlpack(value)
    return value


def _numeric(dtype: np.dtype[Any], what: str) -> np.dtype[Any]:
    if dtype.kind not in NUMERIC:
        raise DataError(f"{what}: {dtype}; only numeric dtypes are supported")
    return dtype


def _named_dtype(dtype: Any) -> np.dtype[Any]:
    try:
        return _numeric(np.dtype(dtype), "dtype")
    except TypeError:
        raise UsageError(f"dtype: {quoted(dtype)} is none of NumPy's") from None
