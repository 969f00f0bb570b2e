"""What a call has completed in files that aren't complete, so that the same call can go on."""

from __future__ import annotations

import ctypes
import os
import re
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from hetsched.functions.files import OutputFile
from hetsched.functions.workload import Layout
from hetsched.store.output_files import Ranges, merged, open_folder

SYNC_SECONDS = 10.0
"""Between two times that what is complete is written to disk, for the case of a power cut."""
LINE = re.compile(rb"(\d+) (\d+)\n")
SYNCED = re.compile(rb"synced (\d+)\n")
"""So many bytes of the record, and what they tell of, are on disk."""
_syncfs = ctypes.CDLL(None, use_errno=True).syncfs


class Header(msgspec.Struct, frozen=True):
    """First line of a record. `call`: see `same_call`; `boot`: identifies the running kernel."""

    call: str
    boot: str
    load: int
    is_tuple: bool
    layouts: tuple[Layout, ...]
    files: tuple[tuple[int, int], ...]
    """Inode, and the offset of the values, of each hidden file."""


class Progress:
    """The record of a call beside the first of its files: a header, then a line for each part.

    A line is written when its units are: that survives the end of the process, but not that of
    the machine. After a start of the machine counts what was synced before.
    """

    def __init__(self, files: Sequence[OutputFile], call: str) -> None:
        self.files, self._call = files, call
        self._lock = threading.Lock()
        self._synced = time.monotonic()
        self._boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        self.finished: Ranges = ()
        """What an earlier process has completed."""
        self.has_parts = False

    def found(self, load: int) -> Header | None:
        """Return the header that an interrupted call has left, and take over what it has done.

        None: there is none, or of another call.
        """
        try:
            for file in self.files:
                file.lock()
            raw = self._read()
            first, newline, _ = raw.partition(b"\n")
            header = msgspec.json.decode(first, type=Header)
            begun = len(first + newline)
            end = len(raw)
            if header.boot != self._boot:
                end = max((int(found[1]) for found in SYNCED.finditer(raw, begun)), default=begun)
            inodes = [os.lstat(file.hidden).st_ino for file in self.files]
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
            return None
        lines = LINE.finditer(raw, begun, end)
        ranges = merged((int(line[1]), int(line[2])) for line in lines)
        is_same = header.call == self._call and header.load == load
        if not is_same or inodes != [inode for inode, _ in header.files]:
            return None
        if not ranges or ranges[-1][1] > load:
            return None
        self.finished, self.has_parts = ranges, True
        return header

    def _read(self) -> bytes:
        fd = self.files[0].record
        return os.pread(fd, os.fstat(fd).st_size, 0)

    def begin(self, load: int, is_tuple: bool, layouts: Sequence[Layout]) -> None:
        """Write the record of files that have just been created, or opened again."""
        files = tuple((os.lstat(file.hidden).st_ino, file.offset) for file in self.files)
        header = Header(self._call, self._boot, load, is_tuple, tuple(layouts), files)
        if self.finished:
            self._sync()
        lines = [msgspec.json.encode(header).decode(), *(f"{a} {b}" for a, b in self.finished)]
        text = "".join(f"{line}\n" for line in lines)
        os.ftruncate(self.files[0].record, 0)
        self._write(f"{text}synced {len(text.encode())}\n")

    def add(self, first: int, end: int) -> None:
        """Note units whose results have been written. Raises CantCreate, IOFailure."""
        with self._lock:
            self.has_parts = True
            self._write(f"{first} {end}\n")
            size = os.fstat(self.files[0].record).st_size
            if time.monotonic() < self._synced + SYNC_SECONDS:
                return
            self._synced = time.monotonic() + SYNC_SECONDS  # other threads go on meanwhile
        self._sync()
        with self._lock:
            self._write(f"synced {size}\n")
            self._synced = time.monotonic()

    def _write(self, text: str) -> None:
        try:
            os.write(self.files[0].record, text.encode())
        except OSError as error:
            raise self.files[0].failure(error) from error

    def _sync(self) -> None:
        for path in {file.path.absolute().parent for file in self.files}:
            with open_folder(str(path / "any")) as folder:
                if _syncfs(folder):
                    code = ctypes.get_errno()
                    raise self.files[0].failure(OSError(code, os.strerror(code)))
