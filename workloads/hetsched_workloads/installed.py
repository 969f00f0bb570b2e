"""Finds installed libraries without importing them."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import importlib.metadata
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hetsched.workload import Kernel, KernelContext, Variant
from hetsched.workload.protocol import DISTRIBUTIONS, version

CUPY = DISTRIBUTIONS["cupy"]
__all__ = [
    "CUPY",
    "late",
    "processor",
    "processor_id",
    "shared_library",
    "solver_variants",
    "version",
]


@functools.cache
def shared_library(distribution: str, prefix: str) -> tuple[str, Path] | None:
    """Return (version, path) of the file ``prefix*`` of an installed distribution, or None."""
    try:
        installed = importlib.metadata.distribution(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None
    for file in installed.files or ():
        path = Path(str(installed.locate_file(file)))
        if path.name.startswith(prefix) and path.exists():
            return installed.version, path.resolve()
    return None


@functools.cache
def processor() -> tuple[str, str]:
    """Return (vendor, model name) of the first processor; empty if the system doesn't name them.

    `HETSCHED_CPU_VENDOR` (GenuineIntel, AuthenticAMD) overrides the vendor, so that tests cover
    the order of variants on either.
    """
    fields: dict[str, str] = {}
    with contextlib.suppress(OSError):
        text = Path("/proc/cpuinfo").read_text().partition("\n\n")[0]
        for line in text.splitlines():
            key, _, value = line.partition(":")
            fields[key.strip()] = value.strip()
    vendor = os.environ.get("HETSCHED_CPU_VENDOR") or fields.get("vendor_id", "")
    return vendor, fields.get("model name", fields.get("CPU part", ""))


@functools.cache
def processor_id() -> str:
    """Return what tells this kind of processor from others in the names of files."""
    return hashlib.sha256(" ".join(processor()).encode()).hexdigest()[:8]


def late(module: str) -> Callable[[Any, int, KernelContext], Kernel]:
    """Return `module.make`, imported at its first call, so that libraries load only where used."""

    def make(p: Any, chunk: int, context: KernelContext) -> Kernel:
        kernel: Kernel = importlib.import_module(module).make(p, chunk, context)
        return kernel

    return make


@functools.cache
def solver_variants(kind: str, folder: str, **modules: str) -> tuple[Variant, ...]:
    """Return the installed variants of a solver whose kernels are in the package `folder`.

    `modules`: library -> module with its kernels, the likely fastest first.
    """
    return tuple(
        Variant(library, found, late(f"{folder}{module}"))
        for library, module in modules.items()
        if kind == {"cupy": "cuda", "pyopencl": "opencl"}.get(library, "cpu")
        if (found := version(library, *(CUPY if library == "cupy" else (library,))))
    )
