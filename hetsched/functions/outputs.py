"""Where the results of a call go: new arrays, the caller's, or new files, which appear whole.

What a call has completed in files that aren't complete is noted, so that the same call can go on.
"""

from __future__ import annotations

import itertools
import math
import os
import re
import shutil
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from hetsched.errors import CantCreate, DataError, UsageError
from hetsched.functions.call import PIECE_BYTES, Call, Outdated
from hetsched.functions.function import function_name
from hetsched.functions.session import calls
from hetsched.functions.workload import Layout
from hetsched.paths import FORMAT_NAMES, FORMATS, ZARR, is_path, split_path
from hetsched.store import formats, output_files
from hetsched.store.stored import Target, checked_axis, common_granule, is_stored, reason_of
from hetsched.units import Ranges, merged, quoted, without

MAX_OVERLAP_WORK = 1000
"""Of the question whether two arrays overlap: some microseconds."""


class Outputs:
    """Where the results of a call go: new arrays, the caller's, or files.

    `out` and `shape` are those of `map`.
    `identity`: of the call, if it goes on where an earlier one was interrupted; see `same_call`.
    """

    def __init__(
        self, call: Call, out: Any = None, shape: Sequence[int] | None = None, identity: str = ""
    ) -> None:
        self._call, self._shape = call, None if shape is None else tuple(shape)
        self._layouts: tuple[Layout, ...] | None = None
        if call.dtype is not None:
            call.casting = "unsafe"
        elif out is not None:
            call.casting = "same_kind"
        given = out if isinstance(out, tuple | list) else (out,)
        self._given: list[Any] | None = None if out is None else [self._taken(g) for g in given]
        self.granule = common_granule(call.split, self._given or [])
        self._files = [each for each in self._given or () if isinstance(each, NewFile)]
        if any(file.is_store for file in self._files):
            unit = sum(x.nbytes // max(1, x.shape[0]) for x in call.split)
            count = max(1, PIECE_BYTES // max(1, unit * self.granule))
            self.granule = max(self.granule, min(count * self.granule, call.load))
        if identity:
            if not self._files or len(self._files) < len(self._given or ()):
                raise UsageError("resume: out should be the path of a new file")
            call.progress = Progress(self._files, f"{identity} {self.granule}")
            self._reopen(call.progress)

    def _reopen(self, progress: Progress) -> None:
        """Go on with the files of an interrupted call, if it was the same."""
        is_same = False
        try:
            if (header := progress.found(self._call.load)) is not None:
                self._take_over(progress, header)
                is_same = True
        finally:
            if not is_same:
                progress.close()
                for file in progress.files:
                    file.keep()

    def _take_over(self, progress: Progress, header: Header) -> None:
        call = self._call
        call.is_tuple, self._layouts = header.is_tuple, header.layouts
        places = zip(progress.files, header.layouts, header.files, strict=True)
        call.outputs = [
            self._moved(file.reopen(self._full(y), np.dtype(y.dtype), call.axis, offset))
            for file, y, (_, offset) in places
        ]
        progress.begin(call.load, header.is_tuple, header.layouts)
        done = sum(end - first for first, end in progress.finished)
        text = f"resumed: {done} of {call.load} units were complete"
        calls.remark(function_name(call.f), [text])

    def missing(self) -> list[tuple[int, int]]:
        progress = self._call.progress
        return without(0, self._call.load, () if progress is None else progress.finished)

    def _taken(self, given: Any) -> Any:
        if isinstance(given, NewFile):
            return given
        if is_path(given):
            return NewFile(given)
        if is_stored(given):
            return Target(given, checked_axis(self._call.axis, given, "out"))
        if isinstance(given, np.ndarray):
            return given
        raise UsageError(f"out: {quoted(given)} should be an array or the path of a new file")

    def allocate(self, layouts: Sequence[Layout]) -> None:
        """Take the caller's arrays for results of these layouts, or make new ones.

        Raises Outdated if there are some already, for others.
        """
        call = self._call
        if call.reduction is not None:
            return
        if self._layouts is not None:
            if tuple(layouts) != self._layouts:
                raise Outdated
            return
        if self._given is None:
            call.outputs = [self._moved(self._new(layout)) for layout in layouts]
        elif len(self._given) != len(layouts):
            raise DataError(
                f"out has {len(self._given)} arrays; {function_name(call.f)} returns"
                f" {len(layouts)}"
            )
        else:
            call.outputs = [
                self._checked(given, layout)
                for given, layout in zip(self._given, layouts, strict=True)
            ]
            taken = [y for y in call.outputs if isinstance(y, np.ndarray)]
            if any(share_memory(*pair) for pair in itertools.combinations(taken, 2)):
                raise DataError("out: two of the arrays overlap; use separate ones")
        shape = self._full(layouts[0])
        if self._shape is not None and self._shape != shape:
            raise DataError(f"shape: {self._shape}, but the result has {shape}")
        if call.progress is not None:
            call.progress.begin(call.load, call.is_tuple, layouts)
        self._layouts = tuple(layouts)

    def _new(self, layout: Layout) -> np.ndarray:
        shape = self._full(layout)
        try:
            return np.empty(shape, layout.dtype)
        except (MemoryError, ValueError) as error:  # as of sizes beyond any memory
            raise DataError(
                f"{function_name(self._call.f)}: no memory for the result, {layout.dtype} {shape}:"
                f" {reason_of(error)}; give the path of a file as out"
            ) from error

    def _full(self, layout: Layout) -> tuple[int, ...]:
        axis = self._call.axis
        return (*layout.shape[:axis], self._call.load, *layout.shape[axis:])

    def _moved(self, array: Any) -> Any:
        is_in_memory = isinstance(array, np.ndarray)
        return np.moveaxis(array, self._call.axis, 0) if is_in_memory else array

    def _checked(self, given: Any, layout: Layout) -> Any:
        shape, call = self._full(layout), self._call
        if isinstance(given, NewFile):
            dtype = np.dtype(layout.dtype)
            return self._moved(given.create(shape, dtype, call.axis, self.granule))
        found = given.array if isinstance(given, Target) else given
        if found.shape != shape or not np.can_cast(layout.dtype, found.dtype, "same_kind"):
            name = function_name(call.f)
            raise DataError(
                f"out is {found.dtype} {found.shape}; {name} gives {layout.dtype} {shape}"
            )
        if isinstance(given, Target):
            return given
        if not given.flags.writeable:
            raise DataError("out is read-only; give an array that can be written")
        inputs = [x for x in (*call.split, *call.whole) if isinstance(x, np.ndarray)]
        if any(share_memory(given, x) for x in inputs):
            raise DataError("out overlaps an input; use another array")
        return self._moved(given)

    def results(self) -> tuple[Any, ...]:
        call = self._call
        if self._given is None:
            return tuple(np.moveaxis(y, 0, call.axis) for y in call.outputs)
        call.outputs = []
        return tuple(_final(given) for given in self._given)

    def close(self) -> None:
        """Leave files that haven't been completed for the same call, or remove them."""
        progress = self._call.progress
        if progress is not None:
            progress.close()
        if progress is not None and progress.has_parts:
            for file in self._files:
                file.keep()
        else:
            self.discard()

    def discard(self) -> None:
        self._layouts = None
        if self._call.progress is not None:
            self._call.progress.finished = ()
        for file in self._files:
            file.discard()


def _final(given: Any) -> Any:
    if isinstance(given, NewFile):
        return given.commit()
    return given.array if isinstance(given, Target) else given


def share_memory(one: np.ndarray, other: np.ndarray) -> bool:
    """Return whether arrays overlap, or may do so as far as can be said quickly."""
    work: Any = MAX_OVERLAP_WORK  # the stubs know two special values only
    return bool(np.may_share_memory(one, other, max_work=work))


# ---- new files

SYNC_SECONDS = 10.0
"""Between two times that what is complete is written to disk, for the case of a power cut."""
LINE = re.compile(rb"(\d+) (\d+)\n")
SYNCED = re.compile(rb"synced (\d+)\n")
"""So many bytes of the record, and what they tell of, are on disk."""


class NewFile:
    """A file for results, which are written to an array of it."""

    def __init__(self, path: str | os.PathLike[str], force: bool = False) -> None:
        """`force`: replace an existing one. Raises CantCreate, DataError, Unavailable."""
        self._place = place = split_path(path)
        self._given, self._force, self.path = os.fspath(path), force, Path(place.file)
        if place.suffix not in FORMATS:
            raise DataError(f"{self.path}: its name must end with {FORMAT_NAMES}")
        output_files.check_output(self._given, (), "u1", force=True)
        self._check_name()
        self.is_store = place.suffix == ZARR
        """Its chunks are files of their own, of which there shouldn't be too many."""
        self.output: output_files.OutputFile | None = None
        """None: it isn't being written."""
        self._flush: Callable[[], None] = lambda: None

    def create(self, shape: Sequence[int], dtype: np.dtype[Any], axis: int, granule: int) -> Any:
        """Return an array to write to: an ndarray or a `Target`. Raises CantCreate, DataError."""
        self._check_name()
        shape = tuple(map(int, shape))
        if not self.is_store:
            self.output = output_files.create_output(
                self._given, shape, dtype.str, self._force, alone=True
            )
            return self._mapped(shape, dtype)
        # Not packed at the end: no two threads write to one chunk, and each compresses its own.
        formats.begin(self._place, -1, shape, dtype.str)  # can it hold them?
        self.output = output_files.create_file(self._place.file, 0, self._force, alone=True)
        nbytes = math.prod(shape) * dtype.itemsize
        output_files.check_room(self._place.file, self.output.fd, nbytes)
        self.output.store = output_files.packed_path(self.output.hidden)
        shutil.rmtree(self.output.store, ignore_errors=True)  # a process ended while removing it
        chunks = (*shape[:axis], granule, *shape[axis + 1 :])
        with output_files.creation_errors(self._place.file):
            array = formats.library(ZARR).create_array(
                self.output.store, shape=shape, dtype=dtype, chunks=chunks
            )
        return Target(array, axis)

    def _check_name(self) -> None:
        if not self._force and self.path.exists():
            raise CantCreate(f"{self.path}: exists; remove it, or choose another name")

    def find(self) -> output_files.OutputFile:
        """Open what an earlier process has left. Raises OSError if there is nothing whole."""
        self.output = output = output_files.open_again(self._place.file, self._force)
        if self.is_store:  # else the process has ended after the store got its name
            Path(output_files.packed_path(output.hidden)).stat()
        return output

    def reopen(self, shape: Sequence[int], dtype: np.dtype[Any], axis: int, offset: int) -> Any:
        """Return the array that an earlier process has created, its values from `offset` on."""
        assert self.output is not None
        self.output.offset = offset
        if not self.is_store:
            return self._mapped(tuple(shape), dtype)
        self.output.store = output_files.packed_path(self.output.hidden)
        try:
            array = formats.library(ZARR).open_array(self.output.store, mode="r+")
        except Exception as error:
            raise DataError(f"{self.path}: can't be opened again: {reason_of(error)}") from error
        return Target(array, axis)

    def _mapped(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
        if not math.prod(shape):
            return np.empty(shape, dtype)
        assert self.output is not None
        try:
            array = np.memmap(self.output.hidden, dtype, "r+", self.output.offset, shape)
        except OSError as error:  # such as a limit of address space
            raise output_files.write_error(self._place.file, error) from error
        self._flush = array.flush
        return array

    def commit(self) -> Path:
        assert self.output is not None
        try:
            self._flush()
        except OSError as error:
            raise output_files.write_error(self._place.file, error) from error
        self.output.publish(sync=False)
        self.keep()
        return self.path

    def discard(self) -> None:
        """Remove what this call has written, unless it has its name by now."""
        if self.output is not None:
            self.output.discard()
        self.keep()

    def keep(self) -> None:
        if self.output is not None:
            self.output.close()
        self.output, self._flush = None, lambda: None


class Header(msgspec.Struct, frozen=True):
    """First line of a record. `call`: see `same_call`; `boot`: identifies the running kernel;
    `files`: inode, and the offset of the values, of each hidden file.
    """

    call: str
    boot: str
    load: int
    is_tuple: bool
    layouts: tuple[Layout, ...]
    files: tuple[tuple[int, int], ...]


class Progress:
    """The record of a call beside the first of its files: a header, then a line for each part.

    A line is written when its units are: that survives the end of the process, but not that of
    the machine. After a start of the machine counts what was synced before.
    """

    def __init__(self, files: Sequence[NewFile], call: str) -> None:
        self.files, self._call = files, call
        self._lock = threading.Lock()
        self._synced = time.monotonic()
        self._boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        self._record = -1
        self.finished: Ranges = ()
        """What an earlier process has completed."""
        self.has_parts = False

    def found(self, load: int) -> Header | None:
        """Return the header that an interrupted call has left, and take over what it has done.

        None: there is none, or of another call.
        """
        try:
            outputs = [file.find() for file in self.files]
            raw = Path(output_files.parts_path(outputs[0].hidden)).read_bytes()
            first, newline, _ = raw.partition(b"\n")
            header = msgspec.json.decode(first, type=Header)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
            return None
        begun, end = len(first + newline), len(raw)
        if header.boot != self._boot:
            end = max((int(found[1]) for found in SYNCED.finditer(raw, begun)), default=begun)
        lines = LINE.finditer(raw, begun, end)
        ranges = merged((int(line[1]), int(line[2])) for line in lines)
        is_same = header.call == self._call and header.load == load
        inodes = [os.fstat(output.fd).st_ino for output in outputs]
        if not is_same or inodes != [inode for inode, _ in header.files]:
            return None
        if not ranges or ranges[-1][1] > load:
            return None
        self.finished, self.has_parts = ranges, True
        return header

    def begin(self, load: int, is_tuple: bool, layouts: Sequence[Layout]) -> None:
        """Write the record of files that have just been created, or opened again."""
        outputs = [file.output for file in self.files if file.output is not None]
        files = tuple((os.fstat(output.fd).st_ino, output.offset) for output in outputs)
        header = Header(self._call, self._boot, load, is_tuple, tuple(layouts), files)
        if self.finished:
            self._sync()
        lines = [msgspec.json.encode(header).decode(), *(f"{a} {b}" for a, b in self.finished)]
        text = "".join(f"{line}\n" for line in lines)
        self.close()
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        with output_files.creation_errors(outputs[0].path):
            self._record = os.open(output_files.parts_path(outputs[0].hidden), flags, 0o666)
        self._write(f"{text}synced {len(text.encode())}\n")

    def add(self, first: int, end: int) -> None:
        """Note units whose results have been written. Raises CantCreate, IOFailure."""
        with self._lock:
            self.has_parts = True
            self._write(f"{first} {end}\n")
            size = os.fstat(self._record).st_size
            if time.monotonic() < self._synced + SYNC_SECONDS:
                return
            self._synced = time.monotonic() + SYNC_SECONDS  # other threads go on meanwhile
        self._sync()
        with self._lock:
            self._write(f"synced {size}\n")
            self._synced = time.monotonic()

    def close(self) -> None:
        if self._record >= 0:
            os.close(self._record)
        self._record = -1

    def _write(self, text: str) -> None:
        try:
            os.write(self._record, text.encode())
        except OSError as error:
            raise output_files.write_error(str(self.files[0].path), error) from error

    def _sync(self) -> None:
        paths = [file.output.path for file in self.files if file.output is not None]
        for path in {os.path.dirname(path): path for path in paths}.values():
            output_files.sync_all(path)
