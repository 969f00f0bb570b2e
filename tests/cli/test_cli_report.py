"""The closing table, from handwritten records."""

from __future__ import annotations

import msgspec

from hetsched.cli.jobs import summary, table
from hetsched.job import DeviceReport, JobReport
from hetsched.text import grouped_rows


def device(
    name: str, share: int, seconds: float, guess: float | None, late: int = 0
) -> DeviceReport:
    return DeviceReport(
        device=name,
        kind="cpu",
        variant="pyfftw",
        share=share,
        seconds=seconds,
        chunks=(share,),
        predicted_seconds=guess,
        late=late,
    )


DEVICES = (device("cpu0", 50, 0.0208, 0.0209), device("gpu0", 206, 0.0214, None))
REPORT = JobReport(
    job=42,
    state="done",
    workload="fft",
    load=256,
    seconds=0.0216,
    predicted_seconds=0.0209,
    spread=0.0288,
    devices=DEVICES,
    verified=True,
    max_error=3.1e-7,
    notes=(
        "cpu0: 50 units by the speed of pyfftw",
        "team0: no share, the job is too short for threads",
        "input x: converted",
    ),
    outputs={"y": "/tmp/y.npy"},
)


def test_the_table_has_a_row_a_device() -> None:
    assert table(REPORT) == [
        "device  variant (library)  share  seconds  units/s  predicted",
        "cpu0    pyfftw                50   0.0208     2404     0.0209",
        "gpu0    pyfftw               206   0.0214     9626          -",
    ]


def test_the_summary_says_what_the_table_cannot() -> None:
    assert summary(REPORT) == [
        "fft: 256 units  kernels' time 21.6 ms (predicted 20.9 ms, +3.3 %)  spread 0.029",
        "verified: all units correct, off by at most 3.1e-07 of the largest value",
        "note: input x: converted",
        "result: y in /tmp/y.npy",
    ]


def test_show_also_has_the_reasons() -> None:
    said = summary(REPORT, with_reasons=True)

    assert "note: cpu0: 50 units by the speed of pyfftw" in said
    assert "note: team0: no share, the job is too short for threads" in said


def test_the_first_run_has_no_prediction_and_one_device_no_spread() -> None:
    report = JobReport(
        job=1, state="done", workload="fft", load=5, seconds=1.0, spread=0.0, devices=DEVICES[:1]
    )

    assert summary(report) == [
        "fft: 5 units  kernels' time 1 s (no prediction: not measured before)"
    ]


def test_a_device_that_tries_another_variant_is_why_there_is_no_prediction() -> None:
    report = msgspec.structs.replace(REPORT, predicted_seconds=None)

    assert "(no prediction: no measurements for pyfftw on gpu0)" in summary(report)[0]


def test_late_phases_are_a_warning() -> None:
    report = JobReport(
        job=1,
        state="done",
        workload="fft",
        load=5,
        devices=(device("emu0", 5, 1.0, None, late=3),),
    )

    assert "late: 3 phases on emu0" in summary(report)[1]


def test_a_device_without_a_share_has_no_figures() -> None:
    report = JobReport(
        job=1, state="done", workload="fft", load=5, devices=(device("emu0", 0, 0.0, None),)
    )

    assert table(report)[1].split() == ["emu0", "-", "0", "-", "-", "-"]


def test_a_team_has_a_row_only_if_it_works() -> None:
    for share, rows in ((0, ["cpu0"]), (9, ["cpu0", "team0"])):
        devices = (DEVICES[0], device("team0", share, 1.0, None))
        report = JobReport(job=1, state="done", workload="fft", load=59, devices=devices)
        assert [line.split()[0] for line in table(report)[1:]] == rows


def test_more_than_eight_cores_share_a_row() -> None:
    cores = tuple(device(f"cpu{n}", 10, 2.0 - n / 100, 1.5) for n in range(9))
    report = JobReport(job=1, state="done", workload="fft", load=90, devices=(*cores, DEVICES[1]))

    assert [line.split() for line in table(report)[1:]] == [
        ["cpu", "(9)", "pyfftw", "90", "2.0000", "46", "1.5000"],
        ["gpu0", "pyfftw", "206", "0.0214", "9626", "-"],
    ] or table(report)[1].startswith("cpu (9)")


def test_eight_cores_have_a_row_each() -> None:
    names = [f"cpu{n}" for n in range(8)]

    assert grouped_rows(names, str, 8) == [(name, [name]) for name in names]
