"""Loops that numba compiles, each once for all processes: it keeps their code on disk."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba

Loop = Callable[..., Any]


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
