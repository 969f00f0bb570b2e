"""Loops that numba compiles, each once for all processes: it keeps their code on disk."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import numba
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

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


# ---- Prefetching: the processor's own prefetchers stop at the end of a page, and follow few
# arrays at once. Where a loop reads several long ones, asking for what is needed about 2 KiB later
# helps a lot: the product of a sparse matrix (10^6 rows of 7 nonzeros) takes 6.5 ms instead of 9.5
# on one core in huge pages, and 7.4 instead of 10.5 in small ones.

_function: Any = cgutils.get_or_insert_function
_READ, _KEEP, _DATA = 0, 3, 1
"""For a load, in all levels of the cache, of data: arguments of LLVM's prefetch."""


def _prefetch(context: Any, array: Any, index: Any) -> tuple[Any, Callable[..., None]]:
    """Return the signature of `prefetch`, and what writes its code."""

    def generate(target: Any, builder: Any, signature: Any, arguments: Any) -> None:
        source = target.make_array(signature.args[0])(target, builder, arguments[0])
        byte = ir.IntType(8).as_pointer()
        flag = ir.IntType(32)
        function = _function(
            builder.module,
            ir.FunctionType(ir.VoidType(), [byte, flag, flag, flag]),
            "llvm.prefetch.p0",
        )
        address = builder.bitcast(builder.gep(source.data, [arguments[1]]), byte)
        builder.call(function, [address, flag(_READ), flag(_KEEP), flag(_DATA)])

    return types.void(array, index), generate


prefetch: Any = intrinsic(_prefetch)
"""prefetch(array, index) begins to load ``array[index]`` of a one-dimensional array; an index
beyond the end does no harm."""
