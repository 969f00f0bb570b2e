from __future__ import annotations

import signal
from concurrent.futures import Future

import pytest
from rich.console import Console

from hetsched.cli import interrupts
from hetsched.cli.progress import JobBars, has_bars, job_table, watch
from hetsched.errors import ErrorRecord
from hetsched.job import DeviceProgress, Done, Failed, JobReport, JobState, Queued, Running

REPORT = JobReport(job=42, state="done", workload="fft", load=8, seconds=0.0216)
RUNNING = Running(42, "computing", (DeviceProgress("cpu0", 3, 8),), 1.5)
DONE = Done(42, REPORT)


def failed(code: int) -> Failed:
    return Failed(42, REPORT, ErrorRecord(code, "why"))


class FakeJob(Future[None]):
    """A job that reports one of `states` at each look."""

    def __init__(self, *states: JobState) -> None:
        super().__init__()
        self._states = list(states)
        self.set_result(None)

    def progress(self) -> JobState:
        return self._states.pop(0) if len(self._states) > 1 else self._states[0]


@pytest.mark.parametrize(
    ("states", "options", "lines"),
    [
        ([Queued(42, 0), RUNNING, RUNNING, DONE], {}, "submitted 42,running 42,done 42 0.0216"),
        ([DONE], {}, "submitted 42,running 42,done 42 0.0216"),
        ([Queued(42, 1), failed(130)], {}, "submitted 42,cancelled 42"),
        ([RUNNING, failed(1)], {}, "submitted 42,running 42,failed 42"),
        (
            [Running(42, "preparing", text="planning 512x512"), DONE],
            {},
            "submitted 42,running 42,running 42 planning 512x512,done 42 0.0216",
        ),
        ([DONE], {"from_start": False}, "done 42 0.0216"),
        ([Queued(1, 0), DONE], {"is_local": True}, "running 42,done 42 0.0216"),
    ],
)
def test_one_line_a_change(
    states: list[JobState],
    options: dict[str, bool],
    lines: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    last = watch(FakeJob(*states), **options)

    assert last == states[-1]
    assert capsys.readouterr().err.splitlines() == lines.split(",")


def test_a_ctrl_c_that_a_destructor_swallowed_is_raised() -> None:
    class Thing:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGINT)

    signal.signal(signal.SIGINT, signal.default_int_handler)
    interrupts.install_handler(pytest.fail)
    interrupts.begin()
    Thing()
    with pytest.raises(KeyboardInterrupt):
        watch(FakeJob(RUNNING))
    interrupts.seen()
    assert watch(FakeJob(DONE)) == DONE


def drawn(state: JobState) -> str:
    console = Console(width=80, force_terminal=False, markup=False)
    with console.capture() as capture:
        console.print(job_table(state))
    return capture.get()


def test_the_bars_show_each_device() -> None:
    text = drawn(RUNNING)

    assert "job 42" in text
    assert "predicted 1.5 s" in text
    assert "cpu0" in text
    assert "3/8" in text


def test_the_table_of_an_iterative_job_shows_iteration_residual_rate_and_rows() -> None:
    rows = (DeviceProgress("cpu0", 0, 30), DeviceProgress("gpu0", 0, 90))
    state = Running(
        7, "iterating", rows, iteration=214, max_iterations=1000, residual=3.2e-5,
        iterations_per_second=87.25,
    )  # fmt: skip

    head, first, second = drawn(state).splitlines()

    assert "iteration 214 of at most 1000, residual 3.2e-05, 87.2/s" in head
    assert ("30 rows, 25.0 %" in first, "90 rows, 75.0 %" in second) == (True, True)


def test_hostile_text_is_not_markup() -> None:
    state = Running(42, "preparing", text="[/bold]\x1b[2J")

    assert "[/bold]\\x1b[2J" in drawn(state)


def test_only_long_jobs_show_bars(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    bars = JobBars()
    bars.show(DONE)
    assert capsys.readouterr().err == ""
    bars.show(RUNNING)
    bars.close()
    assert "job 42" in capsys.readouterr().err


@pytest.mark.parametrize("term", ["dumb", "", "unknown"])
def test_a_dumb_terminal_gets_plain_lines(monkeypatch: pytest.MonkeyPatch, term: str) -> None:
    monkeypatch.setenv("TERM", term)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)

    assert not has_bars()
