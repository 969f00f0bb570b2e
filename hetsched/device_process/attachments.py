"""What a device process has been given: mapped segments and open files, and arrays on them."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np

from hetsched.devices.base import HostArray
from hetsched.devices.file_array import FileArray
from hetsched.devices.host_arrays import ArenaArray, SharedResident
from hetsched.errors import InternalError
from hetsched.transport.arena import map_segment
from hetsched.transport.device_messages import Attach, StoredArray
from hetsched.workload import ArraySpec

Hosts = tuple[dict[str, HostArray], dict[str, HostArray]]
"""Inputs and outputs by name."""


class OpenFile:
    """A file descriptor that is closed when nobody refers to it any more."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __del__(self) -> None:
        os.close(self.fd)


class HeldFileArray(FileArray):
    """An array in a file that stays open as long as the array lives."""

    def __init__(self, spec: ArraySpec, file: OpenFile, stored: StoredArray) -> None:
        super().__init__(spec, file.fd, stored.shape, stored.dtype, stored.offset, stored.order)
        self._file = file


class Attachments:
    """Segments and files by key. Attached by the main thread, used by those of the devices."""

    def __init__(self) -> None:
        self._held: dict[int, np.ndarray | OpenFile] = {}
        self._residents: dict[tuple[int, StoredArray], SharedResident] = {}
        self._lock = threading.Lock()

    def attach(self, command: Attach, fd: int) -> None:
        """Map or keep `fd`, which now belongs to us."""
        if command.kind == "file":
            self._held[command.key] = OpenFile(fd)
            return
        try:
            self._held[command.key] = np.frombuffer(map_segment(fd, command.nbytes), np.uint8)
        finally:
            os.close(fd)

    def detach(self, keys: Iterable[int]) -> None:
        """Forget; what still refers to them goes on until it is released."""
        for key in keys:
            self._held.pop(key, None)

    def hosts(self, job: int, arrays: Sequence[StoredArray], specs: Sequence[ArraySpec]) -> Hosts:
        """The host arrays of a job.

        Raises
        ------
        InternalError
            One isn't attached, or isn't an array of the workload.
        """
        known = {spec.name: spec for spec in specs}
        inputs: dict[str, HostArray] = {}
        outputs: dict[str, HostArray] = {}
        for stored in arrays:
            spec = known.get(stored.array)
            if spec is None:
                raise InternalError(f"the workload has no array {stored.array!r}")
            array = self._array(job, stored, spec)
            (outputs if stored.output else inputs)[stored.array] = array
        return inputs, outputs

    def forget_job(self, job: int) -> None:
        """Drop the resident arrays that were loaded for `job`."""
        with self._lock:
            for key in [key for key in self._residents if key[0] == job]:
                del self._residents[key]

    def _array(self, job: int, stored: StoredArray, spec: ArraySpec) -> HostArray:
        array = self._plain(stored, spec)
        if spec.role != "resident" or array.direct(0, 0) is not None:
            return array
        with self._lock:
            return self._residents.setdefault((job, stored), SharedResident(array))

    def _plain(self, stored: StoredArray, spec: ArraySpec) -> HostArray:
        held = self._held.get(stored.key)
        if held is None:
            raise InternalError(f"array {stored.array!r}: nothing is attached as {stored.key}")
        if isinstance(held, OpenFile):
            return HeldFileArray(spec, held, stored)
        order: Literal["F", "C"] = "F" if stored.order == "F" else "C"
        shape, dtype = stored.shape, np.dtype(stored.dtype)
        whole: np.ndarray = np.ndarray(shape, dtype, held, stored.offset, order=order)
        return ArenaArray(spec, whole)
