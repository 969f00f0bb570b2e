"""What is attached to a device: segments and files with a job's arrays, and the shared tail."""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from hetsched.device import TailPart
from hetsched.devices.base import HostArray
from hetsched.devices.file_array import FileArray
from hetsched.devices.host_arrays import ArenaArray, ResidentArray
from hetsched.errors import InternalError
from hetsched.transport import device_messages
from hetsched.transport.pages import map_unpopulated, populate
from hetsched.workload import ArraySpec

HostArrays = tuple[dict[str, HostArray], dict[str, HostArray]]
"""Inputs and outputs by name."""
_RECORD = struct.Struct("=qq")
"""The attempt whose tail it is, and its next unit."""
_threads = threading.Lock()


class OpenFile:
    """A file descriptor that is closed with its last reference."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __del__(self) -> None:
        os.close(self.fd)


class OpenFileArray(FileArray):
    """An array in a file that stays open while the array exists."""

    def __init__(
        self, spec: ArraySpec, file: OpenFile, stored: device_messages.StoredArray
    ) -> None:
        super().__init__(spec, file.fd, stored.shape, stored.dtype, stored.offset, stored.order)
        self._file = file


class TailCounter:
    """The next unit of a tail that several cores share: each takes chunks without asking.

    One attempt at a time has a tail: the first core that takes from a later one resets the
    counter. A file lock excludes other processes, since the kernel releases it when its holder
    dies, and a lock of this process other threads: file locks don't.
    """

    def __init__(self, file: OpenFile, nbytes: int) -> None:
        self._file = file
        self._memory = mmap.mmap(file.fd, nbytes)

    def take(self, attempt: int, part: TailPart) -> tuple[int, int] | None:
        """Take a chunk by the rule of `part`: (first, count); None if nothing remains."""
        with self._locked():
            first = self._next(attempt, part)
            count = part.units_to_take(part.first + part.units - first)
            if not count:
                return None
            _RECORD.pack_into(self._memory, 0, attempt, first + count)
            return first, count

    def is_empty(self, attempt: int, part: TailPart) -> bool:
        with self._locked():
            return self._next(attempt, part) >= part.first + part.units

    def _next(self, attempt: int, part: TailPart) -> int:
        owner, next_unit = _RECORD.unpack_from(self._memory)
        if owner < attempt:
            return part.first
        # A later attempt has begun, so this one has ended: nothing remains.
        return int(next_unit) if owner == attempt else part.first + part.units

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with _threads:
            fcntl.lockf(self._file.fd, fcntl.LOCK_EX)
            try:
                yield
            finally:
                fcntl.lockf(self._file.fd, fcntl.LOCK_UN)


class Attachments:
    """Segments and files by key.

    Attributes
    ----------
    tail : TailCounter or None
        Of the tails that the device shares with others.
    """

    def __init__(self) -> None:
        self.tail: TailCounter | None = None
        self._objects: dict[int, np.ndarray | OpenFile] = {}
        self._populating: dict[int, Iterator[int]] = {}
        """Of segments without all pages in place, as far as this process knows."""

    def attach(self, command: device_messages.Attach, fd: int) -> None:
        """Map or keep `fd`, taking ownership of it."""
        file = OpenFile(fd)
        if command.kind == "file":
            self._objects[command.key] = file
        elif command.kind == "tail":
            self.tail = TailCounter(file, command.nbytes)
        else:
            mapping = map_unpopulated(fd, command.nbytes)
            self._objects[command.key] = np.frombuffer(mapping, np.uint8)
            self._populating[command.key] = populate(mapping)

    def detach(self, keys: Iterable[int]) -> None:
        """Drop these objects; arrays that still refer to them stay valid."""
        for key in keys:
            self._objects.pop(key, None)
            self._populating.pop(key, None)

    def populate(self, key: int) -> Iterator[None]:
        """Put the pages of a segment in place, a block at a time; a later call goes on."""
        while (blocks := self._populating.get(key)) is not None:
            if next(blocks, None) is None:
                self._populating.pop(key, None)
            else:
                yield

    def host_arrays(
        self, arrays: Sequence[device_messages.StoredArray], specs: Sequence[ArraySpec]
    ) -> HostArrays:
        """Return the host arrays of a job; the state of an iterative job isn't among them.

        Raises InternalError: an array isn't attached.
        """
        specs_by_name = {spec.name: spec for spec in specs}
        inputs: dict[str, HostArray] = {}
        outputs: dict[str, HostArray] = {}
        for stored in arrays:
            spec = specs_by_name.get(stored.array)
            if spec is not None:
                side = outputs if stored.output else inputs
                side[stored.array] = self._host_array(stored, spec)
        return inputs, outputs

    def whole_array(self, stored: device_messages.StoredArray) -> np.ndarray:
        """Return a whole array in a segment as it is stored. InternalError: it isn't attached."""
        attached = self._attached(stored)
        assert not isinstance(attached, OpenFile), "iterative jobs have no arrays in files"
        return stored.values(attached)

    def _host_array(self, stored: device_messages.StoredArray, spec: ArraySpec) -> HostArray:
        attached = self._attached(stored)
        array: HostArray
        if isinstance(attached, OpenFile):
            array = OpenFileArray(spec, attached, stored)
        else:
            array = ArenaArray(spec, stored.values(attached))
        if spec.role != "resident" or array.direct(0, 0) is not None:
            return array
        return ResidentArray(array)

    def _attached(self, stored: device_messages.StoredArray) -> np.ndarray | OpenFile:
        attached = self._objects.get(stored.key)
        if attached is None:
            raise InternalError(f"array {stored.array!r}: nothing is attached as {stored.key}")
        return attached
