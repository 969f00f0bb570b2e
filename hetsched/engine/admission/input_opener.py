"""Opens the input files of one job, at its submission and again when its turn comes."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping

from hetsched.engine.admission.pending_outputs import (
    PendingOutputs,
    PromisedOutput,
    WrittenFiles,
)
from hetsched.engine.admission.resolved_job import file_key
from hetsched.engine.threads.step import Step
from hetsched.errors import DataError, InputMissing
from hetsched.store.arrays.file_stamp import FileStamp
from hetsched.store.arrays.input_files import open_npy
from hetsched.transport.device_messages import StoredArray

PROMISED_KEY = -1 << 31
"""The key of a file that doesn't exist yet: no descriptor has it."""


class InputOpener:
    """Opens files and stamps them. `close` unless a job takes over `files`.

    Parameters
    ----------
    expected : mapping
        Array name -> stamp at submission. A file that has changed since then is an error, unless
        an earlier job wrote it (`written`).
    pending : PendingOutputs
        Of other jobs, at submission.
    after : collection of int
        Jobs that end before this one starts: what they will write may be an input.

    Attributes
    ----------
    files : set of int
        Open descriptors.
    stamps : dict
        Array name -> stamp; none for the output of another job that is still to be written.
    paths : list of str
        Of the inputs opened so far; links resolved.
    """

    def __init__(
        self,
        step: Step,
        *,
        expected: Mapping[str, FileStamp] | None = None,
        written: WrittenFiles | None = None,
        pending: PendingOutputs | None = None,
        after: Collection[int] = (),
    ) -> None:
        self._step = step
        self._expected = expected or {}
        self._written = written
        self._pending = pending
        self._after = after
        self.files: set[int] = set()
        self.stamps: dict[str, FileStamp] = {}
        self.paths: list[str] = []

    def open(self, name: str, path: str) -> StoredArray:
        """Open the input `name`.

        Raises
        ------
        InputMissing
            It doesn't exist, or isn't readable.
        DataError
            Not a ``.npy`` file of numbers, or it has changed.
        """
        self._step.enter(f"opening {path}")
        resolved = os.path.realpath(path)
        self.paths.append(resolved)
        promised = None if self._pending is None else self._pending.promise(resolved)
        if promised is not None and promised.job in self._after:
            return _promised_array(name, promised)
        try:
            fd, header = open_npy(path)
        except InputMissing as error:
            if promised is None:
                raise
            job = promised.job
            raise InputMissing(
                f"{error}; job {job} will write it: submit this job with --after {job}"
            ) from None
        self.files.add(fd)
        self._stamp(name, path, fd)
        return StoredArray(
            array=name,
            key=file_key(fd),
            shape=header.shape,
            dtype=header.dtype,
            offset=header.offset,
            order=header.order,
        )

    def close(self) -> None:
        """Close all files."""
        while self.files:
            os.close(self.files.pop())

    def _stamp(self, name: str, path: str, fd: int) -> None:
        stamp = self.stamps[name] = FileStamp.of(fd)
        expected = self._expected.get(name)
        if expected is None or stamp.matches(expected):
            return
        written = self._written.get(os.path.realpath(path)) if self._written else None
        if written is None or not stamp.matches(written):
            raise DataError(
                f"{path}: was changed after the job had been submitted, and not by an earlier"
                " job; submit the job again"
            )


def _promised_array(name: str, promised: PromisedOutput) -> StoredArray:
    claim = promised.claim
    return StoredArray(array=name, key=PROMISED_KEY, shape=claim.shape, dtype=claim.dtype)
