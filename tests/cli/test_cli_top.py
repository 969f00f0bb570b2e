from __future__ import annotations

import io

import msgspec
from rich.console import Console

from hetsched.cli.commands.top import KEYS, screen
from hetsched.device import DeviceInfo
from hetsched.job import DeviceProgress, JobState, Queued, Running
from hetsched.transport.messages import (
    DaemonOverview,
    DeviceActivity,
    DeviceList,
    JobLine,
    Pong,
)

CPU0 = DeviceInfo(name="cpu0", kind="cpu", identity="c")
CPU1 = DeviceInfo(name="cpu1", kind="cpu", identity="c")
GPU0 = DeviceInfo(name="gpu0", kind="gpu", identity="g", link=True)
TEAM = DeviceInfo(name="team0", kind="team", identity="c", members=("cpu0", "cpu1"))
PARAMS = {"batch": "64x512x512", "dtype": "complex64"}


def brief(state: JobState, **changes: object) -> JobLine:
    fields: dict[str, object] = {"params": PARAMS, "submitted_at": 1000.0} | changes
    return JobLine(job=state.job, workload="fft", state=state, **fields)  # type: ignore[arg-type]


RUNNING = Running(
    3, "computing", (DeviceProgress("cpu0", 10, 20), DeviceProgress("gpu0", 6, 44)), 2.5
)
ACTIVITIES = (
    DeviceActivity(
        device="cpu0", job=3, workload="fft", variant="pyfftw", share=20, done=10, speed=240.0,
        predicted_speed=250.0,
    ),
    DeviceActivity(
        device="gpu0", job=3, workload="fft", variant="cufft", share=44, done=6, speed=1000.0,
        h2d_busy=0.8, compute_busy=0.5, d2h_busy=0.7, h2d_rate=5.5e9, d2h_rate=5e9,
    ),
)  # fmt: skip
DEVICES = (CPU0, CPU1, GPU0, TEAM)
OVERVIEW = DaemonOverview(
    daemon=Pong(4711, "0.1.0", 7200.0),
    now=1010.0,
    jobs=(
        brief(RUNNING, started_at=1009.0),
        brief(Queued(7, 1, "held"), label="night"),
        brief(Queued(8, 1), priority=5),
    ),
    running=1,
    waiting=2,
    ended=345,
    devices=DeviceList(
        DEVICES,
        {"gpu1": "quarantined after 3 deaths; next attempt in 2 min"},
    ),
    activities=ACTIVITIES,
    arena_used=1 << 30,
    arena_limit=16 << 30,
)


def replaced(**changes: object) -> DaemonOverview:
    return msgspec.structs.replace(OVERVIEW, **changes)


def text(
    overview: DaemonOverview | None, error: str = "", size: tuple[int, int] = (80, 24)
) -> str:
    console = Console(width=size[0], height=size[1], file=io.StringIO())
    console.print(screen(overview, error, size[1]), no_wrap=True, overflow="crop", end="")
    assert isinstance(console.file, io.StringIO)
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines())


def test_the_screen_of_80_by_24() -> None:
    lines = text(OVERVIEW).splitlines()

    assert lines[:11] == [
        "hetsched, up 2 h: 1 running, 2 waiting, 345 ended; 1 GiB of 16 GiB",
        "",
        "device  job  variant                done/share  units/s  predicted  ratio",
        "cpu0    3    pyfftw   [#####-----]       10/20      240        250    96%",
        "gpu0    3    cufft    [#---------]        6/44     1000          -      -",
        "  link: h2d 5.12 GiB/s 80% busy, computing 50%, d2h 4.66 GiB/s 70% busy",
        "cpu1    -    idle",
        "gpu1: quarantined after 3 deaths; next attempt in 2 min",
        "",
        "job  prio  workload     state                          parameters",
        "3    0     fft          running  computing 16/64, 1 s  batch=64x512x512 dtype=co",
    ]
    assert lines[-1] == KEYS


def test_a_screen_of_any_size_ends_with_an_error_or_the_keys() -> None:
    for size in ((1, 1), (5, 2), (40, 10), (200, 70)):
        assert len(text(OVERVIEW, size=size).splitlines()) == size[1]
    shown = text(OVERVIEW, "the daemon has stopped")
    assert shown.endswith("the daemon has stopped") and "pyfftw" in shown
    assert text(None).startswith("hetsched: waiting for the daemon")


def test_devices_that_take_no_jobs_have_their_reason() -> None:
    absent, restricted = {"cpu1": "quarantined"}, {"cpu0": "no fft after 3 deaths"}
    shown = text(replaced(devices=DeviceList(DEVICES, absent, restricted)))
    assert "cpu1: quarantined" in shown
    assert "cpu0: no fft after 3 deaths" in shown
    assert "idle" not in shown


def test_many_devices_leave_room_for_jobs() -> None:
    absent = {f"gpu{number}": "no such device" for number in range(30)}
    jobs = tuple(brief(Queued(number, number)) for number in range(1, 101))
    shown = text(replaced(devices=DeviceList(DEVICES, absent), jobs=jobs))
    assert "22 more rows" in shown
    assert "\n1    0     fft" in shown
    assert "no jobs; try: hetsched submit" in text(replaced(jobs=()))


def test_hostile_text_cannot_move_the_cursor() -> None:
    job = brief(Queued(1, 0, "\x1b[2J"), label="a\nb", params={"x": "\x1b]0;t\x07"})
    shown = text(replaced(jobs=(job,)), "\x1b[2J", (300, 40))
    assert all(line.isprintable() for line in shown.splitlines())
