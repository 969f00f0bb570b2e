"""Where the results of a call go: new arrays, the caller's, or files."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from hetsched.errors import DataError, UsageError
from hetsched.functions.call import PIECE_BYTES, Call, Outdated
from hetsched.functions.files import Header, NewFile, Progress, is_path
from hetsched.functions.identity import function_name
from hetsched.functions.profile import calls
from hetsched.functions.workload import Layout
from hetsched.store.output_files import without
from hetsched.store.stored import Target, checked_axis, common_granule, is_stored, reason_of
from hetsched.units import quoted

MAX_OVERLAP_WORK = 1000
"""Of the question whether two arrays overlap: some microseconds."""


class Outputs:
    """Where the results of a call go: new arrays, the caller's, or files.

    `out` and `shape` are those of `map`.
    `identity`: of the call, if it goes on where an earlier one was interrupted; see `same_call`.
    """

    def __init__(
        self,
        call: Call,
        out: Any = None,
        shape: Sequence[int] | None = None,
        identity: str = "",
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
        """Remove files that haven't been completed."""
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
