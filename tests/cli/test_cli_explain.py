"""`hetsched explain`, and the files that `submit` writes, with a daemon on virtual clocks."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import daemon_harness
import pytest
from real_daemon import RealDaemon, serving

from hetsched.explain import Explanation

from .conftest import Call
from .test_cli_plan import PNG, VIRTUAL, tracks

SUBMIT = ("submit", "fft", "--batch", "64x32x32")


@pytest.fixture
def daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RealDaemon]:
    folder = tmp_path / "run"
    folder.mkdir(0o700)
    monkeypatch.setenv("HETSCHED_RUNTIME_DIR", str(folder))
    with serving(folder, VIRTUAL) as daemon:
        yield daemon


@pytest.mark.usefixtures("daemon")
def test_a_job_of_the_daemon_is_explained(call: Call) -> None:
    for _ in range(2):
        call(*SUBMIT)
    report = json.loads(call(*SUBMIT, "--json", "--trace", "submit.json").out)

    ended = call("explain", "3", "--trace", "explain.json")

    assert ended.code == 0, ended.err
    assert ended.out.startswith("job 3, done: fft batch=64x32x32")
    for title in ("seconds, measured / predicted:", "where the time went", "why this split:",
                  "why these chunks:", "alternatives (predicted):",
                  "what would help:"):  # fmt: skip
        assert title in ended.out
    record = json.loads(call("explain", "3", "--json").out)
    assert (record["schema"], record["job"]) == ("hetsched.explanation/1", 3)
    assert record["seconds"] == report["seconds"]
    assert Path("submit.json").read_text() == Path("explain.json").read_text()
    assert ("emu0", "measured: copy in") in tracks("explain.json")
    missing = call("explain", "9")
    assert (missing.code, missing.out) == (66, "")
    assert "no job 9; the newest is 3" in missing.error


@pytest.fixture
def harness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[daemon_harness.Harness]:
    folder = tmp_path / "run"
    folder.mkdir(0o700)
    monkeypatch.setenv("HETSCHED_RUNTIME_DIR", str(folder))
    with daemon_harness.daemon(folder) as harness:
        yield harness


def test_files_that_exist_stay(call: Call, harness: daemon_harness.Harness) -> None:
    Path("t.json").write_text("old")

    refused = [call(*words, "--trace", "t.json") for words in (("explain", "1"), SUBMIT)]

    assert [(one.code, one.out) for one in refused] == [(73, "")] * 2
    assert harness.engine.specs == [], "nothing was submitted"
    assert Path("t.json").read_text() == "old"


@pytest.mark.usefixtures("harness")
def test_a_job_without_figures_is_explained_too(call: Call) -> None:
    call("submit", "hetsched_workloads.fft:Fft", "--batch", "4x4x4", "--detach")

    ended = call("explain", "1")

    assert (ended.code, ended.out.splitlines()[0]) == (0, "job 1, done: double")


@pytest.mark.usefixtures("harness")
def test_who_does_not_wait_gets_no_trace(call: Call) -> None:
    ended = call(*SUBMIT, "--detach", "--trace", "t.json")

    assert (ended.code, ended.out) == (2, "")
    assert "hetsched explain ID" in ended.error


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("explain", "1"), 69, "no daemon"),
        (("explain",), 2, "missing argument"),
        (("explain", "-1"), 2, "-1"),
        (("explain", "x"), 2, "'x'"),
    ],
)
def test_what_is_wrong_is_one_line(
    call: Call, words: tuple[str, ...], code: int, said: str
) -> None:
    ended = call(*words)

    assert (ended.code, ended.out) == (code, "")
    assert said in ended.error


def test_explaining_imports_no_numpy(call: Call, harness: daemon_harness.Harness) -> None:
    import subprocess
    import sys

    harness.engine.explain = lambda number, then: then(  # type: ignore[method-assign]
        Explanation(job=1, state="done", workload="toy", load=1), None
    )
    call("submit", "hetsched_workloads.fft:Fft", "--batch", "4x4x4", "--detach")
    code = (
        "import sys; from hetsched.cli.main import main; main(['explain', '1']);"
        "print(*{name.partition('.')[0] for name in sys.modules})"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ
    )

    assert "job 1, done: toy" in done.stdout
    assert {"numpy", "rich"} & set(done.stdout.split()) == set()


def test_pictures_of_all_sizes_can_be_drawn() -> None:
    pytest.importorskip("matplotlib")
    from hetsched.cli.plots.figure import save
    from hetsched.cli.plots.gantt import figure
    from hetsched.device import ChunkTimeline, Timeline
    from hetsched.explain import DeviceExplanation

    def line(count: int, copies: bool) -> Timeline:
        chunks = tuple(
            ChunkTimeline(3, (k, k + 0.2) if copies else None, (k + 0.2, k + 0.9), None)
            for k in range(count)
        )
        return Timeline(float(count), chunks)

    cores = [
        DeviceExplanation(
            device=f"cpu{n}", kind="cpu", variant="v", planned=3, timeline=line(3, False)
        )
        for n in range(128)
    ]
    gpu = DeviceExplanation(
        device="gpu0", kind="cuda", variant="v", planned=3, plan=line(900, True),
        timeline=line(1000, True),
    )  # fmt: skip
    idle = DeviceExplanation(device="idle", kind="cpu", variant="v", planned=0)
    for number, devices in enumerate([(), (idle,), (gpu, idle), (*cores, gpu)]):
        explained = Explanation(job=1, state="done", workload="toy", load=1, devices=devices)
        save(figure(explained), f"{number}.png", False)
        assert Path(f"{number}.png").read_bytes().startswith(PNG)


@pytest.mark.parametrize("state", ["done", "running"])
def test_nothing_of_a_picture_is_cut_or_covers_other_words(state: str) -> None:
    pytest.importorskip("matplotlib")
    from hetsched.cli.plots.gantt import figure
    from hetsched.device import ChunkTimeline, Timeline
    from hetsched.explain import DeviceExplanation, PhaseSeconds

    chunk = ChunkTimeline(3, (0.0, 0.2), (0.2, 0.9), (0.9, 1.0))
    there = {"kind": "cpu", "variant": "v", "planned": 3, "seconds": 1.0}
    line, later = Timeline(1.0, (chunk,)), Timeline(9.0, (chunk,))
    phases = PhaseSeconds(copy_in=0.2, compute=0.7, copy_out=0.1)
    gpu = DeviceExplanation(device="gpu0", plan=later, timeline=line, predicted=phases, **there)
    files = DeviceExplanation(device="cpu0", plan=later, timeline=line, **there)
    picture = figure(
        Explanation(
            job=1, state=state, workload="of_a_long_name", load=1, devices=(files, gpu),
            bound=9.0, predicted_seconds=9.0, seconds=1.0,
        )
    )  # fmt: skip
    picture.draw_without_rendering()

    (axes,), (legend,) = picture.axes, picture.legends
    boxes = [
        one.get_window_extent() for one in (*axes.texts, axes.title, axes._left_title, legend)
    ]
    width, height = picture.bbox.size
    assert all(0 <= b.x0 <= b.x1 <= width and 0 <= b.y0 <= b.y1 <= height for b in boxes)
    words = [
        one.get_window_extent() for one in (*axes.texts, axes._left_title) if " " in one.get_text()
    ]
    assert not any(a.overlaps(b) for i, a in enumerate(words) for b in words[:i])
    assert any(one.get_text().startswith("so far") for one in axes.texts) == (state == "running")
