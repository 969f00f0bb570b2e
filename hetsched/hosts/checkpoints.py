"""A host's checkpoints of grids: files of rectangles, in a folder for each kind of job.

A host has one thread that does all of this: no disk and no server that is away holds up sweeps.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import zipfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import numpy as np

from hetsched import paths
from hetsched.cluster.orders import Saving
from hetsched.cluster.regions import Box

KEPT = 8
"""Kinds of jobs whose checkpoints a host keeps, the latest."""
SUFFIX = ".npz"


class Unreadable(Exception):
    """A checkpoint is gone or damaged."""


class Checkpoints:
    """Those of the jobs of one kind, `key`. A checkpoint's name has its job, and when it was."""

    def __init__(self, key: str, is_running: Callable[[str], bool]) -> None:
        self._folder = paths.state_dir() / "cluster" / key
        self._is_running = is_running

    def write(self, name: str, box: Box, arrays: Mapping[str, np.ndarray]) -> str:
        """Write a rectangle's arrays; return what failed."""
        path = self._path(name, box)
        hidden = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with hidden.open("wb") as file:
                np.savez(file, **dict(arrays))  # type: ignore[arg-type]
                file.flush()
                os.fsync(file.fileno())
            hidden.replace(path)
        except Exception as error:  # nobody else hears of it, and the job would wait
            with contextlib.suppress(OSError):
                hidden.unlink(missing_ok=True)
            return f"{path}: {getattr(error, 'strerror', None) or error}"
        return ""

    def read(self, name: str, box: Box, arrays: Iterable[str]) -> dict[str, np.ndarray]:
        """Read a rectangle. Raises Unreadable."""
        path = self._path(name, box)
        try:
            with np.load(path, allow_pickle=False) as file:
                return {array: file[array] for array in arrays}
        except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile) as error:
            raise Unreadable(f"{path}: isn't a usable checkpoint: {error}") from None

    def drop_before(self, keep: str) -> None:
        """Remove checkpoints older than `keep`, and those of jobs that have ended."""
        kept, of_kept = _order_of(keep)
        self._drop(lambda job, of: of < of_kept if job == kept else not self._is_running(job))

    def drop_failed(self, save: str, keep: str) -> None:
        """Remove what the job has saved before `save` and no checkpoint came of elsewhere."""
        saving, of_save = _order_of(save)
        of_kept = _order_of(keep)[1] if keep else None
        self._drop(lambda job, of: job == saving and of < of_save and of != of_kept)

    def drop_job(self, ended: str) -> None:
        self._drop(lambda job, _: job == ended)

    def savings(self) -> tuple[Saving, ...]:
        """Return what there is; of other kinds of jobs, only the latest stay."""
        folders = [path for path in self._folder.parent.glob("*") if path != self._folder]
        with contextlib.suppress(OSError):
            folders.sort(key=lambda path: path.stat().st_mtime)
            for path in folders[: -KEPT + 1]:
                jobs = {file.name.split("-")[0] for file in path.glob(f"*{SUFFIX}")}
                if not any(map(self._is_running, jobs)):
                    shutil.rmtree(path, ignore_errors=True)
        boxes: dict[str, list[Box]] = {}
        for name, path, box in self._found():
            if path.suffix == SUFFIX:
                boxes.setdefault(name, []).append(box)
        return tuple(Saving(name, _order_of(name)[1][1], tuple(b)) for name, b in boxes.items())

    def _path(self, name: str, box: Box) -> Path:
        return self._folder / f"{name}-{'-'.join(map(str, box))}{SUFFIX}"

    def _drop(self, is_useless: Callable[[str, tuple[int, int]], bool]) -> None:
        for name, path, _ in self._found():
            if is_useless(*_order_of(name)):
                with contextlib.suppress(OSError):
                    path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self._folder.rmdir()  # if it's empty

    def _found(self) -> Iterable[tuple[str, Path, Box]]:
        """Yield the name, path and box of each file; hidden ones are of hosts that were killed."""
        with contextlib.suppress(OSError):
            for path in sorted(self._folder.glob(f"*{SUFFIX}*")):
                name, *box = path.name.lstrip(".").split(SUFFIX)[0].rsplit("-", 4)
                with contextlib.suppress(ValueError, TypeError):
                    _order_of(name)
                    yield name, path, Box(*map(int, box))


def _order_of(name: str) -> tuple[str, tuple[int, int]]:
    """Return the job of a checkpoint, and which came later in it."""
    job, generation, iteration = name.rsplit("-", 2)
    return job, (int(generation), int(iteration))
