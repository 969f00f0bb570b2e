"""Stores past the caches, for loops that numba compiles and that write more than a cache holds.

An ordinary store reads its line from memory before it writes it; a non-temporal one doesn't, so a
loop that writes as much as it reads moves a third less. Whole lines are copied from a small
buffer; `complete` must follow before another core may read them: such stores aren't ordered. An
atomic operation waits for them all, so nothing may count references meanwhile.
"""

from __future__ import annotations

import contextlib
import functools
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

LINE_BYTES = 64
"""Of a cache; a vector of this size is split where registers are smaller."""
DEFAULT_CACHE_BYTES = 32 << 20
"""If the system doesn't name the size of its last cache. Arbitrary."""
_intrinsic: Callable[..., Any] = intrinsic
_FENCE = "llvm.x86.sse.sfence" if platform.machine() in ("x86_64", "AMD64") else ""


def is_beyond_caches(nbytes: int) -> bool:
    """Return whether an array of so many bytes can't stay in the last cache."""
    return nbytes > _cache_bytes()


def is_aligned(rows: np.ndarray) -> bool:
    """Return whether lines begin where `rows`, and the last axis of each, begins."""
    row_bytes = rows.shape[-1] * rows.itemsize
    return rows.ctypes.data % LINE_BYTES == 0 and row_bytes % LINE_BYTES == 0


@functools.cache
def _cache_bytes() -> int:
    """Return the size of the first core's largest cache."""
    sizes = [DEFAULT_CACHE_BYTES // 1024]
    with contextlib.suppress(OSError, ValueError):
        files = Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")
        sizes = [int(file.read_text().strip().removesuffix("K")) for file in files] or sizes
    return max(sizes) * 1024


@_intrinsic
def store_line(_: Any, target: Any, source: Any, index: Any) -> Any:
    """Copy LINE_BYTES from index `index` on; `target` must be aligned there to as many."""
    signature = types.void(target, source, index)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        element = signature.args[0].dtype
        size = element.bitwidth // 8
        vector = ir.VectorType(context.get_data_type(element), LINE_BYTES // size).as_pointer()
        pointers = [
            builder.bitcast(
                builder.gep(context.make_array(kind)(context, builder, value).data, arguments[2:]),
                vector,
            )
            for kind, value in zip(signature.args[:2], arguments[:2], strict=True)
        ]
        nontemporal(builder, builder.load(pointers[1], align=size), pointers[0])
        return context.get_dummy_value()

    return signature, generate


def nontemporal(builder: Any, line: Any, pointer: Any) -> None:
    """Write the code that stores a vector of LINE_BYTES at an aligned address."""
    store = builder.store(line, pointer, LINE_BYTES)
    mark = ir.Constant(ir.IntType(32), 1)
    store.set_metadata("nontemporal", builder.module.add_metadata([mark]))


@_intrinsic
def complete(_: Any) -> Any:
    """Make all stores of this thread visible to other cores before those that follow."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if _FENCE:
            kind = ir.FunctionType(ir.VoidType(), [])
            builder.call(builder.module.declare_intrinsic(_FENCE, fnty=kind), [])
        else:
            builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.void(), generate
