from __future__ import annotations

import re

import pytest
from libraries import library

from hetsched.device import ChunkTimeline, Timeline
from hetsched.explain import DeviceExplanation, Explanation
from hetsched.explain.recorder import IterationRecorder
from hetsched.plots import notebook_picture, plot_job
from tests.explain.iterations.story import PhaseTimes, explanation

library("matplotlib")


def words(explained: Explanation) -> set[str]:
    """The text in the picture."""
    picture = plot_job(explained).decode()
    return {word.strip() for word in re.findall(r">([^<>]+)</", picture)}


def test_an_iterative_job_has_devices_shares_residual_and_events() -> None:
    found = words(explanation(60))

    assert {"cpu0", "cpu1", "emu0", "(ms)", "residual", "iteration"} <= found
    assert {"compute", "transfer", "wait", "converge", "rows moved", "checkpoint"} <= found
    assert "save" not in found


def test_many_devices_share_a_panel_and_a_long_iteration_does_not_flatten_the_others() -> None:
    recorder = IterationRecorder([*(f"cpu{i}" for i in range(16)), "gpu0"])
    for number, seconds in enumerate([0.5, *[0.002] * 30], 1):
        recorder.add(number, (10,) * 17, [PhaseTimes(seconds)] * 17)
    history = recorder.history()
    found = words(Explanation(job=1, state="done", workload="w", load=170, iterations=history))

    assert {"cpu (16)", "gpu0", "cut off: 1 longer iteration, up to 500 ms"} <= found


def test_a_job_that_failed_before_its_first_iteration_has_a_picture() -> None:
    history = IterationRecorder(["cpu0"]).history()
    failed = Explanation(job=1, state="failed", workload="w", load=1, iterations=history)
    assert any(word.startswith("w, 1 row: job 1, failed") for word in words(failed))


def line(count: int, copies: bool) -> Timeline:
    chunks = tuple(
        ChunkTimeline(3, (k, k + 0.2) if copies else None, (k + 0.2, k + 0.9), None)
        for k in range(count)
    )
    return Timeline(float(count), chunks)


GPU = DeviceExplanation(
    device="gpu0", kind="cuda", variant="v", planned=3, plan=line(900, True),
    timeline=line(1000, True),
)  # fmt: skip
IDLE = DeviceExplanation(device="idle", kind="cpu", variant="v", planned=0)
CORES = tuple(
    DeviceExplanation(device=f"cpu{n}", kind="cpu", variant="v", planned=3, plan=line(3, False))
    for n in range(40)
)


@pytest.mark.parametrize("devices", [(), (IDLE,), (GPU, IDLE), (*CORES, GPU)], ids=len)
def test_a_gantt_chart_has_any_number_of_devices(devices: tuple[DeviceExplanation, ...]) -> None:
    explained = Explanation(
        job=1, state="running", workload="toy", load=1, devices=devices, seconds=9.0, bound=8.0
    )
    found = words(explained)

    assert {"bound 8 s", "so far 9 s", "toy, 1 unit: job 1, running", "time (s)"} <= found
    assert (GPU in devices) == ({"gpu0  copy in", "copy in, measured"} <= found)


@pytest.mark.parametrize(
    ("form", "head"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")]
)
def test_a_picture_has_the_format_asked_for(form: str, head: bytes) -> None:
    assert plot_job(Explanation(job=1, state="done", workload="w", load=1), form).startswith(head)


def test_a_notebook_shows_the_picture_of_what_can_be_drawn() -> None:
    drawn = Explanation(job=1, state="done", workload="w", load=1, devices=(GPU,))
    assert "gpu0  copy in" in str(notebook_picture(drawn))
    assert notebook_picture(Explanation(job=1, state="queued", workload="w", load=1)) is None
