"""Arrays in .npy, raw, Zarr, HDF5 and TIFF files; results appear whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import importlib
import math
import os
import re
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hetsched.errors import (
    NO_SPACE,
    CantCreate,
    DataError,
    HetschedError,
    InputMissing,
    IOFailure,
    Unavailable,
)
from hetsched.functions.sources import Stored, Target, reason_of
from hetsched.store.output_files import allocate, check_room, open_folder
from hetsched.units import quoted

HDF5 = (".h5", ".hdf5")
TIFF = (".tif", ".tiff")
RAW = ".raw"
LAYOUT = re.compile(r"(.+?):([<>=|]?[a-zA-Z]\w*):(\d+(?:x\d+)*)(?::(\d+))?", re.ASCII | re.DOTALL)
"""Of a raw file: FILE:DTYPE:SHAPE[:OFFSET], the offset in bytes."""
KINDS = ".npy, .zarr, .h5:dataset, .tif or .raw"
EXTRAS = {"zarr": "zarr", "h5py": "hdf5", "tifffile": "tiff"}
NO_PLACE = (errno.ENOENT, errno.EACCES, errno.ENOTDIR)
_hdf5 = threading.Lock()
"""The HDF5 library computes one call at a time anyway."""


def is_path(value: Any) -> bool:
    return isinstance(value, str | os.PathLike)


def _library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise Unavailable(
            f"{name} isn't installed: pip install 'hetsched[{EXTRAS[name]}]'"
        ) from None


def split_path(path: str | os.PathLike[str]) -> tuple[Path, str, str]:
    """Return a path, its kind as a suffix, and a dataset in it, or the layout of a raw file."""
    text = os.fspath(path)
    if (found := LAYOUT.fullmatch(text)) and not found[1].endswith(HDF5):
        return Path(found[1]), RAW, text[found.end(1) + 1 :]
    for suffix in HDF5:
        head, colon, dataset = text.rpartition(f"{suffix}:")
        if colon:
            return Path(head + suffix), suffix, dataset.strip("/")
    return Path(text), Path(text).suffix.lower(), ""


# ---- inputs


def open_array(path: str | os.PathLike[str], axis: int, closers: contextlib.ExitStack) -> Any:
    """Open the array in a file, along `axis`: an ndarray or a `Stored`.

    `closers` get what closes it. Raises InputMissing, DataError, Unavailable.
    """
    place, suffix, dataset = split_path(path)
    opener = _OPENERS.get(suffix)
    try:
        if not place.exists():
            raise InputMissing(f"{place}: no such file")
        if opener is None:
            raise DataError(f"{place}: its name must end with {KINDS}")
        _check_kind(place, suffix)
        return opener(place, axis, dataset, closers)
    except HetschedError:
        raise
    except PermissionError as error:
        raise InputMissing(f"{place}: {error.strerror}") from error
    except Exception as error:  # of the library that reads it: the file may hold anything
        message = f"{place}: isn't a usable {suffix} file: {reason_of(error)}"
        raise DataError(message) from error


def _check_kind(path: Path, suffix: str) -> None:
    """Refuse what libraries would wait for, such as a FIFO."""
    if suffix == ".zarr" and path.is_dir():
        records = [path / name for name in ("zarr.json", ".zarray", ".zgroup")]
    else:
        records = [path]
    for each in records:
        if each.exists() and not each.is_file():
            raise DataError(f"{each}: isn't a regular file")


def _open_npy(path: Path, axis: int, dataset: str, closers: contextlib.ExitStack) -> Any:
    return np.load(path, mmap_mode="r", allow_pickle=False)


def _open_raw(path: Path, axis: int, layout: str, closers: contextlib.ExitStack) -> Any:
    if not layout:
        raise DataError(
            f"{path}: what is in it? Give dtype and shape, and the offset if it isn't 0, as"
            f" {path}:uint16:500x512x512:4096"
        )
    name, sizes, offset = (*layout.split(":"), "0")[:3]
    try:
        dtype = np.dtype(name)
    except TypeError:
        raise DataError(f"{path}: {quoted(name)} is no dtype of NumPy's") from None
    if not dtype.itemsize or dtype.hasobject:
        raise DataError(f"{path}: {dtype}; only numeric dtypes are supported")
    shape = tuple(map(int, sizes.split("x")))
    needed, size = int(offset) + math.prod(shape) * dtype.itemsize, path.stat().st_size
    if needed > size:
        raise DataError(f"{path}: has {size} bytes; {layout} takes {needed}")
    if not math.prod(shape):
        return np.empty(shape, dtype)
    return np.memmap(path, dtype, "r", int(offset), shape)


def _open_zarr(path: Path, axis: int, dataset: str, closers: contextlib.ExitStack) -> Any:
    array = _library("zarr").open_array(str(path), mode="r")
    return Stored(array, _checked_axis(axis, array.ndim, path), name=str(path))


def _open_hdf5(path: Path, axis: int, dataset: str, closers: contextlib.ExitStack) -> Any:
    file = _library("h5py").File(path, "r")
    closers.callback(file.close)
    if not dataset:
        names = [name for name, value in file.items() if hasattr(value, "dtype")]
        if len(names) != 1:
            raise DataError(f"{path}: holds {len(names)} datasets; give one, {path}:NAME")
        dataset = names[0]
    if dataset not in file:
        raise DataError(f"{path}: has no dataset {quoted(dataset)}")
    array = file[dataset]
    if not hasattr(array, "dtype"):
        raise DataError(f"{path}: {dataset} is a group, not a dataset")
    return Stored(array, _checked_axis(axis, array.ndim, path), _hdf5, str(path))


def _open_tiff(path: Path, axis: int, dataset: str, closers: contextlib.ExitStack) -> Any:
    tifffile = _library("tifffile")
    with contextlib.suppress(ValueError):  # it is compressed
        return tifffile.memmap(path, mode="r")
    file = tifffile.TiffFile(path)
    closers.callback(file.close)
    series = file.series[0]
    if series.ndim < 3 or len(series.pages) != series.shape[0] or axis % series.ndim:
        return series.asarray()
    return Stored(_Pages(series), 0, threading.Lock(), str(path))


class _Pages:
    """A compressed TIFF stack, read by pages."""

    def __init__(self, series: Any) -> None:
        self._series = series
        self.shape, self.dtype, self.ndim = series.shape, series.dtype, series.ndim

    def __getitem__(self, index: tuple[slice, ...]) -> np.ndarray:
        pages = self._series.pages[index[0]]
        return np.stack([page.asarray() for page in pages])


def _checked_axis(axis: int, ndim: int, path: Path) -> int:
    if not -ndim <= axis < ndim:
        raise DataError(f"{path} has {ndim} axes: it has no axis {axis}")
    return axis % ndim


_LIBRARIES = {
    ".zarr": "zarr",
    **dict.fromkeys(HDF5, "h5py"),
    **dict.fromkeys(TIFF, "tifffile"),
}
_OPENERS = {
    ".npy": _open_npy,
    RAW: _open_raw,
    ".zarr": _open_zarr,
    **dict.fromkeys(HDF5, _open_hdf5),
    **dict.fromkeys(TIFF, _open_tiff),
}


# ---- outputs


class OutputFile:
    """A file that appears under its name once it is complete.

    Until then it is hidden beside it, with a record that its process keeps locked: what a process
    leaves that was killed is found, and replaced or completed.
    """

    def __init__(self, path: str | os.PathLike[str], force: bool = False) -> None:
        """`force`: replace an existing one. Raises CantCreate, DataError, Unavailable."""
        self._force = force
        self.path, self._suffix, dataset = split_path(path)
        if self._suffix == RAW and dataset:
            raise DataError(f"{self.path}: gets the layout of the result; don't give {dataset}")
        self._dataset = dataset or "data"
        if self._suffix not in _OPENERS:
            raise DataError(f"{self.path}: its name must end with {KINDS}")
        if self._suffix in _LIBRARIES:
            _library(_LIBRARIES[self._suffix])
        try:
            exists = self.path.exists()
        except OSError as error:  # such as a name that is too long
            raise self.failure(error) from error
        if exists and not force:
            raise CantCreate(f"{self.path} exists; remove it, or choose another name")
        self.hidden = self.path.with_name(f".{self.path.name}.part{self._suffix}")
        self._record_path = self.path.with_name(f".{self.path.name}.parts")
        self._flush: Callable[[], None] = lambda: None
        self.record = -1
        """Descriptor of the record, for `Progress`; -1: the file isn't being written."""

    @property
    def has_chunks(self) -> bool:
        """Whether its chunks are files of their own, of which there shouldn't be too many."""
        return self._suffix == ".zarr"

    def create(self, shape: Sequence[int], dtype: np.dtype[Any], axis: int, granule: int) -> Any:
        """Return an array to write to: an ndarray or a `Target`. Raises CantCreate."""
        shape = tuple(map(int, shape))
        with self._failures(f"can't hold {dtype} {shape} as {self._suffix}"):
            self.lock()
            os.ftruncate(self.record, 0)
            self._remove()
            return self._create(shape, dtype, axis, granule)

    def reopen(self, shape: Sequence[int], dtype: np.dtype[Any], axis: int, offset: int) -> Any:
        """Return the array that an earlier process has created, its values from `offset` on."""
        with self._failures("can't be opened again"):
            if self._suffix == ".zarr":
                return Target(_library("zarr").open_array(str(self.hidden), mode="r+"), axis)
            return self._mapped(tuple(shape), dtype, offset)

    @contextlib.contextmanager
    def _failures(self, what: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self.failure(error) from error
        except HetschedError:
            raise
        except Exception as error:  # of the library that writes it: not all have all dtypes
            raise DataError(f"{self.path}: {what}: {reason_of(error)}") from error

    def lock(self) -> None:
        """Open the record. Raises CantCreate if another process, or thread, writes the file."""
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        while self.record < 0:
            fd = os.open(self._record_path, flags, 0o666)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(fd)
                raise CantCreate(
                    f"{self.path}: another call is writing it; wait for it, or choose another name"
                ) from None
            except OSError:  # a file system without locks
                pass
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(fd), os.lstat(self._record_path)):
                    self.record = fd
                    return
            os.close(fd)  # who had it locked before has removed it meanwhile

    def _create(
        self, shape: tuple[int, ...], dtype: np.dtype[Any], axis: int, granule: int
    ) -> Any:
        with open_folder(str(self.hidden.absolute())) as folder:
            check_room(str(self.path), folder, math.prod(shape) * dtype.itemsize)
        if self._suffix == ".zarr":
            zarr = _library("zarr")
            chunks = (*shape[:axis], granule, *shape[axis + 1 :])
            array = zarr.create_array(str(self.hidden), shape=shape, dtype=dtype, chunks=chunks)
            return Target(array, axis)
        offset = self._described(shape, dtype)
        # Writing to a map of a file without all its space is a SIGBUS when the disk is full.
        with open(self.hidden, "r+b") as file:
            allocate(str(self.path), file.fileno(), os.fstat(file.fileno()).st_size)
        return self._mapped(shape, dtype, offset)

    def _described(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
        """Write a file without values, and return where these begin."""
        if self._suffix in HDF5:
            h5py = _library("h5py")
            layout = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            layout.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
            with h5py.File(self.hidden, "w") as file:
                created = file.create_dataset(self._dataset, shape, dtype, dcpl=layout)
                return int(created.id.get_offset() or 0)
        array: np.memmap[Any, Any]
        if self._suffix == ".npy":
            array = np.lib.format.open_memmap(self.hidden, "w+", dtype, shape)
        elif self._suffix == RAW:
            array = np.memmap(self.hidden, dtype, "w+", shape=shape)
        else:
            array = _library("tifffile").memmap(
                self.hidden, shape=shape, dtype=dtype, bigtiff=True, photometric="minisblack"
            )
        return int(array.offset)

    def _mapped(self, shape: tuple[int, ...], dtype: np.dtype[Any], offset: int) -> np.ndarray:
        if not math.prod(shape):
            return np.empty(shape, dtype)
        array = np.memmap(self.hidden, dtype, "r+", offset, shape)
        self._flush = array.flush
        return array

    def commit(self) -> Path:
        """Give the file its name. Raises IOFailure, CantCreate."""
        try:
            self._flush()
            if self.path.exists() and not self._force:
                raise CantCreate(f"{self.path} has appeared meanwhile; choose another name")
            if self.path.is_dir():
                shutil.rmtree(self.path)
            self.hidden.rename(self.path)
        except OSError as error:
            raise self.failure(error) from error
        self.discard()
        return self.path

    def discard(self) -> None:
        """Remove what there is of the file, unless it has its name by now."""
        if self.record >= 0:
            self._remove()
            self._record_path.unlink(missing_ok=True)
        self.keep()

    def keep(self) -> None:
        """Leave the file as it is, for a later process."""
        self._flush = lambda: None
        if self.record >= 0:
            os.close(self.record)
        self.record = -1

    def _remove(self) -> None:
        if self.hidden.is_dir() and not self.hidden.is_symlink():
            shutil.rmtree(self.hidden, ignore_errors=True)
        else:
            self.hidden.unlink(missing_ok=True)

    def failure(self, error: OSError) -> CantCreate | IOFailure:
        kind = CantCreate if error.errno in (*NO_SPACE, *NO_PLACE) else IOFailure
        return kind(f"{self.path}: {error.strerror or error}")
