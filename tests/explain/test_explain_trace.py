from __future__ import annotations

import itertools
import json
from collections import defaultdict
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched.device import ChunkTimeline, Timeline
from hetsched.explain import DeviceExplanation, Explanation, PhaseSeconds
from hetsched.explain.trace import trace
from tests.explain.iterations.story import explanation as iterating

KNOWN = PhaseSeconds(compute=1.0)


def explanation(
    plan: Timeline | None, line: Timeline | None, phases: PhaseSeconds | None = KNOWN
) -> Explanation:
    device = DeviceExplanation(
        device="gpu0", kind="cuda", variant="v", planned=4, plan=plan, timeline=line,
        predicted=phases,
    )  # fmt: skip
    idle = DeviceExplanation(device="cpu0", kind="cpu", variant="v", planned=0)
    return Explanation(job=5, state="done", workload="toy", load=4, devices=(device, idle))


def ring(step: float) -> Timeline:
    chunks = tuple(
        ChunkTimeline(2, (k * step, k * step + 0.1), (k + 0.1, k + 0.7), (k + 0.7, k + 1.0))
        for k in range(3)
    )
    return Timeline(3.0, chunks)


def written(explained: Explanation) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(msgspec.json.encode(trace(explained)))
    return content


def named(events: list[dict[str, Any]], event_name: str) -> dict[tuple[int, int], str]:
    return {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == event_name}


def by_track(events: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    names = named(events, "thread_name")
    tracks = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            tracks[names[event["pid"], event["tid"]]].append(event)
    return tracks


def test_events_are_complete_and_in_microseconds() -> None:
    events = written(explanation(None, ring(0.9)))["traceEvents"]

    first = by_track(events)["measured: copy in"][1]
    assert (first["ph"], first["name"], first["cat"]) == ("X", "2 units", "measured")
    assert (first["ts"], first["dur"]) == pytest.approx((0.9e6, 0.1e6))
    assert first["args"] == {"chunk": 1, "units": 2, "phase": "copy in"}
    assert all({"ph", "pid", "tid", "name"} <= set(event) for event in events)


def test_chunks_taken_from_the_tail_are_marked() -> None:
    chunks = (
        ChunkTimeline(4, None, (0.0, 1.0), None),
        ChunkTimeline(2, None, (1.0, 1.5), None, taken=True),
    )

    tracks = by_track(written(explanation(None, Timeline(1.5, chunks)))["traceEvents"])

    own, taken = tracks["measured: compute"]
    assert (own["name"], taken["name"]) == ("4 units", "2 units, shared tail")
    assert "from" not in own["args"] and taken["args"]["from"] == "shared tail"


times = st.floats(0, 10, allow_nan=False)
spans = st.tuples(times, times).map(lambda ends: (min(ends), max(ends)))


@given(st.lists(spans, min_size=1, max_size=20))
def test_events_of_one_track_never_overlap(intervals: list[tuple[float, float]]) -> None:
    line = Timeline(10.0, tuple(ChunkTimeline(1, None, span, None) for span in intervals))

    tracks = by_track(written(explanation(None, line))["traceEvents"])

    assert sum(map(len, tracks.values())) == len(intervals)
    total = sum(event["dur"] for events in tracks.values() for event in events)
    assert total == pytest.approx(1e6 * sum(b - a for a, b in intervals), abs=len(intervals))
    for events in tracks.values():
        ordered = sorted((round(e["ts"] * 1000), round(e["dur"] * 1000)) for e in events)
        for (start, length), (after, _) in itertools.pairwise(ordered):
            assert start + length <= after


# ---- iterations


@pytest.mark.parametrize("iterations", [60, 5000])
def test_phases_of_a_device_follow_each_other(iterations: int) -> None:
    explained = iterating(iterations)
    history = explained.iterations
    assert history is not None
    events = trace(explained)["traceEvents"]
    spans = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            spans[event["pid"]].append((event["ts"], event["ts"] + event["dur"]))

    assert set(spans) == {1, 2, 3}
    for device in spans.values():
        for (_, end), (start, _) in itertools.pairwise(device):
            assert end <= start + 0.01
        assert device[-1][1] == pytest.approx(history.seconds * 1e6)


def test_moves_and_checkpoints_are_marks() -> None:
    events = trace(iterating())["traceEvents"]

    marks = [(e["ts"], e["name"]) for e in events if e["ph"] == "i"]
    assert len(marks) == 4
    assert marks[0] == (pytest.approx(4 * 40200), marks[0][1])
    assert marks[0][1].startswith("600 rows moved: imbalance")
    assert [name for _, name in marks[2:]] == ["checkpoint", "checkpoint"]
