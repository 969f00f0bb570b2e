"""The shared tail of a job: units that no core is assigned, which cores take when they are done.

The cores of one device process take them chunk by chunk from a shared counter, without the engine,
so that they finish together although their speeds vary from run to run. Chunks shrink with what
remains: guided self-scheduling (Polychronopoulos & Kuck, IEEE Trans. Comput. C-36, 1987) by halves
as in factoring (Hummel, Schonberg & Flynn, Commun. ACM 35, 1992), weighted by the learnt speeds.
Pure.

Owns the rule and the counter, for device processes, the simulator and the dispatcher. The planner
decides the size of the tail (`planner.tails`).
"""

from __future__ import annotations

import msgspec

TAIL_CHUNK_ID = -1
"""Id of each chunk that a core takes: the engine doesn't number them. A core has one at a time."""
HALVES = 2
"""A core takes its part of this fraction of what remains, so that the others' parts remain."""


class TailPart(msgspec.Struct, frozen=True):
    """What one core must know of the tail.

    Attributes
    ----------
    first, units : int
        The whole tail; the same for all cores that share it.
    weight : float
        The core's part of the speed of all of them, 0 to 1.
    least, most : int, units
        Limits of a chunk: `least` makes the cost of taking it negligible, `most` bounds the wait
        of a cancellation.
    """

    first: int
    units: int
    weight: float
    least: int = 1
    most: int = 1 << 62

    def units_to_take(self, remaining: int) -> int:
        """Return the units of the core's next chunk when `remaining` units weren't taken yet."""
        fair = int(self.weight * remaining / HALVES)
        return min(remaining, self.most, max(self.least, fair))

    @property
    def largest_take(self) -> int:
        """The units of the largest chunk that it takes."""
        return self.units_to_take(self.units)


class TailCounter:
    """The units of one tail that no core has taken yet. Not thread-safe."""

    def __init__(self, first: int, units: int) -> None:
        self._next = first
        self._end = first + units

    def take(self, part: TailPart) -> tuple[int, int] | None:
        """Take a chunk by the rule of `part`; return (first, count), None if nothing remains."""
        count = part.units_to_take(self._end - self._next)
        if not count:
            return None
        first = self._next
        self._next += count
        return first, count
