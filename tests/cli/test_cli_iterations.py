"""How iterative jobs are shown: progress, closing table, top; from handwritten records."""

from __future__ import annotations

from hetsched.cli.output import job_lines
from hetsched.cli.output.job_table import summary, table
from hetsched.cli.output.top.device_rows import device_rows
from hetsched.job import DeviceProgress, DeviceReport, IterationSeconds, JobReport, Running
from hetsched.transport.inspection.overview_records import DaemonOverview, DeviceActivity

RUNNING = Running(
    7,
    "computing",
    (DeviceProgress("cpu0", 600, 600),),
    iteration=214,
    max_iterations=1000,
    residual=3.21e-5,
    iterations_per_second=87.24,
)
REPORT = JobReport(
    job=7,
    state="done",
    workload="jacobi",
    load=1200,
    seconds=2.5,
    iterations=214,
    residual=9.1e-9,
    converged=True,
    moves=2,
    devices=(
        DeviceReport(
            device="cpu0", kind="cpu", variant="numpy", share=400, seconds=2.2, chunks=(),
            phases=IterationSeconds(2.2, 0.0, 0.25, 0.01),
        ),
        DeviceReport(
            device="emu0", kind="emulated", variant="numpy", share=800, seconds=2.4, chunks=(),
            phases=IterationSeconds(2.0, 0.4, 0.02, 0.01),
        ),
    ),
)  # fmt: skip


def test_progress_gives_iteration_residual_and_rate() -> None:
    assert job_lines.detail(RUNNING) == "iteration 214 of at most 1000, residual 3.21e-05, 87.2/s"


def test_before_the_first_iteration_the_stage_is_shown() -> None:
    assert job_lines.detail(Running(7, "preparing", iteration=0)) == "preparing"
    assert job_lines.detail(Running(7, "computing", text="loading x", iteration=0)) == "loading x"


def test_the_table_has_the_phases() -> None:
    assert table(REPORT) == [
        "device  variant  rows  compute  transfer   wait  converge",
        "cpu0    numpy     400     2.20     0.000  0.250    0.0100",
        "emu0    numpy     800     2.00     0.400  0.020    0.0100",
    ]


def test_the_summary_says_how_the_iterations_ended() -> None:
    assert summary(REPORT) == [
        "jacobi: 1200 rows  214 iterations in 2.5 s (85.6/s)  converged  residual 9.1e-09"
        "  rows moved 2 times"
    ]


def test_a_job_that_failed_early_has_no_iterations_to_show() -> None:
    report = JobReport(job=7, state="failed", workload="pcg", load=9, iterations=0)

    assert summary(report) == ["pcg: 9 rows  0 iterations"]


def test_top_shows_rows_and_how_busy_a_device_is() -> None:
    activity = DeviceActivity(
        device="cpu0", job=7, workload="jacobi", variant="numpy", share=400, done=400,
        compute_busy=0.52, speed=34240.0, is_iterative=True,
    )  # fmt: skip
    overview = DaemonOverview(
        pid=1, version="1", uptime_seconds=1.0, now=1.0, activities=(activity,)
    )

    (row,) = device_rows(overview, 5)

    assert row.cells == (
        "cpu0", "7", "numpy", "[#####-----]", "400 rows", "34240", "-", "-",
    )  # fmt: skip
