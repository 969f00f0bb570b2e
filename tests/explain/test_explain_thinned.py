from __future__ import annotations

import msgspec

from hetsched.device import ChunkTimeline, Timeline
from hetsched.explain import DeviceExplanation, Explanation
from hetsched.explain.records import thinned


def chunk(number: int) -> ChunkTimeline:
    return ChunkTimeline(2, (number, number + 0.5), (number, number + 1.0), None)


def explanation(*counts: int) -> Explanation:
    devices = []
    for number, count in enumerate(counts):
        line = Timeline(float(count), tuple(chunk(k) for k in range(count)))
        devices.append(
            DeviceExplanation(
                device=f"gpu{number}", kind="cuda", variant="v", planned=2 * count,
                chunks=((count, 2),), plan=line, timeline=line,
            )
        )  # fmt: skip
    return Explanation(job=1, state="done", workload="toy", load=1, devices=tuple(devices))


def test_successive_chunks_are_merged() -> None:
    short = thinned(explanation(7), 4)

    (device,) = short.devices
    assert device.timeline is not None and device.timeline.makespan == 7.0
    assert device.timeline.chunks == (
        ChunkTimeline(4, (0, 1.5), (0, 2.0), None),
        ChunkTimeline(4, (2, 3.5), (2, 4.0), None),
        ChunkTimeline(4, (4, 5.5), (4, 6.0), None),
        ChunkTimeline(2, (6, 6.5), (6, 7.0), None),
    )
    assert short.notes == ("timelines: chunks are merged, 2 at a time",)


def test_both_ends_of_a_long_list_of_sizes_stay() -> None:
    device = DeviceExplanation(
        device="gpu0", kind="cuda", variant="v", planned=1, planned_chunks=9,
        chunks=tuple((1, units) for units in range(9)),
    )  # fmt: skip
    long = Explanation(job=1, state="done", workload="toy", load=1, devices=(device,))

    (short,) = thinned(long, 4).devices

    assert short.chunks == ((1, 0), (1, 1), (1, 7), (1, 8))
    assert short.planned_chunks == 9


def test_a_hundred_thousand_chunks_fit_a_message() -> None:
    short = thinned(explanation(*[1000] * 100), 3000)

    assert len(msgspec.msgpack.encode(short)) < 1 << 20
    assert sum(len(device.timeline.chunks) for device in short.devices if device.timeline) <= 3100
