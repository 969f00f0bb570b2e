"""Which libraries are installed, found out without importing them."""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.metadata
import importlib.util
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hetsched.workload import Kernel, KernelContext

CUPY = ("cupy-cuda12x", "cupy-cuda13x", "cupy")
"""The distributions that hold the module cupy."""


@functools.cache
def version(module: str, *distributions: str) -> str | None:
    """The version of the first of `distributions` that is installed, None where `module` isn't."""
    if importlib.util.find_spec(module) is None:
        return None
    for name in distributions:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return None


@functools.cache
def shared_library(distribution: str, prefix: str) -> tuple[str, Path] | None:
    """(version, path) of the file ``prefix*`` that `distribution` installed, or None."""
    try:
        found = importlib.metadata.distribution(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None
    for file in found.files or ():
        path = Path(str(found.locate_file(file)))
        if path.name.startswith(prefix) and path.exists():
            return found.version, path.resolve()
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


def late(module: str) -> Callable[[Any, int, KernelContext], Kernel]:
    """`module.make`, imported when it is called: a vendor library is loaded only where it runs."""

    def make(p: Any, chunk: int, context: KernelContext) -> Kernel:
        kernel: Kernel = importlib.import_module(module).make(p, chunk, context)
        return kernel

    return make
