"""Writes output files, which appear complete or not at all, and exactly once.

An unfinished file is hidden beside its target; all its space is allocated at the start. Devices
`pwrite` its data to the descriptor, starting at `offset`. `OutputFile.prepare` completes it, the
caller records the `PreparedOutput` in its journal, and `PreparedOutput.publish` gives it its name.
After a crash that is called again: it does what remains to be done, at whatever system call the
process ended.

The values of a Zarr store are written to a plain file, too, and packed into its chunks at the end:
two devices that write to the same chunk would lose data. So are those of files whose axis of units
isn't the first, as each unit would be written in many places.

While a job runs, its outputs are synced now and then; after that the units that were finished
before are noted in a small file beside each hidden one. The next daemon opens the hidden file
again, if it belongs to the same job on the same inputs.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import hashlib
import math
import os
import secrets
import shutil
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from hetsched import errors
from hetsched.paths import ZARR, ArrayPath, split_path
from hetsched.store import formats
from hetsched.store.stored import reason_of
from hetsched.units import Ranges, format_bytes, merged

MAX_WRITE = 64 << 20
"""Bytes per write: the kernel accepts at most 2 GiB, and Ctrl-C waits until a write has ended."""
MAX_RECORD = 1 << 20
"""Bytes of a record of finished parts; a range takes about ten."""
UNSUPPORTED = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS)
"""Errors of a file system without hard links, or that can't promise space."""
_syncfs = ctypes.CDLL(None, use_errno=True).syncfs


@dataclass(frozen=True)
class OutputClaim:
    """An output file that a waiting job will create; `path` is absolute, links resolved."""

    path: str
    nbytes: int
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class Packed:
    """The file that values in a plain one, with their units first, are packed into at the end."""

    place: ArrayPath
    shape: tuple[int, ...]
    dtype: str
    axis: int


class PreparedOutput(msgspec.Struct, frozen=True):
    """A complete file on disk with a hidden name. Paths are bytes, absolute, links resolved."""

    temporary: bytes
    target: bytes
    force: bool
    inode: int

    def publish(self, sync: bool = True) -> None:
        """Name the file, and wait until its name is on disk. May be repeated.

        If the hidden name is gone, the file was published before. So after an error it is kept
        until the journal has the end of its job, or the caller gives up: then `discard` it.
        """
        target = os.fsdecode(self.target)
        with creation_errors(target), open_folder(target) as folder:
            if os.path.lexists(self.temporary):
                self._name()
            if sync:
                fsync(target, folder)
            self.discard()

    def discard(self) -> None:
        _remove_hidden(os.fsdecode(self.temporary), self.inode)

    def _name(self) -> None:
        hidden, target = Path(os.fsdecode(self.temporary)), Path(os.fsdecode(self.target))
        if hidden.is_dir():
            self._name_store(hidden, target)
        elif self.force:
            hidden.replace(target)
        else:
            self._name_new(hidden, target)

    def _name_store(self, hidden: Path, target: Path) -> None:
        """Name a folder. What it replaces is moved aside: no system call replaces a full one."""
        if os.path.lexists(target):
            if not self.force:
                raise FileExistsError
            _remove(f"{hidden}.old")
            target.rename(f"{hidden}.old")
        hidden.rename(target)
        _remove(f"{hidden}.old")

    def _name_new(self, hidden: Path, target: Path) -> None:
        try:
            os.link(hidden, target)  # fails if the name exists; a rename would replace that file
        except FileExistsError:
            with contextlib.suppress(FileNotFoundError):  # it has been removed just now
                if os.path.samestat(hidden.lstat(), target.lstat()):
                    return
            raise
        except OSError as error:
            if error.errno not in UNSUPPORTED:
                raise
            # Without hard links nothing excludes that another process creates the target just now.
            if os.path.lexists(target):
                raise FileExistsError from None
            hidden.rename(target)


def publish_all(outputs: Sequence[PreparedOutput], sync: bool = True) -> None:
    """Name several files, in order, until one fails: the error tells which ones have their names.
    May be repeated.
    """
    written: list[str] = []
    try:
        for output in outputs:
            output.publish(sync)
            written.append(os.fsdecode(output.target))
    except errors.HetschedError as error:
        if not written:
            raise
        text = f"{error}; already written: {', '.join(written)}"
        raise type(error)(text) from error


def discard_all(outputs: Iterable[PreparedOutput]) -> None:
    for output in outputs:
        output.discard()


@dataclass
class OutputFile:
    """An unfinished file: its space is allocated, and its data must be written to `fd`.

    End it with `publish`; after an error, or `prepare`, with `discard`. `path` is the target,
    links resolved; `mode` that of the file that is replaced, or None; `finished` the units that
    an earlier daemon has completed in it.
    """

    fd: int
    path: str
    hidden: str
    force: bool
    mode: int | None
    offset: int = 0
    finished: Ranges = ()
    is_prepared: bool = False
    packed: Packed | None = None
    store: str = ""
    """A Zarr store that is written and published instead of the file."""

    @property
    def packed_bytes(self) -> int:
        return os.fstat(self.fd).st_size if self.packed is not None and self.fd >= 0 else 0

    def write(self, data: bytes | memoryview, offset: int = 0) -> None:
        """Write `data`, as `publishing` expects. Raises OSError."""
        written = 0
        while written < len(data):
            block = data[written : written + MAX_WRITE]
            written += os.pwrite(self.fd, block, offset + written)

    def prepare(self, sync: bool = True) -> PreparedOutput:
        """Complete the file under its hidden name. It stays open, and locked.

        `sync`: wait until it is on disk. A file that replaces another is always synced: else a
        power cut could take both.
        """
        with creation_errors(self.path), open_folder(self.path) as folder:
            temporary = self.store or self.hidden
            if self.packed is not None:
                temporary = self._pack(self.packed, sync)
            elif not self.store:
                self._complete(self.fd, sync)
            elif sync or self.force:
                sync_all(self.store)
            if not os.path.samestat(os.lstat(self.hidden), os.fstat(self.fd)):
                raise _taken(self.path)  # without locks it was taken for a leftover
            if self.packed is not None:
                _remove(self.hidden)
                _remove(parts_path(self.hidden))
            if sync:
                fsync(self.path, folder)
            inode = os.lstat(temporary).st_ino
        self.is_prepared = True
        return PreparedOutput(os.fsencode(temporary), os.fsencode(self.path), self.force, inode)

    def _complete(self, fd: int, sync: bool) -> None:
        if self.mode is not None:
            os.fchmod(fd, self.mode)
        if sync or self.force:
            fsync(self.path, fd)

    def _pack(self, packed: Packed, sync: bool) -> str:
        """Put the values into the file or Zarr store that they are for, and return its path."""
        path, place = packed_path(self.hidden), packed.place
        _remove(path)
        try:
            if place.suffix == ZARR:
                formats.pack_store(self.fd, packed.shape, packed.dtype, packed.axis, path)
                if sync or self.force:
                    sync_all(path)
            else:
                with open(_open_new(path), "r+b", buffering=0) as file:
                    offset = formats.begin(place, file.fileno(), packed.shape, packed.dtype)
                    allocate(self.path, file.fileno(), offset + self.packed_bytes)
                    file.seek(offset)
                    formats.pack(self.fd, packed.shape, packed.dtype, packed.axis, file)
                    self._complete(file.fileno(), sync)
        except OSError as error:
            raise write_error(self.path, error) from None
        except errors.HetschedError:
            raise
        except Exception as error:  # of the library
            raise errors.IOFailure(f"{self.path}: can't be packed: {reason_of(error)}") from error
        return path

    def publish(self, sync: bool = True) -> None:
        prepared = self.prepare(sync)
        self.is_prepared = False  # after an error the caller decides whether it is kept
        prepared.publish(sync)
        if self.store:  # only now, so that nothing is lost if the process ends before
            _remove_hidden(self.hidden, os.fstat(self.fd).st_ino)
        self.close()

    def discard(self) -> None:
        if self.fd >= 0 and not self.is_prepared:
            _remove_hidden(self.hidden, os.fstat(self.fd).st_ino)
        self.close()

    def close(self) -> None:
        """Close the file, which keeps its hidden name. From now on it may be a leftover."""
        if self.fd >= 0:
            with contextlib.suppress(OSError):  # devices may have it open for a while
                fcntl.flock(self.fd, fcntl.LOCK_UN)
            os.close(self.fd)
        self.fd = -1


# ---- creating


def create_output(
    path: str,
    shape: tuple[int, ...],
    dtype: str,
    force: bool = False,
    inputs: Collection[tuple[int, int]] = (),
    token: str = "",
    identity: str = "",
    axis: int = 0,
    alone: bool = False,
) -> OutputFile:
    """Create an unfinished file for an array, with all its space allocated.

    `axis`: of its units, which are written one after the other all the same. `alone`: no other
    process may write the same file now. `inputs` (st_dev, st_ino) must not be the output.
    `token` determines the hidden name: a file of that name is a leftover, and replaced. But one
    with the same `identity` (of the job and its inputs), in which units are known to be complete,
    is opened again.
    """
    place, nbytes = split_path(path), math.prod(shape) * np.dtype(dtype).itemsize
    formats.check_new(place)

    is_packed = place.suffix == ZARR or axis > 0

    def begin(fd: int) -> int:
        check_room(place.file, fd, nbytes * (1 + is_packed))
        offset = formats.begin(place, fd, shape, dtype)
        if is_packed:  # that has only shown that the format can hold it
            os.ftruncate(fd, 0)
        return 0 if is_packed else offset

    output = create_file(place.file, nbytes, force, inputs, token, identity, begin, alone)
    if is_packed:
        output.packed = Packed(place, shape, dtype, axis)
    return output


def create_file(
    path: str,
    nbytes: int,
    force: bool = False,
    inputs: Collection[tuple[int, int]] = (),
    token: str = "",
    identity: str = "",
    begin: Callable[[int], int] = lambda fd: 0,
    alone: bool = False,
) -> OutputFile:
    """Create an unfinished file with room for `nbytes`; see `create_output`.

    `begin`: writes what comes before them, and returns their offset.
    """
    target, mode = _checked_target(path, force, inputs)
    hidden = _hidden_path(target, token)
    found = _open_finished(hidden, identity, nbytes) if identity else None
    if found is not None:
        fd, record = found
        return OutputFile(fd, target, hidden, force, mode, len(record.beginning), record.ranges)
    with creation_errors(path):
        if token:
            _remove_all(hidden)
            fd = _open_new(hidden)
        else:
            fd, hidden = _open_hidden(target, alone)
    output = OutputFile(fd, target, hidden, force, mode)
    try:
        output.offset = begin(fd)
        allocate(path, fd, output.offset + nbytes)
    except BaseException as error:
        output.discard()
        if isinstance(error, OSError):
            raise write_error(path, error) from None
        raise
    return output


def check_output(
    path: str,
    shape: tuple[int, ...],
    dtype: str,
    *,
    force: bool = False,
    inputs: Collection[tuple[int, int]] = (),
) -> OutputClaim:
    place = split_path(path)
    formats.check_new(place)
    target, _ = _checked_target(place.file, force, inputs)
    with creation_errors(place.file), open_folder(target):
        if not os.access(os.path.dirname(target), os.W_OK | os.X_OK):
            raise OSError(errno.EACCES, os.strerror(errno.EACCES))
    nbytes = math.prod(shape) * np.dtype(dtype).itemsize
    return OutputClaim(target, nbytes, tuple(shape), dtype)


@contextlib.contextmanager
def publishing(output: OutputFile) -> Iterator[OutputFile]:
    try:
        yield output
        output.publish()
    except OSError as error:
        raise write_error(output.path, error) from None
    finally:
        output.discard()


def save_array(path: str, array: np.ndarray, force: bool = False) -> None:
    values = np.ascontiguousarray(array)
    with publishing(create_output(path, array.shape, values.dtype.str, force)) as output:
        output.write(values.reshape(-1).view(np.uint8).data, output.offset)


def write_whole(path: str, raw: bytes, force: bool = False) -> None:
    with publishing(create_file(path, len(raw), force)) as output:
        output.write(raw)


def _checked_target(
    path: str, force: bool, inputs: Collection[tuple[int, int]]
) -> tuple[str, int | None]:
    """Return the file that one at `path` becomes or replaces, and its mode, None: no file."""
    with creation_errors(path):
        target = os.path.realpath(path)
        try:
            existing = Path(target).stat()
        except FileNotFoundError:
            return target, None
    if (existing.st_dev, existing.st_ino) in inputs:
        raise errors.DataError(f"{path}: is also the input; give the output another name")
    if not stat.S_ISREG(existing.st_mode) and not formats.is_store(path):
        raise errors.CantCreate(
            f"{path}: is {formats.file_kind(existing.st_mode)}; give the name of a file"
        )
    if not force:
        raise errors.CantCreate(
            f"{path}: exists; give another name, or replace it with --force (force=True)"
        )
    return target, stat.S_IMODE(existing.st_mode) & 0o777


def _open_new(hidden: str) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.open(hidden, flags, 0o666)


def _usual_hidden(target: str) -> str:
    digest = hashlib.blake2b(os.fsencode(Path(target).name), digest_size=8).hexdigest()
    return _hidden_path(target, digest)


def _open_hidden(target: str, alone: bool) -> tuple[int, str]:
    """Open a new hidden file; replace one that a killed process has left: its lock is free.

    Unless it has to be `alone`, another name serves if this one can't be had.
    """
    hidden, new = _usual_hidden(target), os.O_RDWR | os.O_CREAT | os.O_EXCL
    try:
        with contextlib.suppress(FileNotFoundError):
            leftover = _open_locked(hidden, target, os.O_RDWR, needs_lock=not alone)
            try:
                _remove(parts_path(hidden))
                _remove(packed_path(hidden))
                Path(hidden).unlink()  # last: now the name is free for others
            finally:
                os.close(leftover)
        fd = _open_locked(hidden, target, new)
    except (errors.CantCreate, OSError):
        if alone:
            raise
        hidden = _hidden_path(target, secrets.token_hex(8))
        fd = _open_locked(hidden, target, new)
    return fd, hidden


def open_again(path: str, force: bool = False) -> OutputFile:
    """Open an unfinished file that a process has left. Raises FileNotFoundError, CantCreate."""
    target, mode = _checked_target(path, force, ())
    hidden = _usual_hidden(target)
    fd = _open_locked(hidden, target, os.O_RDWR)
    return OutputFile(fd, target, hidden, force, mode)


def _open_locked(hidden: str, target: str, flags: int, needs_lock: bool = False) -> int:
    """Open a hidden file, and lock it. Raises CantCreate if another process has it or had it.

    `needs_lock`: a file system without locks can't tell whether one has it.
    """
    try:
        fd = os.open(hidden, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    except FileExistsError:  # it was faster
        raise _taken(target) from None
    is_locked = True
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        is_locked = not needs_lock and not isinstance(error, BlockingIOError)
    with contextlib.suppress(FileNotFoundError):  # it has removed the file meanwhile
        if is_locked and os.path.samestat(os.fstat(fd), os.lstat(hidden)):
            return fd
    os.close(fd)
    raise _taken(target)


def _taken(target: str) -> errors.CantCreate:
    return errors.CantCreate(
        f"{target}: another process or call is writing it; wait for it, or give another name"
    )


def allocate(path: str, fd: int, nbytes: int) -> None:
    """Allocate `nbytes`, or what it has if that is more. Raises CantCreate if there is no room."""
    nbytes = max(nbytes, os.fstat(fd).st_size)
    if not nbytes:
        return
    check_room(path, fd, nbytes)  # or it would fill the disk for every process before it failed
    try:
        os.posix_fallocate(fd, 0, nbytes)
    except OSError as error:
        if error.errno not in UNSUPPORTED:
            raise _no_room(path, fd, nbytes, error.errno or 0) from None
        with creation_errors(path):
            os.ftruncate(fd, nbytes)


def check_room(path: str, fd: int, nbytes: int) -> None:
    disk = os.fstatvfs(fd)
    if nbytes > disk.f_bfree * disk.f_frsize:
        raise _no_room(path, fd, nbytes, errno.ENOSPC)


def _no_room(path: str, fd: int, nbytes: int, code: int) -> errors.CantCreate:
    disk = os.fstatvfs(fd)
    free = format_bytes(disk.f_bfree * disk.f_frsize)
    return errors.CantCreate(
        f"{path}: no room for {format_bytes(nbytes)} ({os.strerror(code)}, {free}"
        " free); choose another folder"
    )


# ---- what a crash leaves behind


class PartsRecord(msgspec.Struct, frozen=True):
    """`identity`: of the job and its inputs; `inode`: of the hidden file; `beginning`: what is in
    it before the data."""

    identity: str
    inode: int
    beginning: bytes
    ranges: Ranges


_decode_parts = msgspec.msgpack.Decoder(PartsRecord).decode


def mark_finished(files: Sequence[tuple[str, int, int]], identity: str, ranges: Ranges) -> None:
    """Note, once they are on disk, that these units of files are complete: their hidden names,
    descriptors, offsets. After an error nothing new is noted.
    """
    for path, fd, _ in files:
        fsync(path, fd)
    for path, fd, offset in files:
        beginning = os.pread(fd, offset, 0)
        record = PartsRecord(identity, os.fstat(fd).st_ino, beginning, ranges)
        replace_file(parts_path(path), msgspec.msgpack.encode(record))
        if not os.path.lexists(path):  # it was published or discarded meanwhile
            _remove(parts_path(path))


def _open_finished(hidden: str, identity: str, nbytes: int) -> tuple[int, PartsRecord] | None:
    """Open a hidden file again; None: there is none for this job, or it isn't as noted."""
    fd = -1
    with contextlib.suppress(OSError, msgspec.MsgspecError, UnicodeDecodeError):
        path = Path(parts_path(hidden))
        if path.stat().st_size > MAX_RECORD:
            return None
        record = _decode_parts(path.read_bytes())
        fd = os.open(hidden, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        status = os.fstat(fd)
        if (
            record.identity == identity
            and stat.S_ISREG(status.st_mode)
            and (status.st_nlink, status.st_ino) == (1, record.inode)
            and status.st_size >= len(record.beginning) + nbytes
            and os.pread(fd, len(record.beginning), 0) == record.beginning
            and record.ranges == merged(record.ranges)
        ):
            return fd, record
    if fd >= 0:
        os.close(fd)
    return None


def remove_unfinished(path: str, token: str) -> None:
    """Remove what a job with this token has left; with several outputs it adds their names."""
    with contextlib.suppress(OSError):
        for entry in _unfinished(path, token):
            _remove(str(entry))


def finished_at(path: str, token: str) -> float:
    """Return when finished parts of a job were last noted, by the file system; 0: never."""
    notes = [entry for entry in _unfinished(path, token) if entry.suffix == ".parts"]
    return max((entry.stat().st_mtime for entry in notes), default=0.0)


def _remove_hidden(hidden: str, inode: int) -> None:
    """Remove a hidden file and what was noted of it, unless it is another one by now."""
    with contextlib.suppress(FileNotFoundError):
        if os.lstat(hidden).st_ino != inode:
            return
    _remove_all(hidden)


def _remove_all(hidden: str) -> None:
    for path in (hidden, parts_path(hidden), packed_path(hidden)):
        _remove(path)


def _unfinished(path: str, token: str) -> list[Path]:
    folder = Path(os.path.realpath(split_path(path).file)).parent
    ours = (f".hetsched-{token}-", f".hetsched-{token}.")
    return [entry for entry in folder.iterdir() if entry.name.startswith(ours)]


def _hidden_path(target: str, token: str) -> str:
    """A token is unique to a journal, a job and an output: after a crash the file can be found."""
    return os.path.join(os.path.dirname(target), f".hetsched-{token}.part")


def parts_path(hidden: str) -> str:
    return f"{hidden}s"


def packed_path(hidden: str) -> str:
    return f"{hidden}.packed"


# ---- system calls


def replace_file(path: str, raw: bytes) -> None:
    """Replace a small file once the new one is on disk, and sync its name. Raises as `fsync`."""
    temporary = f"{path}.new"
    _remove(temporary)
    try:
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(fd, "wb") as file, open_folder(path) as folder:
            file.write(raw)
            file.flush()
            fsync(path, file.fileno())
            Path(temporary).replace(path)
            fsync(path, folder)
    except OSError as error:
        _remove(temporary)
        raise write_error(path, error) from None


def _remove(path: str) -> None:
    if Path(path).is_dir() and not Path(path).is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            Path(path).unlink()


def sync_all(path: str) -> None:
    """Wait until all that was written to the file system of `path` is on disk."""
    with open_folder(path) as folder:
        if _syncfs(folder):
            code = ctypes.get_errno()
            raise write_error(path, OSError(code, os.strerror(code)))


def fsync(path: str, fd: int) -> None:
    """Wait until the file or folder is on disk. Raises CantCreate (no room), IOFailure."""
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some file systems can't sync a folder
            raise write_error(path, error) from None


def write_error(path: str, error: OSError) -> errors.HetschedError:
    if error.errno in errors.NO_SPACE:
        return errors.CantCreate(f"{path}: no room ({error.strerror}); make room, then try again")
    return errors.IOFailure(f"{path}: {error.strerror}")


@contextlib.contextmanager
def open_folder(path: str) -> Iterator[int]:
    fd = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


@contextlib.contextmanager
def creation_errors(path: str) -> Iterator[None]:
    folder = Path(path).absolute().parent
    try:
        yield
    except FileExistsError:
        raise errors.CantCreate(
            f"{path}: was created by another process meanwhile; use --force to replace it"
        ) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        if isinstance(error, FileNotFoundError | NotADirectoryError) and not folder.is_dir():
            raise errors.CantCreate(
                f"{path}: there is no folder {folder}; create it first"
            ) from None
        if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
            raise errors.TryAgain(f"{path}: {reason}; try again, or raise `ulimit -n`") from None
        raise errors.CantCreate(f"{path}: can't be created in {folder} ({reason})") from None
