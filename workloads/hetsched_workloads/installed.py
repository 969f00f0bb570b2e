"""Finds installed libraries without importing them."""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hetsched.workload import KernelContext

Make = Callable[[Any, int, KernelContext], Any]


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


def late(module: str) -> Make:
    """Return `module.make`, imported at its first call, so that libraries load only where used."""
    return lambda p, chunk, context: importlib.import_module(module).make(p, chunk, context)
