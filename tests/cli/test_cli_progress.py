from __future__ import annotations

import signal
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest
from rich.console import Console

from hetsched.cli import interrupts
from hetsched.cli.jobs import finish, next_steps
from hetsched.cli.progress import JobBars, has_bars, job_table, watch
from hetsched.errors import ErrorRecord, JobFailed
from hetsched.job import (
    DeviceProgress,
    DeviceReport,
    Done,
    Failed,
    IterationSeconds,
    JobReport,
    JobState,
    Queued,
    Running,
)

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


# ---- the report


def device(
    name: str, share: int, seconds: float, guess: float | None, **more: Any
) -> DeviceReport:
    return DeviceReport(
        device=name, kind="cpu", variant="pyfftw" if share else "", share=share, seconds=seconds,
        chunks=(share,), predicted_seconds=guess, **more,
    )  # fmt: skip


def report_of(*devices: DeviceReport, **changes: Any) -> JobReport:
    fields: dict[str, Any] = {"job": 42, "state": "done", "workload": "fft", "load": 256}
    return JobReport(devices=devices, **fields | changes)


def iterated(**changes: Any) -> JobReport:
    phases = IterationSeconds(compute=1.5, wait=0.5, save=0.25)
    core = device("cpu0", 90, 2.0, None, phases=phases)
    fields: dict[str, Any] = {
        "state": "failed", "workload": "pcg", "load": 90, "seconds": 2.0, "iterations": 100,
        "residual": 0.25, "converged": False, "moves": 2, "outputs": {"x": "/tmp/x.npy"},
    }  # fmt: skip
    return report_of(core, **fields | changes)


CPU, GPU = device("cpu0", 50, 0.0208, 0.0209), device("gpu0", 206, 0.0214, None)
TIMES: dict[str, Any] = {"seconds": 0.0216, "predicted_seconds": 0.0209, "spread": 0.0288}
CASES = {
    "all there is to say": report_of(
        CPU, GPU, **TIMES, verified=True, max_error=3.1e-7, whole_seconds=1.0,
        outputs={"y": "/tmp/y.npy"},
        notes=("cpu0: 50 units by guess", "team0: no share, too short", "input x: converted"),
    ),
    "the first run has no prediction, and one device no spread": report_of(
        CPU, seconds=1.0, spread=0.0
    ),
    "a device that tries another variant is why there is no prediction": report_of(
        CPU, GPU, **TIMES | {"predicted_seconds": None}
    ),
    "late phases are a warning": report_of(device("emu0", 5, 1.0, None, late=3)),
    "a device without a share has no figures, and a team no row": report_of(
        CPU, device("emu0", 0, 0.0, None), device("team0", 0, 0.0, None)
    ),
    "a team that works has a row": report_of(CPU, device("team0", 9, 1.0, None)),
    "more than eight cores share a row": report_of(
        *[device(f"cpu{n}", 10, 2.0 - n / 100, 1.5) for n in range(9)], GPU
    ),
    "eight cores have a row each": report_of(*[device(f"cpu{n}", 10, 2.0, 1.5) for n in range(8)]),
    "a job that has not converged shows what it reached": iterated(),
    "the rate of a continued job is that of its own iterations": iterated(continued_after=60),
}  # fmt: skip


def test_what_is_printed_at_the_end_of_a_job(
    capsys: pytest.CaptureFixture[str], golden: Callable[[str, str], None]
) -> None:
    for name, case in CASES.items():
        print(f"== {name}")
        finish(Done(42, case), False, lambda ended: next_steps(42, ended, ["final", "steps"]))
    golden("report", capsys.readouterr().out)


def test_a_job_that_failed_has_its_error_and_if_it_reached_something_a_report(
    capsys: pytest.CaptureFixture[str],
) -> None:
    error = ErrorRecord(1, "no convergence in 100 iterations")
    for case, has_report in ((iterated(), True), (report_of(CPU), False)):
        with pytest.raises(JobFailed, match="no convergence in 100"):
            finish(Failed(3, case, error), False, lambda ended: "next: nothing")
        assert ("next: nothing" in capsys.readouterr().out) == has_report
