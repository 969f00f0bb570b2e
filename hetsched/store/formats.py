"""Arrays in files of all formats: what is in one, its values, and the layout of new ones.

An array that lies in its file as NumPy would write it is read and written there by descriptor,
whatever the format: devices `pread` its data, starting at the layout's `offset`. The others, in
chunks or compressed, are read by the library of their format.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import importlib.util
import io
import itertools
import math
import os
import stat
import struct
import sys
import threading
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import IO, Any, BinaryIO, Literal, TypeVar

import msgspec
import numpy as np
from numpy.lib import format as npy

from hetsched.dtypes import NUMERIC
from hetsched.errors import (
    DataError,
    HetschedError,
    InputMissing,
    IOFailure,
    TryAgain,
    Unavailable,
)
from hetsched.paths import FORMAT_NAMES, FORMATS, HDF5, RAW, TIFF, ZARR, ArrayPath, split_path
from hetsched.store.reader_process import read_apart, serve
from hetsched.store.stored import Stored, checked_axis, reason_of
from hetsched.units import format_bytes, quoted

T = TypeVar("T")
LIBRARIES = {ZARR: "zarr", **dict.fromkeys(HDF5, "h5py"), **dict.fromkeys(TIFF, "tifffile")}
EXTRAS = {"zarr": "zarr", "h5py": "hdf5", "tifffile": "tiff"}
RECORDS = ("zarr.json", ".zarray", ".zgroup")
"""Files that describe a Zarr store."""
MAX_REMEMBERED = 100
"""Files whose layout is remembered while they stay as they are."""
CHUNK_BYTES = 1 << 20
"""Of the chunks of a new Zarr array."""
CHUNKS_AT_ONCE = 8
"""Zarr compresses them in threads."""
_hdf5 = threading.Lock()
"""The HDF5 library computes one call at a time anyway."""
MAX_HEADER = 10_000
"""Bytes; NumPy's own limit. Real headers have 128."""
MAX_EXTENT = 2**63
ARCHIVE_ERRORS = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    KeyError,
    OverflowError,
    RuntimeError,
    ValueError,
)
"""What `zipfile` and NumPy raise for a damaged archive."""


class ArrayLayout(msgspec.Struct, frozen=True):
    """The array in a file. `dtype` is NumPy's string, byte order included ("<c8"); `library`: the
    suffix and the part that only the library of the format can read ("": anybody).
    """

    shape: tuple[int, ...]
    dtype: str
    order: str = "C"
    offset: int = 0  # Of the data
    library: str = ""


def read_header(path: str, fd: int) -> ArrayLayout:
    """Read the header of the .npy file behind `fd`, which must be as long as its header says:
    further bytes are usually a second array, which would otherwise be ignored silently.
    """
    size = os.fstat(fd).st_size
    try:
        start = io.BytesIO(os.pread(fd, MAX_HEADER + 12, 0))
    except OSError as error:
        raise IOFailure(f"{path}: {error.strerror}") from None
    if size == 0:
        raise DataError(f"{path}: is empty, not a .npy file")
    if start.getvalue()[:1] == b"\x80":
        raise DataError(f"{path}: is a pickle, which is never loaded; numpy.save() writes arrays")
    shape, is_fortran, dtype = parse_header(path, start)
    offset = start.tell()
    nbytes = math.prod(shape) * dtype.itemsize  # Python's integers don't overflow
    extents = "x".join(map(str, shape)) or "()"
    if nbytes == 0:
        raise DataError(f"{path}: holds no elements (shape {extents})")
    if offset + nbytes > size:
        raise DataError(
            f"{path}: its header says {extents} {dtype.name} ({nbytes} bytes),"
            f" the file has {size - offset}: truncated, or the header is wrong"
        )
    if offset + nbytes < size:
        raise DataError(
            f"{path}: has {size - offset - nbytes} bytes more than its header says"
            f" ({extents} {dtype.name}); several arrays in one file?"
        )
    return ArrayLayout(shape, dtype.str, "F" if is_fortran else "C", offset)


def parse_header(path: str, file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Return (shape, is in Fortran order, dtype); leaves `file` at the data. Raises DataError."""
    try:
        version = npy.read_magic(file)
        if version not in ((1, 0), (2, 0), (3, 0)):
            raise ValueError(f"version {version}; versions 1.0 to 3.0 can be read")
        # 3.0 differs in the encoding of names of fields, and records are refused.
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, is_fortran, dtype = read(file, max_header_size=MAX_HEADER)
    except Exception as error:  # NumPy's parser raises a dozen different ones
        reason = " ".join(str(error).split())
        raise DataError(f"{path}: broken or truncated .npy header: {reason:.120}") from None
    if dtype.hasobject:
        raise DataError(f"{path}: holds pickled Python objects, which are never loaded")
    if dtype.kind not in NUMERIC:
        kind = f"records {dtype.descr!r:.60}" if dtype.names else dtype.name
        raise DataError(f"{path}: holds {kind}; only numbers are supported")
    if any(not 0 <= extent < MAX_EXTENT for extent in shape):
        raise DataError(f"{path}: broken .npy header: impossible shape {shape!r:.60}")
    return shape, is_fortran, dtype


def npy_header(shape: tuple[int, ...], dtype: str) -> bytes:
    file, element = io.BytesIO(), np.dtype(dtype)
    extents = tuple(map(int, shape))
    header = {"descr": npy.dtype_to_descr(element), "fortran_order": False, "shape": extents}
    npy.write_array_header_1_0(file, header)
    return file.getvalue()


@contextlib.contextmanager
def open_archive(path: str, kind: str, file: IO[bytes]) -> Iterator[zipfile.ZipFile]:
    """Open an ``.npz`` file. Whatever the block finds to be broken is a DataError."""
    try:
        with zipfile.ZipFile(file) as archive:
            yield archive
    except ARCHIVE_ERRORS as error:
        reason = " ".join(str(error.args[0] if error.args else error).split())
        raise DataError(f"{path}: not {kind}, or damaged: {reason:.200}") from None
    except OSError as error:
        if error.errno == errno.EINVAL:
            raise DataError(f"{path}: damaged: a position before the start") from None
        raise IOFailure(f"{path}: {error.strerror}") from None


def is_store(path: str | Path) -> bool:
    return str(path).endswith(ZARR) and any(Path(path, name).exists() for name in RECORDS)


def library(suffix: str) -> Any:
    check_library(suffix)
    return importlib.import_module(LIBRARIES[suffix])


def check_library(suffix: str) -> None:
    name = LIBRARIES.get(suffix)
    if name is not None and importlib.util.find_spec(name) is None:
        raise Unavailable(f"{name} isn't installed: pip install 'hetsched[{EXTRAS[name]}]'")


# ---- what is in a file


def open_file(path: str, expected: str) -> int:
    """Open the file of an array, or the folder of a Zarr store. Raises as `open_regular`."""
    place = split_path(path)
    if place.suffix == ZARR and Path(place.file).is_dir():
        for record in RECORDS:  # libraries would wait for a FIFO
            with contextlib.suppress(InputMissing):
                os.close(open_regular(f"{place.file}/{record}", "a file"))
        return os.open(place.file, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    return open_regular(place.file, expected)


def read_layout(path: str, fd: int) -> ArrayLayout:
    """Return what is in a file that `open_file` has opened; libraries read it in a process."""
    place = split_path(path)
    if place.suffix == RAW:
        layout = _raw_layout(place)
    elif place.suffix in LIBRARIES:
        check_library(place.suffix)
        status = [os.fstat(fd)]
        for name in RECORDS if place.suffix == ZARR else ():
            with contextlib.suppress(OSError):
                status.append(Path(place.file, name).stat())
        stamp = tuple(n for s in status for n in (s.st_dev, s.st_ino, s.st_size, s.st_mtime_ns))
        layout = _layout_of_library(place, stamp)
    else:
        return read_header(path, fd)
    dtype = np.dtype(layout.dtype)
    if dtype.kind not in NUMERIC:
        raise DataError(f"{place.file}: holds {dtype.name}; only numbers are supported")
    if not layout.shape or not math.prod(layout.shape):
        raise DataError(f"{place.file}: holds no elements (shape {layout.shape})")
    return layout


def stamps(path: str | Path) -> list[tuple[str, int, int, int]]:
    """Return what changes with a file, or a folder of chunks. Raises InputMissing."""
    found, root = [], Path(path)
    try:
        for each in [root, *sorted(root.rglob("*"))]:
            status = each.stat()
            name = str(each.relative_to(root))
            found.append((name, status.st_ino, status.st_size, status.st_mtime_ns))
    except OSError as error:
        raise InputMissing(f"{root}: {error.strerror}") from error
    return found


@lru_cache(MAX_REMEMBERED)
def _layout_of_library(place: ArrayPath, stamp: tuple[int, ...]) -> ArrayLayout:
    """`stamp`: numbers that change with the file."""
    found = read_apart(__name__, place.file, place)
    return msgspec.json.decode(found, type=ArrayLayout)


def _print_layout(arguments: Sequence[str]) -> str:
    place = ArrayPath(*arguments)
    with contextlib.ExitStack() as closers:
        try:
            found = _opened(place, 0, closers)
        except HetschedError as error:
            raise DataError(str(error).removeprefix(f"{place.file}: ")) from error
        if not isinstance(found, ArrayLayout):
            library = f"{place.suffix}:{place.part}"
            found = ArrayLayout(tuple(map(int, found.shape)), found.dtype.str, library=library)
        return msgspec.json.encode(found).decode()


# ---- opened in this process


def open_array(
    path: str | os.PathLike[str], axis: int, closers: contextlib.ExitStack
) -> np.ndarray | Stored:
    """Open an array; `closers` close it. Raises InputMissing, DataError, Unavailable."""
    place = split_path(path)
    os.close(open_file(os.fspath(path), "a file with an array"))
    if place.suffix not in FORMATS:
        raise DataError(f"{place.file}: its name must end with {FORMAT_NAMES}")
    return open_place(place, axis, closers)


def open_place(place: ArrayPath, axis: int, closers: contextlib.ExitStack) -> np.ndarray | Stored:
    found = _opened(place, axis, closers)
    if not isinstance(found, ArrayLayout):
        return found
    if not math.prod(found.shape):
        return np.empty(found.shape, found.dtype)
    order: Literal["C", "F"] = "F" if found.order == "F" else "C"
    try:
        return np.memmap(place.file, found.dtype, "r", found.offset, found.shape, order)
    except (OSError, ValueError):  # its header and its length were right a moment ago
        message = "has been shortened or removed meanwhile"
        raise DataError(f"{place.file}: {message}") from None


def _opened(
    place: ArrayPath, axis: int, closers: contextlib.ExitStack
) -> ArrayLayout | Stored | np.ndarray:
    """Return where the array lies in its file, or what its library reads."""
    try:
        found: ArrayLayout | Stored | np.ndarray = _OPENERS[place.suffix](place, axis, closers)
        if isinstance(found, ArrayLayout):
            nbytes = math.prod(found.shape) * np.dtype(found.dtype).itemsize
            missing = found.offset + nbytes - Path(place.file).stat().st_size
            if missing > 0:
                raise DataError(f"{place.file}: is truncated: {missing} bytes are missing")
        return found
    except HetschedError:
        raise
    except Exception as error:  # of the library that reads it: the file may hold anything
        message = f"{place.file}: isn't a usable {place.suffix} file: {reason_of(error)}"
        raise DataError(message) from error


def _open_npy(place: ArrayPath, axis: int, closers: contextlib.ExitStack) -> ArrayLayout:
    with open(place.file, "rb") as file:
        shape, is_fortran, dtype = parse_header(place.file, file)
        return ArrayLayout(shape, dtype.str, "F" if is_fortran else "C", file.tell())


def _raw_layout(place: ArrayPath) -> ArrayLayout:
    file, layout = place.file, place.part
    if not layout:
        raise DataError(
            f"{file}: what is in it? Give dtype and shape, and the offset if it isn't 0, as"
            f" {file}:uint16:500x512x512:4096"
        )
    name, sizes, offset = (*layout.split(":"), "0")[:3]
    try:
        dtype = np.dtype(name)
    except TypeError:
        raise DataError(f"{file}: {quoted(name)} is no dtype of NumPy's") from None
    if not dtype.itemsize or dtype.hasobject:
        raise DataError(f"{file}: {dtype}; only numeric dtypes are supported")
    shape = tuple(map(int, sizes.split("x")))
    needed = int(offset) + math.prod(shape) * dtype.itemsize
    if needed > (size := Path(file).stat().st_size):
        raise DataError(f"{file}: has {size} bytes; {layout} takes {needed}")
    return ArrayLayout(shape, dtype.str, offset=int(offset))


def _open_zarr(place: ArrayPath, axis: int, closers: contextlib.ExitStack) -> Stored:
    array = library(ZARR).open_array(place.file, mode="r")
    return Stored(array, checked_axis(axis, array, place.file), name=place.file)


def _open_hdf5(place: ArrayPath, axis: int, closers: contextlib.ExitStack) -> ArrayLayout | Stored:
    h5py, dataset = library(place.suffix), place.part
    file = closers.enter_context(h5py.File(place.file, "r"))
    if not dataset:
        names = [name for name, value in file.items() if hasattr(value, "dtype")]
        if len(names) != 1:
            raise DataError(
                f"{place.file}: holds {len(names)} datasets; give one, {place.file}:NAME"
            )
        dataset = names[0]
    if dataset not in file:
        raise DataError(f"{place.file}: has no dataset {quoted(dataset)}")
    array = file[dataset]
    if not hasattr(array, "dtype"):
        raise DataError(f"{place.file}: {dataset} is a group, not a dataset")
    # The types are compared as numbers of, say, 12 bits are stored unlike those of NumPy.
    is_plain = (
        array.dtype.kind in NUMERIC and h5py.h5t.py_create(array.dtype) == array.id.get_type()
    )
    if is_plain and (offset := array.id.get_offset()) is not None:
        return ArrayLayout(array.shape, array.dtype.str, offset=offset)
    return Stored(array, checked_axis(axis, array, place.file), _hdf5, place.file)


def _open_tiff(
    place: ArrayPath, axis: int, closers: contextlib.ExitStack
) -> ArrayLayout | Stored | np.ndarray:
    file = closers.enter_context(library(place.suffix).TiffFile(place.file))
    series = file.series[0]
    if series.dataoffset is not None:
        dtype = np.dtype(file.byteorder + series.dtype.char)
        return ArrayLayout(series.shape, dtype.str, offset=series.dataoffset)
    if series.ndim < 3 or len(series.pages) % series.shape[0] or axis % series.ndim:
        values: np.ndarray = series.asarray()
        return values
    return Stored(_Pages(series), 0, threading.Lock(), place.file)


class _Pages:
    """A compressed TIFF stack, read by the pages of its units."""

    def __init__(self, series: Any) -> None:
        self._series = series
        self.shape, self.dtype, self.ndim = series.shape, series.dtype, series.ndim

    def __getitem__(self, index: tuple[slice, ...]) -> np.ndarray:
        first, end, _ = index[0].indices(self.shape[0])
        pages = len(self._series.pages) // self.shape[0]
        found = self._series.pages[first * pages : end * pages]
        return np.stack([page.asarray() for page in found]).reshape(-1, *self.shape[1:])


_OPENERS: dict[str, Callable[[ArrayPath, int, contextlib.ExitStack], Any]] = {
    ".npy": _open_npy,
    RAW: lambda place, axis, closers: _raw_layout(place),
    ZARR: _open_zarr,
    **dict.fromkeys(HDF5, _open_hdf5),
    **dict.fromkeys(TIFF, _open_tiff),
}


# ---- new files


def check_new(place: ArrayPath) -> None:
    if place.suffix == RAW and place.part:
        raise DataError(f"{place.file}: gets the layout of the result; don't give {place.part}")
    check_library(place.suffix)


def begin(place: ArrayPath, fd: int, shape: tuple[int, ...], dtype: str) -> int:
    """Write what a new file has besides its data; return their offset. Zarr stores are packed at
    the end. Raises OSError, and DataError if the format can't hold them.
    """
    path = f"/proc/self/fd/{fd}"
    try:
        if place.suffix in HDF5:
            h5py = library(place.suffix)
            early = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            early.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
            early.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
            with h5py.File(path, "w", locking=False) as file:  # we have locked it
                name = place.part or "data"
                array = file.create_dataset(name, shape=shape, dtype=dtype, dcpl=early)
                return int(array.id.get_offset() or 0)
        if place.suffix in TIFF:
            tifffile, kind = library(place.suffix), {"photometric": "minisblack"}
            array = tifffile.memmap(path, shape=shape, dtype=dtype, bigtiff=True, **kind)
            return int(array.offset)
        if place.suffix == ZARR:
            library(ZARR).create_array({}, shape=shape, dtype=dtype)
    except (OSError, HetschedError):
        raise
    except Exception as error:  # of the library: not all have all dtypes
        reason = reason_of(error)
        raise DataError(
            f"{place.file}: can't hold {dtype} {shape} as {place.suffix}: {reason}"
        ) from error
    if place.suffix in (ZARR, RAW):
        return 0
    return os.pwrite(fd, npy_header(shape, dtype), 0)


def pack_store(fd: int, shape: tuple[int, ...], dtype: str, axis: int, store: str) -> None:
    """Write values from the start of a file, units first, to a new Zarr store, in whole chunks."""
    kind = np.dtype(dtype)
    chunks = _chunks(shape, kind.itemsize)
    array = library(ZARR).create_array(store, shape=shape, dtype=kind, chunks=chunks)
    for index in _blocks(shape, chunks):
        array[index] = _read_block(fd, index, shape, kind, axis)


def pack(fd: int, shape: tuple[int, ...], dtype: str, axis: int, file: BinaryIO) -> None:
    """Write values from the start of a file, units first, to another one, in C order."""
    kind = np.dtype(dtype)
    for index in _blocks(shape, _chunks(shape, kind.itemsize)):
        block = np.ascontiguousarray(_read_block(fd, index, shape, kind, axis))
        raw = block.reshape(-1).view(np.uint8).data
        while raw:
            raw = raw[file.write(raw) :]


def _read_block(
    fd: int, index: tuple[slice, ...], shape: tuple[int, ...], dtype: np.dtype[Any], axis: int
) -> np.ndarray:
    """Read one of `_blocks` of an array that is in a file with its axis of units first."""
    sizes = [part.stop - part.start for part in index]
    block = np.empty((sizes[axis], *_without(sizes, axis)), dtype)
    item = 0  # of the block's first value in a unit, where those of the block lie together
    for part, extent in zip(_without(index, axis), _without(shape, axis), strict=True):
        item = item * extent + part.start
    unit = math.prod(_without(shape, axis))
    # The units of a block lie together, too, if they are the first axis.
    pieces = block if axis else block[np.newaxis]
    for number, piece in enumerate(pieces, index[axis].start):
        offset = (number * unit + item) * dtype.itemsize
        raw = piece.reshape(-1).view(np.uint8).data
        while raw:
            count = os.preadv(fd, [raw], offset)
            if not count:
                raise OSError(0, "the file ends too early")
            raw, offset = raw[count:], offset + count
    return np.moveaxis(block, 0, axis)


def _without(values: Sequence[T], axis: int) -> tuple[T, ...]:
    return (*values[:axis], *values[axis + 1 :])


def _chunks(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Return the shape of chunks that lie in one piece in the array's memory."""
    chunks = list(shape)
    for axis, extent in enumerate(shape):
        rest = max(1, math.prod(shape[axis + 1 :]) * itemsize)
        chunks[axis] = max(1, min(extent, CHUNK_BYTES // rest))
        if chunks[axis] > 1:
            break
    return tuple(chunks)


def _blocks(shape: tuple[int, ...], chunks: tuple[int, ...]) -> Iterator[tuple[slice, ...]]:
    """Yield parts of an array in the order of its memory, each of some chunks beside another."""
    if not math.prod(shape):
        return
    split = next((axis for axis, n in enumerate(chunks) if n > 1), len(shape) - 1)
    whole = tuple(slice(0, extent) for extent in shape[split + 1 :])
    for outer in itertools.product(*map(range, shape[:split])):
        head = tuple(slice(i, i + 1) for i in outer)
        if split < 0:
            yield ()
            return
        step = CHUNKS_AT_ONCE * chunks[split]
        for first in range(0, shape[split], step):
            yield (*head, slice(first, min(first + step, shape[split])), *whole)


# ---- opening


def read_whole(path: str, max_bytes: int) -> bytes:
    fd = open_regular(path, "a file to read", allow_pipe=True)
    with open(fd, "rb") as file:
        try:
            raw = file.read(max_bytes + 1)
        except OSError as error:
            raise IOFailure(f"{path}: {error.strerror}") from None
    if len(raw) > max_bytes:
        raise DataError(f"{path}: larger than the limit of {format_bytes(max_bytes)}")
    return raw


def file_kind(mode: int) -> str:
    kinds = {stat.S_IFDIR: "a directory", stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket"}
    return kinds.get(stat.S_IFMT(mode), "a device")


def open_regular(path: str, expected: str, allow_pipe: bool = False) -> int:
    """Open a regular file; nothing else is opened for reading, which could block.

    `allow_pipe`: for commands, not the daemon; a FIFO ends at once if it has no writer.
    """
    try:
        # O_PATH first: to open a device or a FIFO can block, or act on the device.
        path_fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        raise _cant_open(path, error) from None
    try:
        mode = os.fstat(path_fd).st_mode
        if not stat.S_ISREG(mode) and not (allow_pipe and stat.S_ISFIFO(mode)):
            raise DataError(f"{path}: is {file_kind(mode)}, not {expected}")
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        fd = os.open(f"/proc/self/fd/{path_fd}", flags)
    except OSError as error:
        raise _cant_open(path, error) from None
    finally:
        os.close(path_fd)
    if allow_pipe:
        os.set_blocking(fd, True)
    return fd


def _cant_open(path: str, error: OSError | ValueError) -> Exception:
    code = error.errno if isinstance(error, OSError) else errno.ENOENT
    if code in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
        return TryAgain(f"{path}: {os.strerror(code)}; try again, or raise `ulimit -n`")
    if code == errno.ENOENT and Path(path).is_symlink():
        return InputMissing(f"{path}: is a link to {Path(path).readlink()}, which doesn't exist")
    if code == errno.ENOENT:
        return InputMissing(f"{path}: no such file")
    if code in (errno.EACCES, errno.EPERM):
        return InputMissing(f"{path}: not readable by this user (permission denied)")
    return InputMissing(f"{path}: {error.strerror if isinstance(error, OSError) else error}")


if __name__ == "__main__":
    sys.exit(serve(_print_layout))
