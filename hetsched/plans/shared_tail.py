"""The shared tail of a job: units that no core is assigned, which cores take when they are done.

The cores of one device process take them chunk by chunk from a shared counter, without the engine,
so that they finish together although their speeds vary from run to run. Chunks shrink with what
remains: guided self-scheduling (Polychronopoulos & Kuck, IEEE Trans. Comput. C-36, 1987) by halves
as in factoring (Hummel, Schonberg & Flynn, Commun. ACM 35, 1992), weighted by the learnt speeds.
Pure.

Owns the counter, for device processes and the simulator; the rule is `device.TailPart`, because it
is part of messages. The planner decides the size of the tail (`planner.tails`).
"""

from __future__ import annotations

from hetsched.device import TailPart

TAIL_CHUNK_ID = -1
"""Id of each chunk that a core takes: the engine doesn't number them. A core has one at a time."""


class TailCounter:
    """The units of one tail that no core has taken yet. Not thread-safe."""

    def __init__(self, first: int, units: int) -> None:
        self._next = first
        self._end = first + units

    @property
    def remaining(self) -> int:
        """Units that nobody has taken."""
        return self._end - self._next

    def take(self, part: TailPart) -> tuple[int, int] | None:
        """Take a chunk by the rule of `part`; return (first, count), None if nothing remains."""
        count = part.units_to_take(self.remaining)
        if not count:
            return None
        first = self._next
        self._next += count
        return first, count
