"""Explanations in words: what is stated, what is omitted, when devices share a line."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from hetsched.device import ChunkTimeline, Timeline
from hetsched.explain import (
    Alternative,
    DeviceExplanation,
    Explanation,
    PhaseSeconds,
    TimeBreakdown,
    WhatIf,
)
from hetsched.explain.text import chunk_sizes, explanation_text

LINE = Timeline(3.0, (ChunkTimeline(2, (0.0, 0.5), (0.5, 2.5), (2.5, 3.0)),))


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


def text_of(*devices: DeviceExplanation, **changes: Any) -> str:
    settings: dict[str, Any] = {
        "job": 3, "state": "done", "workload": "toy", "load": 4, "seconds": 4.0,
        "predicted_seconds": 4.0, "devices": devices,
    }  # fmt: skip
    return str(Explanation(**settings | changes))


def test_the_whole_text() -> None:
    text = text_of(
        core(),
        gpu(),
        params={"rows": 4},
        bound=3.2,
        reasons=("cpu0: 2 units by guess",),
        alternatives=(Alternative("only gpu0", 6.0),),
        what_if=(WhatIf("a faster link", 3.0, 0.25), WhatIf("more memory", 4.0, 0.0)),
        notes=("of interest",),
    )

    assert (
        text
        == """\
job 3, done: toy rows=4
4 units in 4 s (predicted 4 s, +0.0 %)
bound of any split by the models: 3.2 s, the plan is 25.0 % above, the run was 25.0 % above

device  variant  share  chunks
cpu0    fftw         2  2x1
gpu0    cupy         2  2, a ring of 2 slots

seconds, measured / predicted:
device        total        copy in      compute       copy out  hidden
cpu0    4.00 / 4.00              -  4.00 / 4.00              -       -
gpu0    3.00 / 2.00  0.500 / 0.400  2.00 / 1.20  0.500 / 0.400    25 %

where the time went, of 4 s:
device  computing  only copying  between chunks  before the first  after the last
cpu0      100.0 %         0.0 %           0.0 %             0.0 %           0.0 %
gpu0       50.0 %        25.0 %           0.0 %             0.0 %          25.0 %

why this split:
  cpu0: 2 units by guess
  note: of interest
why these chunks:
  gpu0: a reason

alternatives (predicted):
  only gpu0  6 s  +50.0 %
  gpu0, 2 units in 2 s as planned, bound 1.9 s:
    factoring  2.5 s  +25.0 %

warnings:
  gpu0 took 50 % longer than predicted by a model of 7 runs
  gpu0 waited for its copies for 25 % of the time

what would help:
  a faster link: 3 s, 25 % less
  would save less than 1 %: more memory"""
    )


def test_a_plan_has_no_section_of_measurements() -> None:
    unmeasured: dict[str, Any] = {
        "share": 0, "seconds": None, "measured": None, "hidden": None, "time_breakdown": None,
        "timeline": None,
    }  # fmt: skip
    text = text_of(core(**unmeasured), gpu(**unmeasured), job=None, state="planned", seconds=None)

    assert text.startswith("a plan: toy\n4 units, predicted to take 4 s\n")
    assert "seconds, predicted:" in text
    assert "done" not in text
    for section in ("where the time went", "warnings", "measured"):
        assert section not in text


def test_unknown_phases_have_no_column() -> None:
    planned = core(
        share=0, seconds=None, measured=None, predicted=None, time_breakdown=None, timeline=None
    )
    text = text_of(planned, job=None, state="planned", seconds=None)

    assert text.endswith("seconds, predicted:\ndevice  total\ncpu0     4.00")


def test_missing_measurements_are_named() -> None:
    unknown = core(runs=None, predicted_seconds=None, predicted=None)
    text = text_of(unknown, gpu(), predicted_seconds=None)

    assert "4 units in 4 s, no prediction: no measurements for fftw at this size on cpu0" in text


def test_a_job_that_ended_early_shows_its_progress() -> None:
    text = text_of(core(share=1), gpu(), state="failed", error="kernel broke", seconds=3.0)

    assert text.splitlines()[:3] == [
        "job 3, failed: toy",
        "ended early: kernel broke",
        "3 of 4 units in 3 s (predicted 4 s)",
    ]
    assert "device  variant  share  done  chunks" in text
    assert "assigned" not in text


def test_units_that_moved_are_a_warning() -> None:
    text = text_of(core(share=3), gpu(share=1))

    assert "cpu0 ran 1 unit assigned to other devices" in text


def test_a_share_that_changed_has_no_prediction_error() -> None:
    assert "than predicted" in text_of(core(seconds=3.0), gpu())
    assert "than predicted" not in text_of(core(seconds=3.0, share=1), gpu(share=3))


def test_a_run_faster_than_the_bound_is_shown_as_such() -> None:
    text = text_of(core(), seconds=4.0, bound=5.0)

    assert "the plan is 20.0 % below, the run was 20.0 % below" in text


def test_many_cores_share_a_row_and_a_reason() -> None:
    cores = [core(n, planned=2 + n % 2, chunk_reason="small") for n in range(64)]
    reasons = tuple(f"cpu{n}: {2 + n % 2} units by the speed of fftw" for n in range(64))

    text = text_of(*cores, reasons=reasons)

    assert len(text.splitlines()) < 30
    assert "  cpu0 to cpu63: 2 to 3 units each by the speed of fftw" in text
    assert "  cpu (64): small" in text
    assert sum(line.startswith("cpu (64)") for line in text.splitlines()) == 3


def test_expected_times_cause_no_warnings() -> None:
    assert "warnings" not in text_of(core(), core(1))


@pytest.mark.parametrize(
    ("chunks", "expected"),
    [
        ((), "-"),
        (((1, 8),), "8"),
        (((8, 12), (1, 3)), "8x12 + 3"),
        (tuple((1, n) for n in range(1, 8)), "1 + 2 + 3 + ... + 5 + 6 + 7 (7 chunks)"),
    ],
)
def test_chunk_sizes_are_listed_briefly(
    chunks: tuple[tuple[int, int], ...], expected: str
) -> None:
    assert chunk_sizes(chunks, sum(count for count, _ in chunks)) == expected


def test_control_characters_are_removed() -> None:
    assert "\x1b" not in text_of(core(variant="\x1b[2J"))


def test_an_explanation_can_be_encoded_and_decoded() -> None:
    explanation = Explanation(job=3, state="done", workload="toy", load=4, devices=(core(), gpu()))
    for codec in (msgspec.json, msgspec.msgpack):
        assert codec.decode(codec.encode(explanation), type=Explanation) == explanation


def test_unequal_ends_are_a_warning_only_where_a_split_of_whole_units_gains() -> None:
    def ran(number: int, units: int, seconds: float) -> DeviceExplanation:
        chunk = ChunkTimeline(units, None, (0.0, seconds), None)
        times = {"planned": units, "share": units, "seconds": seconds}
        return core(number, **times, predicted_seconds=None, timeline=Timeline(seconds, (chunk,)))

    balanced = text_of(ran(0, 12, 1.2), ran(1, 13, 1.3), load=25, seconds=1.3)
    astray = text_of(ran(0, 12, 1.2), ran(1, 16, 1.6), load=28, seconds=1.6)

    assert "finished" not in balanced
    assert "cpu1 finished 33 % later than cpu0;" in astray
    assert "the best split takes 1.4 s, 12 % less" in astray


def test_lines_are_folded_to_a_narrow_terminal_without_loss() -> None:
    wide = gpu(
        chunks=tuple((1, size) for size in range(1, 40)), planned_chunks=39,
        chunk_reason="the best plan found for its phases and memory, 0.1 % above the bound",
    )  # fmt: skip
    explanation = Explanation(
        job=3, state="done", workload="toy", load=4, seconds=4.0, predicted_seconds=4.0,
        devices=(core(), wide), bound=3.2,
        what_if=(WhatIf("less", 4.0, 0.0), *(WhatIf(f"link {n}", 4.0, 0.0) for n in range(20))),
    )  # fmt: skip

    text = explanation_text(explanation, 64)

    assert max(map(len, text.splitlines())) <= 64
    assert "between" in text and "4.00/4.00" in text
    assert set(text.replace("/", " ").split()) == set(str(explanation).replace("/", " ").split())
    assert explanation_text(explanation, 500) == str(explanation)
