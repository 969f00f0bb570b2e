"""Existing scripts: `accelerate` puts divided transforms in the place of SciPy's and NumPy's."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

import numpy as np
import scipy.fft
from scipy._lib import uarray

from hetsched.errors import UsageError
from hetsched.functions.transforms import (
    NAMES,
    Call,
    Library,
    divisible_transform,
    on_one_core,
    originals,
    scipys_own,
)
from hetsched.units import quoted

DOMAIN = "numpy.scipy.fft"
_lock = threading.Lock()
_replaced: list[tuple[ModuleType, str, Any]] = []
"""Module, name and original of each function replaced."""
_numpys = {name: getattr(np.fft, name) for name in np.fft.__all__}


def accelerate(threshold: int | None = None) -> None:
    """Divide the transforms of `scipy.fft` and `numpy.fft` over all devices, from now on.

    Also those of code that looks them up there when it calls them, as `scipy.signal` does. What
    has been imported by name before isn't changed. A backend that is set in SciPy comes first.

    Parameters
    ----------
    threshold : int, bytes, optional
        Arrays of fewer aren't divided; 0: all that can be are. By default those are for which it
        pays, as learnt.
    """
    if threshold is not None and (type(threshold) is not int or threshold < 0):
        raise UsageError(f"threshold: {quoted(threshold)} should be a number of bytes from 0 on")
    restore()
    scipys = Library("scipy.fft", on_one_core, _caller(originals), threshold, _has_backend)
    numpys = Library("numpy.fft", _caller(_numpys), _caller(_numpys), threshold)
    with _lock:
        for module, functions, library in (
            (scipy.fft, originals, scipys),
            (np.fft, _numpys, numpys),
        ):
            for name in functions.keys() & NAMES:
                function = divisible_transform(library, name, functions[name])
                function.__module__ = module.__name__  # where pickle finds it
                _replaced.append((module, name, getattr(module, name)))
                setattr(module, name, function)


def restore() -> None:
    with _lock:
        while _replaced:
            module, name, original = _replaced.pop()
            setattr(module, name, original)


def load_ipython_extension(shell: Any) -> None:
    """Accelerate the transforms of a notebook."""
    accelerate()


def _caller(functions: Mapping[str, Callable[..., Any]]) -> Call:
    """Return what calls one of these functions, SciPy's by the backend that is set, if any."""
    return lambda name, x, keywords: functions[name](x, **keywords)


def _has_backend() -> bool:
    """Return whether `scipy.fft` has another backend than its own, here or for all threads."""
    everywhere, here, _ = uarray.get_state()._pickle()
    scipys = scipy.fft._backend._ScipyBackend
    return everywhere[DOMAIN][0][0] is not scipys or any(here.get(DOMAIN, ()))


class Backend:
    """A backend for `scipy.fft.set_global_backend`, as long as SciPy has them.

    It computes what it doesn't divide by SciPy itself, since nothing else comes after a global
    backend.
    """

    __ua_domain__ = DOMAIN

    def __init__(self, threshold: int | None = None) -> None:
        library = Library("scipy.fft", on_one_core, scipys_own, threshold)
        self._functions = {
            name: divisible_transform(library, name, originals[name]) for name in NAMES
        }

    def __ua_function__(
        self, method: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        function = self._functions.get(method.__name__)
        if function is not None:
            return function(*args, **kwargs)
        with scipy.fft.set_backend("scipy", only=True):
            return method(*args, **kwargs)
