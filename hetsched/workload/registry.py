"""The registry of workloads, found by the entry-point group ``hetsched.workloads``.

And whether the code of one has changed on disk since it was loaded in this process."""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import os
import sys
from collections.abc import Iterable
from typing import Any

from hetsched.errors import DataError, UsageError, text_of
from hetsched.units import closest_hint, quoted
from hetsched.workload.protocol import BaseWorkload

GROUP = "hetsched.workloads"
OWN = {"map": "hetsched.functions.named:Map"}
"""Name -> reference, of workloads that aren't listed: they have no parameters of their own."""
MAX_NAME = 300
"""Characters of a workload's name or ``module:qualname``. Arbitrary."""


def names() -> list[str]:
    """Return the names of the installed workloads. Scans entry points: tens of milliseconds."""
    return sorted(point.name for point in importlib.metadata.entry_points(group=GROUP))


@functools.lru_cache(maxsize=256)  # clients choose the names
def locate(name: str) -> str:
    """Return the ``module:qualname`` of the workload `name`, which may already be one.

    Raises UsageError, which gives the closest name.
    """
    if len(name) > MAX_NAME:
        raise UsageError(f"no workload {quoted(name)}: {len(name)} characters, at most {MAX_NAME}")
    if ":" in name or name in OWN:
        return OWN.get(name, name)
    points = importlib.metadata.entry_points(group=GROUP)
    for point in points:
        if point.name == name:
            return point.value
    raise UsageError(
        f"no workload {quoted(name)}{closest_hint(name, sorted(point.name for point in points))}"
    )


@functools.lru_cache(maxsize=256)
def find(reference: str) -> BaseWorkload:
    """Return the workload of a name or ``module:qualname``; imported once per process.

    Raises UsageError.
    """
    module, _, qualname = locate(reference).partition(":")
    try:
        target: Any = importlib.import_module(module)
        for part in qualname.split("."):
            target = getattr(target, part)
        workload = target() if isinstance(target, type) else target
    except (Exception, SystemExit) as error:  # importing a plug-in may raise anything
        reason = f"{type(error).__name__}: {text_of(error)}"
        raise UsageError(f"workload {quoted(reference)} can't be loaded: {reason:.300}") from error
    if not isinstance(workload, BaseWorkload):
        raise UsageError(
            f"workload {reference!r}: an object of class {type(workload).__name__} is neither a"
            " hetsched.workload.Workload nor an Iterative"
        )
    return workload


_loaded: dict[str, str] = {}
"""File -> its stamp when it was first seen here, right after it had been loaded."""
_files: dict[str, tuple[int, list[str]]] = {}
"""Module of a workload -> the number of modules at the last look, and its own files."""


def note_sources(reference: str) -> str:
    """Remember the files of a workload that have just been loaded.

    Returns the stamp of its module, for `check_sources` in other processes; "": it has no file.
    """
    module = locate(reference).partition(":")[0]
    _loaded.update(_stamps(path for path in _own_files(module) if path not in _loaded))
    return _loaded.get(getattr(sys.modules.get(module), "__file__", None) or "", "")


def check_sources(reference: str, expected: str) -> None:
    """Check that a workload's loaded files are those on disk, and those that the caller has.

    `expected`: what `note_sources` returned in the process that asks for a job; "": unknown.
    Raises DataError: what is loaded would compute something else than the user expects.
    """
    module = locate(reference).partition(":")[0]
    for path, stamp in _stamps(_own_files(module)).items():
        if stamp != _loaded.setdefault(path, stamp):
            raise _changed(path)
    own = _loaded.get(getattr(sys.modules.get(module), "__file__", None) or "", "")
    if expected and own and own != expected:
        raise _changed(str(sys.modules[module].__file__))


def _changed(path: str) -> DataError:
    return DataError(
        f"{path}: has changed since it was loaded; restart the daemon, or the program that uses"
        " Local, to run the new code"
    )


def _own_files(module: str) -> list[str]:
    """Return the source files of a workload's module and of its package, as far as loaded."""
    count, files = _files.get(module, (0, []))
    if count == len(sys.modules):
        return files
    modules = dict(sys.modules)
    found = modules.get(module)
    package = module if hasattr(found, "__path__") else getattr(found, "__package__", "") or ""
    paths = {
        path
        for name, each in modules.items()
        if name == module or (package and f"{name}.".startswith(f"{package}."))
        if (path := getattr(each, "__file__", None)) and path.endswith(".py")
    }
    _files[module] = len(modules), sorted(paths)
    return _files[module][1]


def _stamps(paths: Iterable[str]) -> dict[str, str]:
    """Return what changes whenever a file is edited, of those that can be read."""
    stamps = {}
    for path in paths:
        try:
            status = os.stat(path)  # noqa: PTH116 - on the way of every job
        except OSError:
            continue
        stamps[path] = f"{status.st_mtime_ns}:{status.st_size}:{status.st_ino}"
    return stamps
