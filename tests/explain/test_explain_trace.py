"""Traces: well-formed, no event over another one of its track, all of the time in them."""

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

KNOWN = PhaseSeconds(compute=1.0)
TRACKS = {"copy in": "copy_in", "compute": "compute", "copy out": "copy_out"}


def explanation(
    plan: Timeline | None, line: Timeline | None, phases: PhaseSeconds | None = KNOWN
) -> Explanation:
    one = DeviceExplanation(
        device="gpu0", kind="cuda", variant="v", planned=4, plan=plan, timeline=line,
        predicted=phases,
    )  # fmt: skip
    idle = DeviceExplanation(device="cpu0", kind="cpu", variant="v", planned=0)
    return Explanation(job=5, state="done", workload="toy", load=4, devices=(one, idle))


def ring(step: float) -> Timeline:
    chunks = tuple(
        ChunkTimeline(2, (k * step, k * step + 0.1), (k + 0.1, k + 0.7), (k + 0.7, k + 1.0))
        for k in range(3)
    )
    return Timeline(3.0, chunks)


def written(found: Explanation) -> dict[str, Any]:
    whole: dict[str, Any] = json.loads(msgspec.json.encode(trace(found)))
    return whole


def named(events: list[dict[str, Any]], what: str) -> dict[tuple[int, int], str]:
    return {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == what}


def by_track(events: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    names = named(events, "thread_name")
    found = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            found[names[event["pid"], event["tid"]]].append(event)
    return found


def test_there_is_a_process_a_device_and_a_thread_a_phase() -> None:
    events = written(explanation(ring(1.0), ring(0.9)))["traceEvents"]

    assert set(named(events, "process_name").values()) == {"gpu0", "cpu0"}
    assert set(named(events, "thread_name").values()) == {
        f"{kind}: {phase}" for kind in ("predicted", "measured") for phase in TRACKS
    }


def test_events_are_complete_and_in_microseconds() -> None:
    events = written(explanation(None, ring(0.9)))["traceEvents"]

    first = by_track(events)["measured: copy in"][1]
    assert (first["ph"], first["name"], first["cat"]) == ("X", "2 units", "measured")
    assert (first["ts"], first["dur"]) == pytest.approx((0.9e6, 0.1e6))
    assert first["args"] == {"chunk": 1, "units": 2, "phase": "copy in"}
    assert all({"ph", "pid", "tid", "name"} <= set(event) for event in events)


def test_the_sums_are_the_report_s() -> None:
    line = ring(0.9)
    tracks = by_track(written(explanation(None, line))["traceEvents"])

    for name, field in TRACKS.items():
        spans = [getattr(chunk, field) for chunk in line.chunks]
        total = sum(event["dur"] for event in tracks[f"measured: {name}"])
        assert total == pytest.approx(1e6 * sum(end - start for start, end in spans))


def test_what_was_only_predicted_as_a_whole_is_called_so() -> None:
    whole = Timeline(1.0, (ChunkTimeline(1, None, (0.0, 1.0), None),))

    tracks = by_track(written(explanation(whole, ring(0.9), None))["traceEvents"])

    assert "predicted: whole" in tracks
    assert "predicted: compute" not in tracks
    assert "measured: compute" in tracks


def test_an_account_without_times_is_a_trace_without_events() -> None:
    found = written(explanation(None, None))

    assert {event["ph"] for event in found["traceEvents"]} == {"M"}
    assert found["otherData"]["what"] == "job 5: toy, 4 units, done"


def test_overlaps_of_a_clock_s_making_stay_on_one_track() -> None:
    chunks = (
        ChunkTimeline(1, None, (0.0, 1.0), None),
        ChunkTimeline(1, None, (1 - 5e-7, 2.0), None),
    )

    tracks = by_track(written(explanation(None, Timeline(2.0, chunks)))["traceEvents"])

    assert [(e["ts"], e["dur"]) for e in tracks["measured: compute"]] == [(0, 1e6), (1e6, 1e6)]


times = st.floats(0, 10, allow_nan=False)
spans = st.tuples(times, times).map(lambda ends: (min(ends), max(ends)))


@given(st.lists(spans, min_size=1, max_size=20))
def test_no_event_lies_over_another_one_of_its_track(found: list[tuple[float, float]]) -> None:
    line = Timeline(10.0, tuple(ChunkTimeline(1, None, span, None) for span in found))

    tracks = by_track(written(explanation(None, line))["traceEvents"])

    assert sum(map(len, tracks.values())) == len(found)
    total = sum(event["dur"] for events in tracks.values() for event in events)
    assert total == pytest.approx(1e6 * sum(b - a for a, b in found), abs=len(found))
    for events in tracks.values():
        ordered = sorted((round(e["ts"] * 1000), round(e["dur"] * 1000)) for e in events)
        for (start, length), (after, _) in itertools.pairwise(ordered):
            assert start + length <= after
