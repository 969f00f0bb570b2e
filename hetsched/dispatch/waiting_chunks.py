"""The chunks of one device that weren't sent yet: taken from both ends, made when they are taken.

A long job has tens of thousands of chunks per core. A sequence that makes them on demand
(`EvenChunks`) is never expanded here, so that waiting chunks cost no memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from hetsched.device import Chunk, EvenChunks


class WaitingChunks:
    """A queue over a sequence of chunks, of which the last may be replaced.

    Parameters
    ----------
    chunks : sequence of Chunk
        In order; not changed here.
    """

    def __init__(self, chunks: Sequence[Chunk]) -> None:
        self._chunks = chunks
        self._next, self._end = 0, len(chunks)
        self._final: Chunk | None = None

    def __len__(self) -> int:
        return self._end - self._next + (self._final is not None)

    def __iter__(self) -> Iterator[Chunk]:
        for index in range(self._next, self._end):
            yield self._chunks[index]
        if self._final is not None:
            yield self._final

    def first(self) -> Chunk:
        """Return the next chunk. Raises IndexError if there is none."""
        return next(iter(self)) if len(self) else self._raise_empty()

    def popleft(self) -> Chunk:
        """Remove and return the next chunk. Raises IndexError if there is none."""
        if self._next < self._end:
            self._next += 1
            return self._chunks[self._next - 1]
        return self.pop()

    def pop(self) -> Chunk:
        """Remove and return the last chunk. Raises IndexError if there is none."""
        final, self._final = self._final, None
        if final is not None:
            return final
        if self._next == self._end:
            self._raise_empty()
        self._end -= 1
        return self._chunks[self._end]

    def replace_last(self, chunk: Chunk) -> None:
        """Put back another chunk for the one that was removed last by `pop`."""
        assert self._final is None, "the last chunk is removed first"
        self._final = chunk

    def clear(self) -> list[Chunk]:
        """Remove all chunks; return them with contiguous ones merged, as few large chunks."""
        merged: list[Chunk] = []
        for chunk in self:
            previous = merged[-1] if merged else None
            if previous is not None and previous.first + previous.count == chunk.first:
                merged[-1] = msgspec.structs.replace(previous, count=previous.count + chunk.count)
            else:
                merged.append(chunk)
        self._next = self._end = 0
        self._chunks, self._final = (), None
        return merged

    def _raise_empty(self) -> Chunk:
        raise IndexError("no chunk waits")


def total_units(chunks: Sequence[Chunk]) -> int:
    """Return the units of `chunks`; O(1) for those that are made on demand."""
    if isinstance(chunks, EvenChunks):
        return chunks.units
    return sum([chunk.count for chunk in chunks])


def largest_id(chunks: Sequence[Chunk]) -> int:
    """Return the largest id among `chunks`, -1 without any; O(1) as `total_units`."""
    if isinstance(chunks, EvenChunks):
        return chunks[-1].id if chunks else -1
    return max([chunk.id for chunk in chunks], default=-1)
