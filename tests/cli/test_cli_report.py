from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hetsched.cli.jobs import finish, next_steps
from hetsched.errors import ErrorRecord, JobFailed
from hetsched.job import DeviceReport, Done, Failed, IterationSeconds, JobReport


def device(
    name: str, share: int, seconds: float, guess: float | None, **more: Any
) -> DeviceReport:
    return DeviceReport(
        device=name, kind="cpu", variant="pyfftw" if share else "", share=share, seconds=seconds,
        chunks=(share,), predicted_seconds=guess, **more,
    )  # fmt: skip


def report(*devices: DeviceReport, **changes: Any) -> JobReport:
    fields: dict[str, Any] = {"job": 42, "state": "done", "workload": "fft", "load": 256}
    return JobReport(devices=devices, **fields | changes)


def iterated(**changes: Any) -> JobReport:
    phases = IterationSeconds(compute=1.5, wait=0.5, save=0.25)
    core = device("cpu0", 90, 2.0, None, phases=phases)
    fields: dict[str, Any] = {
        "state": "failed", "workload": "pcg", "load": 90, "seconds": 2.0, "iterations": 100,
        "residual": 0.25, "converged": False, "moves": 2, "outputs": {"x": "/tmp/x.npy"},
    }  # fmt: skip
    return report(core, **fields | changes)


CPU, GPU = device("cpu0", 50, 0.0208, 0.0209), device("gpu0", 206, 0.0214, None)
TIMES: dict[str, Any] = {"seconds": 0.0216, "predicted_seconds": 0.0209, "spread": 0.0288}
CASES = {
    "all there is to say": report(
        CPU, GPU, **TIMES, verified=True, max_error=3.1e-7, whole_seconds=1.0,
        outputs={"y": "/tmp/y.npy"},
        notes=("cpu0: 50 units by guess", "team0: no share, too short", "input x: converted"),
    ),
    "the first run has no prediction, and one device no spread": report(
        CPU, seconds=1.0, spread=0.0
    ),
    "a device that tries another variant is why there is no prediction": report(
        CPU, GPU, **TIMES | {"predicted_seconds": None}
    ),
    "late phases are a warning": report(device("emu0", 5, 1.0, None, late=3)),
    "a device without a share has no figures, and a team no row": report(
        CPU, device("emu0", 0, 0.0, None), device("team0", 0, 0.0, None)
    ),
    "a team that works has a row": report(CPU, device("team0", 9, 1.0, None)),
    "more than eight cores share a row": report(
        *[device(f"cpu{n}", 10, 2.0 - n / 100, 1.5) for n in range(9)], GPU
    ),
    "eight cores have a row each": report(*[device(f"cpu{n}", 10, 2.0, 1.5) for n in range(8)]),
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
    for case, has_report in ((iterated(), True), (report(CPU), False)):
        with pytest.raises(JobFailed, match="no convergence in 100"):
            finish(Failed(3, case, error), False, lambda ended: "next: nothing")
        assert ("next: nothing" in capsys.readouterr().out) == has_report
