"""Finds installed libraries without importing them."""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hetsched.workload import Variant, version


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


def late(module: str, make: str = "make") -> Callable[..., Any]:
    """Return a function of a module that is imported at its first call, as libraries load then."""

    def call(*arguments: Any) -> Any:
        return getattr(importlib.import_module(module), make)(*arguments)

    return call


def by_tiles() -> list[Variant]:
    installed = version("pyopencl")
    make = late("hetsched_workloads.opencl_products")
    return [Variant("tiles", f"pyopencl-{installed}", make)] if installed else []


def by_opencl_fft(workload: str) -> tuple[Variant, ...]:
    """Return a variant for each library of Fourier transforms on OpenCL devices."""
    make = late("hetsched_workloads.opencl_fourier", workload)

    def variant(name: str, installed: str) -> Variant:
        return Variant(name, installed, lambda p, _, context: make(p, context, name))

    found = {name: version(name) for name in ("pyvkfft", "reikna") if version("pyopencl")}
    return tuple(variant(name, installed) for name, installed in found.items() if installed)
