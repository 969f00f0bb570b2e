"""Loops that numba compiles, each once for all processes: it keeps their code on disk."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import numba

Loop = Callable[..., Any]
Make = TypeVar("Make", bound=Callable[..., Any])

_lock = threading.RLock()


def compiling(make: Make) -> Make:
    """Let one thread at a time run `make`, which compiles: numba has failed for two at once."""

    @functools.wraps(make)
    def alone(*arguments: Any) -> Any:
        with _lock:
            return make(*arguments)

    return alone  # type: ignore[return-value]


def compiled(*fastmath: str) -> Callable[[Loop], Loop]:
    """Return a decorator; `fastmath`: what LLVM may presume of numbers, as "reassoc"."""
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": set(fastmath)}

    def compile_(function: Loop) -> Loop:
        try:
            loop: Loop = numba.njit(cache=True, **options)(function)
        except RuntimeError:  # no folder is writable
            loop = numba.njit(**options)(function)
        return loop

    return compile_
