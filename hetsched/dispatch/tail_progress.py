"""What is known of a shared tail: which units are done, and which devices may be taking some.

The devices take units without asking. Reports arrive out of order, but as every chunk is the next
one that nobody has taken, the finished ranges soon merge into one.
"""

from __future__ import annotations

from collections.abc import Mapping

from hetsched.device import Chunk, TailPart

Range = tuple[int, int]
"""First unit, and the unit after the last one."""


class TailProgress:
    """The tail that several devices share.

    Parameters
    ----------
    parts : mapping
        Device -> its part; all of the same tail.

    Attributes
    ----------
    unfinished : int, units
        0 once the tail is closed.
    is_closed : bool
        No device takes any more; what lost ones haven't finished is rerun as ordinary chunks.
    """

    def __init__(self, parts: Mapping[str, TailPart]) -> None:
        self._parts = dict(parts)
        tail = next(iter(self._parts.values()))
        self._first, self._end = tail.first, tail.first + tail.units
        self._finished: list[Range] = []
        self._opened: set[str] = set()
        self._left: set[str] = set()
        self.unfinished = tail.units
        self.is_closed = False

    def open_for(self, device: str) -> bool:
        """Allow `device` to take units; return whether that is new."""
        if self.is_closed or device in self._opened or device in self._left:
            return False
        self._opened.add(device)
        return True

    def is_taking(self, device: str) -> bool:
        """Return whether `device` may be computing units of the tail."""
        return not self.is_closed and device in self._opened and device not in self._left

    def may_take(self, device: str) -> bool:
        """Return whether `device` may take units now or later, as far as is known."""
        return not self.is_closed and self.unfinished > 0 and device not in self._left

    def leave(self, device: str) -> list[Range]:
        """Record that nothing remains for `device`, or that it is lost.

        Return what nobody has finished, once no device takes any more: until then another may be
        computing it.
        """
        self._left.add(device)
        if self._left.issuperset(self._parts):
            return self._close()
        return []

    def finish(self, first: int, count: int) -> bool:
        """Record a finished chunk; return whether it counts: not once its units are rerun."""
        if self.is_closed:
            return False
        self._finished = _merged([*self._finished, (first, first + count)])
        self.unfinished -= count
        return True

    def _close(self) -> list[Range]:
        if self.is_closed:
            return []
        self.is_closed = True
        self.unfinished = 0
        starts = [self._first, *(end for _, end in self._finished)]
        ends = [*(first for first, _ in self._finished), self._end]
        return [(a, b) for a, b in zip(starts, ends, strict=True) if a < b]

    def largest_chunk(self, device: str) -> Chunk:
        """Return a chunk as large as the one that `device` may be computing. Its id means nothing.

        Units that others have taken and not finished count as not taken, so it is an upper bound.
        """
        return Chunk(-1, self._first, self._parts[device].units_to_take(self.unfinished))

    def expected_units(self, device: str) -> int:
        """Return the part of the unfinished units that `device` will take if all are on time.

        The parts of all devices sum to what is unfinished.
        """
        before = 0.0
        for name, part in self._parts.items():
            if name == device:
                return self._part_of(before + part.weight) - self._part_of(before)
            before += part.weight
        return 0

    def _part_of(self, weight: float) -> int:
        return round(min(weight, 1.0) * self.unfinished)


def group_tails(parts: Mapping[str, TailPart]) -> dict[str, TailProgress]:
    """Return device -> the progress of its tail; the same one for all devices that share it."""
    groups: dict[int, dict[str, TailPart]] = {}
    for device, part in parts.items():
        groups.setdefault(part.first, {})[device] = part
    tails = {first: TailProgress(group) for first, group in groups.items()}
    return {device: tails[part.first] for device, part in parts.items()}


def _merged(ranges: list[Range]) -> list[Range]:
    merged: list[Range] = []
    for first, end in sorted(ranges):
        if merged and merged[-1][1] == first:
            merged[-1] = merged[-1][0], end
        else:
            merged.append((first, end))
    return merged
