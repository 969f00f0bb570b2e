"""Identifies a state of a file, to detect that it was changed or replaced."""

from __future__ import annotations

import os

import msgspec


class FileStamp(msgspec.Struct, frozen=True):
    """A file at one time. Two equal stamps: very likely the same contents.

    A record of the journal too. `device`: 0 if unknown, since device numbers may change when the
    machine starts.
    """

    inode: int
    size: int
    mtime_ns: int
    device: int = 0

    @classmethod
    def of(cls, fd: int) -> FileStamp:
        """Return the present stamp of an open file."""
        status = os.fstat(fd)
        return cls(status.st_ino, status.st_size, status.st_mtime_ns, status.st_dev)

    def matches(self, other: FileStamp) -> bool:
        """Return whether both describe the same state of a file."""
        if self.device and other.device and self.device != other.device:
            return False
        return (self.inode, self.size, self.mtime_ns) == (other.inode, other.size, other.mtime_ns)
