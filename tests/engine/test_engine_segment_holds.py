"""Segments that a process may still write to."""

from __future__ import annotations

from hetsched.engine.admission.check import hold_attached
from hetsched.transport.arena import Arena


def test_segments_of_a_stuck_process_are_in_use_until_it_ends() -> None:
    arena = Arena(1 << 20)
    segment, unused = arena.allocate(4096).id, arena.allocate(4096).id
    arena.release(unused)

    release = hold_attached(arena, [segment, unused, -3])
    arena.release(segment)

    assert arena.holds(segment)
    release()
    assert not arena.holds(segment)
    assert not arena.holds(unused)
    arena.close()
