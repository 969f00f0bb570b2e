"""The times of a device's chunks in one run, and their ranges, of bounded length. Pure.

Beyond MAX_RECORDS neighbours are merged, so that an hour of short chunks takes no more memory than
a few minutes. Units, first start and last end stay exact. Merged records are longer than any
chunk, by which `learning.py` recognises them.
"""

from __future__ import annotations

from hetsched.device import ChunkTimes

MAX_RECORDS = 1024
"""Records per device, some hundred bytes each. Arbitrary."""

MAX_RANGES = 8
"""Ranges kept per device: the first ones and the latest. Their edges are compared with the
reference, which takes long, and there may be one range per chunk of a tail. Arbitrary."""

Record = tuple[int, ChunkTimes]
"""Units and times of a chunk, or of neighbours."""

Span = tuple[float, float]


def add_record(records: list[Record], units: int, times: ChunkTimes) -> None:
    """Append a chunk; halve the list by merging pairs if it is too long."""
    records.append((units, times))
    if len(records) > MAX_RECORDS:
        own = [record for record in records if not record[1].taken]
        taken = [record for record in records if record[1].taken]
        records[:] = [*_halved(own), *_halved(taken)]


def _halved(records: list[Record]) -> list[Record]:
    pairs = [records[start : start + 2] for start in range(0, len(records), 2)]
    return [_merged(*pair) for pair in pairs]


def _merged(first: Record, second: Record | None = None) -> Record:
    if second is None:
        return first
    a, b = first[1], second[1]
    compute = _enclosing(a.compute, b.compute)
    assert compute is not None, "every chunk has a compute phase"
    return first[0] + second[0], ChunkTimes(
        copy_in=_enclosing(a.copy_in, b.copy_in),
        compute=compute,
        copy_out=_enclosing(a.copy_out, b.copy_out),
        late=a.late + b.late,
        busy=_sum(a.busy, b.busy),
        host_overhead=_sum(a.host_overhead, b.host_overhead),
        cold=a.cold or b.cold,
        kernel=a.kernel,
        taken=a.taken,
        units_per_call=max(a.units_per_call, b.units_per_call),
    )


def _enclosing(a: Span | None, b: Span | None) -> Span | None:
    if a is None or b is None:
        return a or b
    return min(a[0], b[0]), max(a[1], b[1])


def _sum(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a + b


class ComputedRanges:
    """The ranges of units that each device really computed, of bounded number.

    A device's chunks are contiguous but for those that it stole, reran or took from a tail.
    """

    def __init__(self) -> None:
        self._ranges: dict[str, list[tuple[int, int]]] = {}

    def add(self, device: str, first: int, count: int) -> None:
        """Record a finished chunk."""
        ranges = self._ranges.setdefault(device, [])
        if ranges and ranges[-1][1] == first:
            ranges[-1] = (ranges[-1][0], first + count)
            return
        ranges.append((first, first + count))
        if len(ranges) > MAX_RANGES:
            del ranges[MAX_RANGES // 2]

    def edges(self) -> list[int]:
        """Return the first and the last unit of each range, to compare with the reference."""
        ranges = [pair for pairs in self._ranges.values() for pair in pairs]
        return [unit for first, end in ranges for unit in (first, end - 1)]
