"""The registry of workloads, found by the entry-point group ``hetsched.workloads``."""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
from typing import Any

from hetsched.errors import UsageError
from hetsched.units import quoted
from hetsched.workload.conversion import closest_hint
from hetsched.workload.protocol import BaseWorkload

GROUP = "hetsched.workloads"
MAX_NAME = 300
"""Characters of a workload's name or ``module:qualname``. Arbitrary."""


def names() -> list[str]:
    """Return the names of the installed workloads. Scans entry points: tens of milliseconds."""
    return sorted(point.name for point in importlib.metadata.entry_points(group=GROUP))


@functools.lru_cache(maxsize=256)  # clients choose the names
def locate(name: str) -> str:
    """Return the ``module:qualname`` of the workload `name`; `name` may already be one.

    Raises
    ------
    UsageError
        Unknown or very long; the message gives the closest name.
    """
    if len(name) > MAX_NAME:
        raise UsageError(f"no workload {quoted(name)}: {len(name)} characters, at most {MAX_NAME}")
    if ":" in name:
        return name
    points = importlib.metadata.entry_points(group=GROUP)
    for point in points:
        if point.name == name:
            return point.value
    raise UsageError(
        f"no workload {quoted(name)}{closest_hint(name, [point.name for point in points])}"
    )


@functools.lru_cache(maxsize=256)
def find(reference: str) -> BaseWorkload:
    """Return the workload of a name or ``module:qualname``; imported once per process.

    Raises
    ------
    UsageError
    """
    module, _, qualname = locate(reference).partition(":")
    try:
        target: Any = importlib.import_module(module)
        for part in qualname.split("."):
            target = getattr(target, part)
        workload = target() if isinstance(target, type) else target
    except Exception as error:  # importing a plug-in may raise anything
        reason = f"{type(error).__name__}: {error}"
        raise UsageError(f"workload {quoted(reference)} can't be loaded: {reason:.300}") from error
    if not isinstance(workload, BaseWorkload):
        raise UsageError(
            f"workload {reference!r}: {workload!r} is neither a hetsched.workload.Workload nor an"
            " Iterative"
        )
    return workload
