"""Keys and answers in, screens out: `hetsched top` without a terminal."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from hetsched.cli.output.top import model
from hetsched.cli.output.top.keys import keys
from hetsched.cli.output.top.layout import HELP, KEYS, as_text, screen
from hetsched.cli.output.top.model import JobAction, Quit, TopMode, TopState, on_key, on_overview
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
SHOWN = on_overview(TopState(), OVERVIEW)


def replaced(overview: DaemonOverview, **changes: object) -> DaemonOverview:
    return msgspec.structs.replace(overview, **changes)


def press(state: TopState, *names: str) -> tuple[TopState, list[model.Action]]:
    actions = []
    for name in names:
        state, action = on_key(state, name)
        if action is not None:
            actions.append(action)
    return state, actions


def text(state: TopState, width: int = 80, height: int = 24) -> str:
    return as_text(screen(state, width, height))


def test_the_screen_of_80_by_24() -> None:
    lines = text(SHOWN).splitlines()

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
        "  job  prio  workload     state                                 parameters",
        "> 3    0     fft          running  computing 25% of 2.5 s, 1 s  batch=64x512x512",
    ]
    assert lines[-1] == KEYS


@given(st.integers(1, 200), st.integers(1, 70), st.sampled_from(list(TopMode)))
def test_every_size_is_filled_exactly(width: int, height: int, mode: TopMode) -> None:
    state = replace(SHOWN, mode=mode, text=("line " * 50,) * 100)
    lines = screen(state, width, height)

    assert len(lines) == height
    assert {cell_len(line.text) for line in lines} == {width}


def test_the_selection_stays_on_its_job() -> None:
    state, _ = press(SHOWN, "down")
    assert state.selected == 7

    newer = replaced(OVERVIEW, jobs=OVERVIEW.jobs[1:])
    assert on_overview(state, newer).selected == 7


def test_the_selection_stays_on_its_row_when_the_job_has_ended() -> None:
    state, _ = press(SHOWN, "down")
    newer = replaced(OVERVIEW, jobs=(OVERVIEW.jobs[0], OVERVIEW.jobs[2]))
    assert on_overview(state, newer).selected == 8

    empty = replaced(OVERVIEW, jobs=())
    assert on_overview(state, empty).selected is None


@pytest.mark.parametrize(
    ("names", "selected"),
    [
        (["down", "down", "down"], 8),
        (["up"], 3),
        (["j", "k"], 3),
        (["G"], 8),
        (["end", "home"], 3),
        (["pagedown"], 8),
    ],
)
def test_keys_move_the_selection_within_the_list(names: list[str], selected: int) -> None:
    assert press(SHOWN, *names)[0].selected == selected


@pytest.mark.parametrize(("key", "verb"), [("h", "hold"), ("r", "release"), ("e", "explain")])
def test_keys_act_on_the_selected_job(key: str, verb: str) -> None:
    assert press(SHOWN, "down", key)[1] == [JobAction(verb, 7)]


def test_cancelling_asks_first() -> None:
    state, actions = press(SHOWN, "c")
    assert (state.mode, actions) == (TopMode.CONFIRMATION, [])
    assert text(state).endswith("cancel job 3? y: yes, any other key: no")

    assert press(state, "y")[1] == [JobAction("cancel", 3)]
    assert press(state, "n")[0].mode is TopMode.JOBS
    assert press(state, "n")[1] == []


def test_without_jobs_a_key_says_so() -> None:
    empty = on_overview(TopState(), replaced(OVERVIEW, jobs=()))
    state, actions = press(empty, "down", "c", "h")

    assert actions == []
    assert text(state).endswith("no job is selected")
    assert "no jobs; try: hetsched submit" in text(empty)


@pytest.mark.parametrize(("key", "code"), [("q", 0), ("ctrl-c", 130)])
def test_quitting(key: str, code: int) -> None:
    assert press(SHOWN, key)[1] == [Quit(code)]


@pytest.mark.parametrize("mode", list(TopMode))
def test_ctrl_c_quits_everywhere(mode: TopMode) -> None:
    assert press(replace(SHOWN, mode=mode), "ctrl-c")[1] == [Quit(130)]


def test_help_and_back() -> None:
    state, _ = press(SHOWN, "?")
    assert HELP[3].strip() in text(state)

    back, actions = press(state, "q")
    assert (back.mode, actions) == (TopMode.JOBS, [])
    assert text(back).endswith(KEYS)


def test_an_explanation_scrolls_and_goes_away() -> None:
    state = model.on_explanation(SHOWN, tuple(f"line {number}" for number in range(100)))
    assert text(state).splitlines()[2] == "line 0"

    state, _ = press(state, "pagedown", "down")
    assert text(state).splitlines()[2] == "line 11"
    state, _ = press(state, "G", "g", "up")
    assert text(state).splitlines()[2] == "line 0"
    assert press(state, "escape")[0].mode is TopMode.JOBS


def test_outcomes_are_shown_until_the_next_key() -> None:
    state = model.on_done(SHOWN, JobAction("hold", 7))
    assert text(state).endswith("job 7: held")

    assert text(model.on_done(state, JobAction("release", 7), False)).endswith("already released")

    state = model.on_refused(state, "job 3 runs already")
    assert text(state).endswith("\njob 3 runs already")
    assert text(press(state, "x")[0]).endswith(KEYS)


def test_a_lost_daemon_leaves_the_last_figures() -> None:
    state = model.on_failure(SHOWN, "the daemon has stopped")

    assert text(state).endswith("the daemon has stopped")
    assert "pyfftw" in text(state)
    assert text(on_overview(state, OVERVIEW)).endswith(KEYS)


def test_devices_that_take_no_jobs_have_their_reason() -> None:
    absent, restricted = {"cpu1": "quarantined"}, {"cpu0": "no fft after 3 deaths"}
    changed = replaced(OVERVIEW, devices=DeviceList(DEVICES, absent, restricted))
    shown = text(on_overview(TopState(), changed))

    assert "cpu1: quarantined" in shown
    assert "cpu0: no fft after 3 deaths" in shown
    assert "idle" not in shown


def test_before_the_first_answer_it_waits() -> None:
    assert text(TopState()).startswith("hetsched: waiting for the daemon")


def test_many_cores_share_a_row() -> None:
    cores = tuple(f"cpu{number}" for number in range(64))
    activities = tuple(
        DeviceActivity(
            device=name, job=3, workload="fft", variant="v", share=4, done=1, speed=2.0,
            predicted_speed=2.0,
        )
        for name in cores
    )  # fmt: skip
    state = on_overview(TopState(), replaced(OVERVIEW, activities=activities))

    assert "cpu (64)  3    v        [##--------]      64/256      128        128   100%" in text(
        state
    )


def test_many_devices_leave_room_for_jobs() -> None:
    absent = {f"gpu{number}": "no such device" for number in range(30)}
    state = on_overview(TopState(), replaced(OVERVIEW, devices=DeviceList(DEVICES, absent)))

    assert "more rows" in text(state)
    assert "> 3    0     fft" in text(state)


def test_more_jobs_than_lines_scroll_with_the_selection() -> None:
    jobs = tuple(brief(Queued(number, number)) for number in range(1, 101))
    many = replaced(OVERVIEW, jobs=jobs, running=0, waiting=500)
    state, _ = press(on_overview(TopState(), many), "end")

    assert "> 100 " in text(state)
    assert "more jobs" in text(state)


def test_hostile_text_cannot_move_the_cursor() -> None:
    job = brief(Queued(1, 0, "\x1b[2J"), label="a\nb", params={"x": "\x1b]0;t\x07"})
    state = on_overview(TopState(), replaced(OVERVIEW, jobs=(job,)))

    assert all(line.text.isprintable() for line in screen(state, 300, 40))


@pytest.mark.parametrize(
    ("data", "names"),
    [
        (b"q", ["q"]),
        (b"\x1b[A\x1b[B", ["up", "down"]),
        (b"\x1bOA", ["up"]),
        (b"\x1b[5~\x1b[6~", ["pageup", "pagedown"]),
        (b"\x1b", ["escape"]),
        (b"\x1bq", ["escape", "q"]),
        (b"\x1b[1;5Cq", ["q"]),
        (b"\x1b[", []),
        (b"\r\x03", ["enter", "ctrl-c"]),
        ("ä".encode(), []),
        (b"\x00\x1a", []),
        (b"", []),
    ],
)
def test_bytes_are_keys(data: bytes, names: list[str]) -> None:
    assert list(keys(data)) == names


@given(st.binary(max_size=40))
def test_any_bytes_are_read(data: bytes) -> None:
    state = SHOWN
    for key in keys(data):
        state, _ = on_key(state, key)
        screen(state, 80, 24)
