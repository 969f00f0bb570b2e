"""Fourier transforms with SciPy's and NumPy's signatures, divided over all devices where possible.

A transform along some axes is independent for each index of another axis: these are the units.
Where all axes are transformed, two passes do: one along the others, one along the first of them.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.fft

from hetsched.functions.call import Race
from hetsched.functions.run import MAX_KINDS, divided
from hetsched.functions.session import SMALL, SPLIT, calls, session

DTYPES = frozenset(map(np.dtype, ("float32", "float64", "complex64", "complex128")))
"""Of floating-point arrays that are divided; so are integers, which count as float64."""
SMALL_BYTES = 128 << 10
"""A transform of less takes under a millisecond: it isn't looked at, which would take longer than
the transform of a few points."""
REAL_INPUT = ("rfft", "rfft2", "rfftn", "ihfft", "ihfft2", "ihfftn")
TWO_PASSES = {
    "fft2": ("fft", "fftn"), "fftn": ("fft", "fftn"),
    "ifft2": ("ifft", "ifftn"), "ifftn": ("ifft", "ifftn"),
    "rfft2": ("fft", "rfftn"), "rfftn": ("fft", "rfftn"),
    "irfft2": ("ifft", "irfftn"), "irfftn": ("ifft", "irfftn"),
    "hfft2": ("fft", "hfftn"), "hfftn": ("fft", "hfftn"),
    "ihfft2": ("ifft", "ihfftn"), "ihfftn": ("ifft", "ihfftn"),
}  # fmt: skip
"""Transform -> those along its first axis and along the others. A real one is along the last axis,
and comes before complex ones, or after them."""
SINGLE = ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")
"""Transforms along one axis; each has variants for two and for several."""
NAMES = tuple(f"{name}{count}" for count in ("", "2", "n") for name in SINGLE)
UNUSUAL, OWN_THREADS = "unusual arguments", "on a library's threads"
originals = {name: getattr(scipy.fft, name) for name in scipy.fft.__all__}
"""SciPy's own functions, whatever takes their place later."""

Call = Callable[[str, Any, Mapping[str, Any]], Any]
"""(name, array, keywords) -> result"""


@dataclass(frozen=True)
class Library:
    """Where the functions come from.

    `on_one_core` computes a part of a divided call, `whole` a call that isn't divided.
    `threshold`: bytes from which calls are divided; None: where it pays. `has_backend`: whether
    the caller has set a backend, which then gets the calls.
    """

    name: str
    on_one_core: Call
    whole: Call
    threshold: int | None = None
    has_backend: Callable[[], bool] = lambda: False


def scipys_own(name: str, x: Any, keywords: Mapping[str, Any]) -> Any:
    with scipy.fft.set_backend("scipy", only=True):
        return originals[name](x, **keywords)


def on_one_core(name: str, x: np.ndarray, keywords: Mapping[str, Any]) -> Any:
    return scipys_own(name, x, {**keywords, "workers": 1})


class Request(NamedTuple):
    name: str
    sizes: tuple[int, ...] | None
    axes: tuple[int, ...]
    norm: str | None


def divisible_transform(library: Library, name: str, original: Callable[..., Any]) -> Any:
    parameters = inspect.signature(original).parameters.values()
    names = [each.name for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD]
    array = names[0]
    defaults = {each.name: each.default for each in parameters if each.name != array}

    @functools.wraps(original)
    def function(*args: Any, **kwargs: Any) -> Any:
        # Not by Signature.bind, which takes as long as a small transform.
        passed = dict(zip(names, args, strict=False)) | kwargs
        given = defaults | passed
        is_known = len(passed) == len(args) + len(kwargs) and len(given) == len(defaults) + 1
        if not is_known or array not in given:
            return original(*args, **kwargs)  # which says what is wrong
        return transform(library, name, given.pop(array), given)

    return function


def transform(library: Library, name: str, x: Any, given: Mapping[str, Any]) -> Any:
    """Compute a transform, divided if that is possible and pays; `given`: its other arguments."""
    begun = time.perf_counter()
    why = SMALL
    is_array = type(x) is np.ndarray
    is_small = is_array and x.nbytes < SMALL_BYTES and given.get("s", given.get("n")) is None
    if not is_small or library.threshold is not None:
        request = _request(name, x, given) if is_array else "not a NumPy array"
        if isinstance(request, str):
            why = request
        elif library.has_backend():
            why = "another backend"
        elif x.nbytes >= (library.threshold or 0):
            result, saved, is_whole = _computed(library, request, x, given)
            if result is not None:
                what = OWN_THREADS if is_whole else SMALL if saved is None else SPLIT
                calls.note(name, what, time.perf_counter() - begun, saved or 0.0)
                return result
            why = "nothing to divide"
    result = library.whole(name, x, given)
    calls.note(name, why, time.perf_counter() - begun)
    return result


def _request(name: str, x: np.ndarray, given: Mapping[str, Any]) -> Request | str:
    """Return a call with its axes from 0 on, or why it isn't divided: the library then says what
    is wrong, if anything is.
    """
    if not (x.dtype in DTYPES or x.dtype.kind in "biu") or not x.dtype.isnative:
        return f"dtype {x.dtype}"
    if not x.size:
        return "empty"
    workers = given.get("workers")
    if workers == 1 and type(workers) is int:
        return "one worker"
    # SciPy takes negative numbers of workers, too: -1 is all cores.
    least = -(os.cpu_count() or 1)
    is_usual = workers is None or (type(workers) is int and workers >= least and workers != 0)
    if not is_usual or given.get("plan") is not None or given.get("out") is not None:
        return UNUSUAL
    if name in REAL_INPUT and x.dtype.kind == "c":
        return UNUSUAL
    if given["norm"] not in (None, "backward", "ortho", "forward"):
        return UNUSUAL
    if name in SINGLE:
        sizes, axes = given["n"], (given["axis"],)
        sizes = None if sizes is None else (sizes,)
    else:
        sizes, axes = given["s"], given["axes"]
    places = _places(x.ndim, sizes, axes)
    if places is None:
        return UNUSUAL
    return Request(name, None if sizes is None else tuple(map(int, sizes)), places, given["norm"])


def _places(ndim: int, sizes: Any, axes: Any) -> tuple[int, ...] | None:
    """Return the axes of a transform, from 0 on; None if a library would refuse sizes or axes."""
    if sizes is not None and not (_are_integers(sizes) and min(sizes, default=1) >= 1):
        return None
    if axes is None:
        count = ndim if sizes is None else len(sizes)
        axes = range(-count, 0)
    if not _are_integers(axes) or not all(-ndim <= axis < ndim for axis in axes):
        return None
    places = tuple(int(axis) % ndim for axis in axes)
    is_consistent = sizes is None or len(sizes) == len(places)
    return places if places and is_consistent and len({*places}) == len(places) else None


def _are_integers(values: Any) -> bool:
    return isinstance(values, tuple | list | range) and all(
        isinstance(value, int | np.integer) and not isinstance(value, bool) for value in values
    )


LEARNING_CALLS, RETRY_CALLS = 5, 50
"""Divided calls that don't count yet, as the engine starts and learns; and one in so many calls
goes the slower way."""
_races: dict[tuple[Any, ...], Race] = {}
"""Library, request, shape and dtype -> whether such calls are faster on a library's own threads:
with few large units, or none, these share what is in the cores' caches."""


def _computed(
    library: Library, request: Request, x: np.ndarray, given: Mapping[str, Any]
) -> tuple[np.ndarray | None, float | None, bool]:
    """Return the transform and the seconds saved as `_divided`; whether a library did it all."""
    whole = None
    # A threshold divides all that can be, for tests; and a call within another has one core.
    if library.threshold is None and not session.is_busy() and session.cores > 1:
        whole = _on_own_threads(library, request, x, given)
    if whole is None:
        return *_divided(library, request, x), False
    if len(_races) >= MAX_KINDS:
        _races.clear()
    key = (library.name, request, x.shape, x.dtype.str)
    race = _races.get(key) or _races.setdefault(key, Race(RETRY_CALLS, LEARNING_CALLS))
    is_other, begun = race.is_others_turn(), time.perf_counter()
    result, saved = None, None
    if is_other:
        try:
            with session.busy():
                result = whole()
        except Exception:  # the library says at the divided call what is wrong, if anything is
            race.is_over, is_other = True, False
    if not is_other:
        result, saved = _divided(library, request, x)
    if result is not None:
        race.note(is_other, time.perf_counter() - begun)
    return result, saved, is_other


def _on_own_threads(
    library: Library, request: Request, x: np.ndarray, given: Mapping[str, Any]
) -> Callable[[], Any] | None:
    """Return what computes the call on a library's threads; None: no library has some."""
    keywords = {"s": request.sizes, "axes": request.axes, "norm": request.norm}
    ducc = ducc_function(request.name, x, keywords, session.cores)
    if ducc is not None:
        return functools.partial(ducc, x, None)
    if "workers" not in given:
        return None
    return lambda: library.whole(request.name, x, {**given, "workers": session.cores})


def _divided(
    library: Library, request: Request, x: np.ndarray
) -> tuple[np.ndarray | None, float | None]:
    """Return the transform by one pass or two, None: there are no units; and the seconds saved,
    None: it was computed in this thread.
    """
    name, sizes, axes, norm = request
    if _batch_axis(x.shape, axes) is not None:
        return _one_pass(library, request, x)
    others = max((x.shape[axis] for axis in axes[1:]), default=1)
    if name not in TWO_PASSES or min(x.shape[axes[0]], others) < 2:
        return None, None
    first_name, rest_name = TWO_PASSES[name]
    first = Request(first_name, sizes and sizes[:1], axes[:1], norm)
    rest = Request(rest_name, sizes and sizes[1:], axes[1:], norm)
    passes = [first, rest] if name.startswith(("ir", "hf")) else [rest, first]
    half, saved = _one_pass(library, passes[0], x)
    result, more = _one_pass(library, passes[1], half)
    known = [seconds for seconds in (saved, more) if seconds is not None]
    return result, sum(known) if known else None


def _batch_axis(shape: Sequence[int], axes: Sequence[int]) -> int | None:
    """Return the longest of the axes that aren't transformed; the first of equal ones."""
    others = [axis for axis in range(len(shape)) if axis not in axes and shape[axis] > 1]
    return max(others, key=lambda axis: (shape[axis], -axis), default=None)


def _one_pass(
    library: Library, request: Request, x: np.ndarray
) -> tuple[np.ndarray, float | None]:
    name, sizes, axes, norm = request
    keywords: dict[str, Any] = {"s": sizes, "axes": axes, "norm": norm}
    if name in SINGLE:
        keywords = {"n": sizes and sizes[0], "axis": axes[0], "norm": norm}
    batch = _batch_axis(x.shape, axes)
    if batch is None:  # sizes have left one unit
        return library.on_one_core(name, x, keywords), None
    # With a threshold, for tests: SciPy's ask for the same bits each time.
    is_any = library.threshold is None
    ducc = ducc_function(name, x, keywords) if is_any else None
    return divided(
        lambda block: library.on_one_core(name, block, keywords),
        x,
        axis=batch,
        identity=f"{library.name}.{name} {keywords}",
        always=library.threshold is not None,
        alternative=ducc,
    )


# ---- by ducc0, where it is installed and has them; results go straight to their place

FORWARD = {None: 0, "backward": 0, "ortho": 1, "forward": 2}
"""ducc0's number of a norm: 0 nothing, 1 divide by the root of the size, 2 divide by it."""
INPUTS = {"fft": "c", "ifft": "c", "rfft": "f", "irfft": "c"}
"""Transform -> the kind of dtype that it takes here."""
INVERSE = {None: 2, "backward": 2, "ortho": 1, "forward": 0}


@functools.cache
def _ducc() -> Any:
    if importlib.util.find_spec("ducc0") is None:
        return None
    try:
        return importlib.import_module("ducc0").fft
    except Exception:  # it is broken; SciPy computes alone
        return None


def ducc_function(
    name: str, x: np.ndarray, keywords: Mapping[str, Any], threads: int = 1
) -> Callable[[np.ndarray, np.ndarray | None], Any] | None:
    """Return what computes a transform of blocks of `x` by ducc0: (block, out); None: it can't.

    `keywords`: those of SciPy's function. `out`: None for a new array, which is returned.
    """
    ducc, kind = _ducc(), name.rstrip("2n")
    if ducc is None or keywords.get("s", keywords.get("n")) is not None:
        return None
    if INPUTS.get(kind) != x.dtype.kind:
        return None
    axes = keywords["axes"] if "axes" in keywords else (keywords["axis"],)
    is_forward = not kind.startswith("i")
    inorm = (FORWARD if is_forward else INVERSE)[keywords["norm"]]
    options: dict[str, Any] = {
        "axes": axes, "forward": is_forward, "inorm": inorm, "nthreads": threads
    }  # fmt: skip
    if kind == "rfft":
        return lambda block, out: ducc.r2c(block, out=out, **options)
    if kind == "irfft":
        last = 2 * (x.shape[axes[-1]] - 1)
        if not last:
            return None
        return lambda block, out: ducc.c2r(block, out=out, lastsize=last, **options)
    return lambda block, out: ducc.c2c(block, out=out, **options)
