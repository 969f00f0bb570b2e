"""Short shares of cores that are sent as a whole, so that each core reports once.

A report takes a third of a millisecond in the engine, on a core that computes, and so does the
next chunk. Chunks wait in the engine so that others may steal them; cores whose speed is known to
vary balance by a shared tail instead, and with devices that have a link nothing is sent at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hetsched.planner.records import Assignment

MAX_SECONDS = 0.25
"""How much longer than its share a core at half its speed may take for its own chunks: by so much
it may delay a job. Without a tail that is the time of the share. Arbitrary."""
MAX_SHARE_SECONDS = 1.0
"""The longest share that is sent at once, whatever its tail: a core may get slower than that.
Arbitrary."""


def sent_at_once(assignments: Sequence[Assignment]) -> tuple[Assignment, ...]:
    """Return a job's assignments, to be sent at once if all are short ones of one group of cores.

    Not if variants race: if one ends the process, the last report shows which.
    """
    infos = [each.candidate.info for each in assignments if each.candidate is not None]
    is_one_group = len({info.tail_group for info in infos if info.is_plain_core}) == 1
    can_wait = (
        is_one_group
        and len(infos) == len(assignments)
        and all(info.is_plain_core and info.tail_group for info in infos)
        and all(map(_is_short, assignments))
    )
    if not can_wait:
        return tuple(assignments)
    return tuple(replace(each, window=max(each.window, len(each.chunks))) for each in assignments)


def _is_short(assignment: Assignment) -> bool:
    seconds = assignment.predicted_seconds
    if seconds is None or seconds > MAX_SHARE_SECONDS or assignment.rivals:
        return False
    share, own = assignment.plan.share, assignment.own_units
    return (2 * own - share) * seconds <= MAX_SECONDS * share
