"""Chunks that a device was sent, reported together."""

from __future__ import annotations

from hetsched.device import ChunkTimes
from hetsched.device_process.reports.gathered_reports import GatheredReports
from hetsched.device_process.shared_tails import MAX_REPORT_SECONDS
from hetsched.transport.device_messages import OwnChunk


def reports(waiting: list[int], seconds: float) -> list[list[int]]:
    """The chunks of each report; `waiting`: how many wait at the device after each chunk."""
    sent: list[tuple[OwnChunk, ...]] = []
    rest = iter(waiting)
    gathered = GatheredReports(sent.append, lambda: next(rest) > 0)
    for number in range(len(waiting)):
        span = (number * seconds, (number + 1) * seconds)
        gathered.finish(number, ChunkTimes(compute=span))
    return [[own.chunk for own in report] for report in sent]


def test_chunks_are_reported_when_none_waits() -> None:
    assert reports([2, 1, 0], seconds=1e-3) == [[0, 1, 2]]


def test_a_later_chunk_has_a_report_of_its_own() -> None:
    assert reports([1, 0, 0], seconds=1e-3) == [[0, 1], [2]]


def test_chunks_are_reported_in_time_if_others_wait() -> None:
    assert reports([3, 2, 1, 0], seconds=0.5 * MAX_REPORT_SECONDS) == [[0, 1], [2, 3]]
