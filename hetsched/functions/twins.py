"""Functions on GPUs: those with a twin, the attribute `cuda` or `opencl`, on arrays of CuPy or of
pyopencl; for CUDA also those that ask `namespace` for their library, and ufuncs of NumPy.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable
from types import FunctionType
from typing import Any

import numpy as np

from hetsched.errors import UsageError
from hetsched.units import quoted

KINDS = ("cuda", "opencl")
"""Of devices that functions may have twins for."""


class Asked(threading.local):
    is_true = False


asked = Asked()


def namespace(*arrays: Any) -> Any:
    """Return the module of functions for these arrays: numpy, cupy, ... (the array API standard).

    A function that computes with it only runs on CUDA devices, too.

    Raises UsageError for arrays of different libraries, and other objects.
    """
    asked.is_true = True
    modules = {id(found): found for array in arrays if (found := _module(array)) is not None}
    if len(modules) != 1:
        names = ", ".join(type(array).__name__ for array in arrays)
        raise UsageError(f"namespace: {names or 'no arrays'}; give arrays of one library")
    return next(iter(modules.values()))


def _module(array: Any) -> Any:
    """Return the namespace of an array; None: any will do, it is a number."""
    if array is None or isinstance(array, bool | int | float | complex):
        return None
    own = getattr(array, "__array_namespace__", None)
    if own is not None:
        return own()
    if type(array).__module__.partition(".")[0] == "cupy":  # whose arrays may not have it yet
        return sys.modules["cupy"]
    raise UsageError(f"namespace: {quoted(array)} should be an array")


decorated: weakref.WeakKeyDictionary[Callable[..., Any], Callable[..., Any]]
decorated = weakref.WeakKeyDictionary()
"""Function with `divisible` -> the function itself, with its twins."""


def undecorated(f: Any) -> Any:
    return decorated.get(f, f) if isinstance(f, FunctionType) else f


def twins_of(f: Any) -> dict[str, Callable[..., Any]]:
    found = {kind: twin for kind in KINDS if callable(twin := getattr(f, kind, None))}
    if isinstance(f, np.ufunc) and getattr(np, f.__name__, None) is f:  # CuPy has it, too
        found.setdefault("cuda", f)
    return found
