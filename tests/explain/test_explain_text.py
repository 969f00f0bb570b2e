from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from hetsched.device import ChunkTimeline, Timeline
from hetsched.explain import (
    Alternative,
    DeviceExplanation,
    Explanation,
    IterationHistory,
    PhaseSeconds,
    TimeBreakdown,
    WhatIf,
)
from hetsched.explain.recorder import IterationRecorder
from hetsched.explain.records import thinned
from hetsched.explain.text import explanation_text
from tests.explain.iterations.story import PhaseTimes, explanation, recorded

LINE = Timeline(3.0, (ChunkTimeline(2, (0.0, 0.5), (0.5, 2.5), (2.5, 3.0)),))
UNMEASURED: dict[str, Any] = {
    "share": 0, "seconds": None, "measured": None, "hidden": None, "time_breakdown": None,
    "timeline": None,
}  # fmt: skip
PLAN: dict[str, Any] = {"job": None, "state": "planned", "seconds": None}


def gpu(**changes: Any) -> DeviceExplanation:
    settings: dict[str, Any] = {
        "device": "gpu0", "kind": "cuda", "variant": "cupy", "planned": 2, "share": 2,
        "chunks": ((1, 2),), "mode": "ring", "slots": 2, "runs": 7, "predicted_seconds": 2.0,
        "seconds": 3.0, "predicted": PhaseSeconds(copy_in=0.4, compute=1.2, copy_out=0.4),
        "measured": PhaseSeconds(copy_in=0.5, compute=2.0, copy_out=0.5), "hidden": 0.25,
        "time_breakdown": TimeBreakdown(
            computing=2.0, copying=1.0, between=0.0, before=0.0, idle=1.0
        ),
        "bound": 1.9, "alternatives": (Alternative("factoring", 2.5),),
        "plan": Timeline(2.0, ()), "timeline": LINE, "chunk_reason": "a reason",
    }  # fmt: skip
    return DeviceExplanation(**settings | changes)


def core(number: int = 0, **changes: Any) -> DeviceExplanation:
    settings: dict[str, Any] = {
        "device": f"cpu{number}", "kind": "cpu", "variant": "fftw", "planned": 2, "share": 2,
        "chunks": ((2, 1),), "runs": 1, "predicted_seconds": 4.0, "seconds": 4.0,
        "predicted": PhaseSeconds(compute=4.0), "measured": PhaseSeconds(compute=4.0),
        "time_breakdown": TimeBreakdown(
            computing=4.0, copying=0.0, between=0.0, before=0.0, idle=0.0
        ),
        "timeline": Timeline(4.0, (ChunkTimeline(2, None, (0.0, 4.0), None),)),
    }  # fmt: skip
    return DeviceExplanation(**settings | changes)


def ran(number: int, units: int, seconds: float) -> DeviceExplanation:
    chunk = ChunkTimeline(units, None, (0.0, seconds), None)
    times = {"planned": units, "share": units, "seconds": seconds}
    return core(number, **times, predicted_seconds=None, timeline=Timeline(seconds, (chunk,)))


def job(*devices: DeviceExplanation, **changes: Any) -> Explanation:
    settings: dict[str, Any] = {
        "job": 3, "state": "done", "workload": "toy", "load": 4, "seconds": 4.0,
        "predicted_seconds": 4.0, "devices": devices,
    }  # fmt: skip
    return Explanation(**settings | changes)


def iterating(*steps: tuple[PhaseTimes, ...], rows: int = 320) -> Explanation:
    recorder = IterationRecorder([f"cpu{index}" for index in range(len(steps[0]))])
    for number, phases in enumerate(steps, 1):
        recorder.add(number, (rows,) * len(phases), phases, 0.1)
    history = recorder.history()
    return Explanation(job=3, state="done", workload="w", load=640, iterations=history)


def of_recorder(recorder: IterationRecorder) -> Explanation:
    history = recorder.history()
    return Explanation(job=3, state="done", workload="w", load=1200, iterations=history)


WHOLE = job(
    core(), gpu(), params={"rows": 4}, bound=3.2, reasons=("cpu0: 2 units by guess",),
    alternatives=(Alternative("only gpu0", 6.0),), notes=("of interest",),
    what_if=(WhatIf("a faster link", 3.0, 0.25), WhatIf("more memory", 4.0, 0.0)),
)  # fmt: skip
SIZES = tuple((1, size) for size in range(1, 40))
POOLED: dict[str, Any] = {"planned": 100, "pooled": 30, "chunk_reason": "why", "units_per_call": 4}
CASES = {
    "everything there is to say": WHOLE,
    "a plan has no section of measurements": job(core(**UNMEASURED), gpu(**UNMEASURED), **PLAN),
    "unknown phases have no column": job(core(**UNMEASURED, predicted=None), **PLAN),
    "missing measurements are named": job(
        core(runs=None, predicted_seconds=None, predicted=None), gpu(), predicted_seconds=None
    ),
    "a job that ended early shows its progress": job(
        core(share=1), gpu(), state="failed", error="kernel broke", seconds=3.0
    ),
    "units that moved are a warning, and such shares have no error of prediction": job(
        core(share=3, seconds=3.0), gpu(share=1)
    ),
    "units from the tail are no units of other devices; equal calls are named once": job(
        core(share=120, taken=50, **POOLED), core(1, share=80, taken=10, **POOLED), load=200
    ),
    "a run faster than the bound is shown as such": job(core(), bound=5.0),
    "many cores share a row and a reason": job(
        *[core(n, planned=2 + n % 2, chunk_reason="small") for n in range(64)],
        reasons=tuple(f"cpu{n}: {2 + n % 2} units by the speed of fftw" for n in range(64)),
    ),
    "unequal ends that no split of whole units makes equal": job(
        ran(0, 12, 1.2), ran(1, 13, 1.3), load=25, seconds=1.3
    ),
    "unequal ends are a warning": job(ran(0, 12, 1.2), ran(1, 16, 1.6), load=28, seconds=1.6),
    "long lists of chunks are listed briefly": job(gpu(chunks=SIZES, planned_chunks=39)),
    "control characters are removed": job(core(variant="\x1b[2J")),
    "when and why rows moved": explanation(),
    "saving rows is a phase": iterating((PhaseTimes(3.0, save=1.0), PhaseTimes(2.0, save=2.0))),
    "who waits for another one to begin waits for all of the time": iterating(
        (PhaseTimes(1.0, wait=3.0), PhaseTimes(1.0))
    ),
    "a job without iterations": Explanation(
        job=3, state="failed", workload="pcg", load=9, error="zero diagonal",
        iterations=IterationHistory(devices=("cpu0",)),
    ),
    "a continued job says so": of_recorder(recorded(60, first=21)),
    "many moves are counted": of_recorder(recorded(101, lambda k: (k % 7, 7 - k % 7, 0))),
    "many devices of an iterative job share a row": iterating(*[(PhaseTimes(0.5),) * 64] * 3),
}  # fmt: skip


def test_what_an_explanation_says(golden: Callable[[str, str], None]) -> None:
    golden("explain", "".join(f"== {name}\n{case}\n\n" for name, case in CASES.items()))


def test_lines_are_folded_to_a_narrow_terminal_without_loss() -> None:
    for case in CASES.values():
        text = explanation_text(case, 80)
        assert max(map(len, text.splitlines())) <= 80
        assert set(text.replace("/", " ").split()) == set(str(case).replace("/", " ").split())
        assert explanation_text(case, 500) == str(case)


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
