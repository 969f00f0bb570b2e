"""What an explanation says of an iterative job."""

from __future__ import annotations

from hetsched.explain import Explanation
from hetsched.explain.iteration_text import move_lines
from hetsched.explain.recorder import IterationRecorder
from hetsched.explain.records import IterationHistory
from hetsched.explain.text import explanation_text
from tests.explain.iterations.story import PhaseTimes, explanation, recorded

EXPECTED = """\
job 7, done: jacobi n=1200
1200 rows, 60 iterations in 1.6 s (26.7 ms each), residual 8.67e-19, converged

where the time went, of 1.6 s:
device  variant  first rows  last rows  compute  transfer    wait  converge
cpu0    numpy           400        240   92.6 %     0.0 %   6.6 %     0.7 %
cpu1    numpy           400        240   92.6 %     0.0 %   6.6 %     0.7 %
emu0    numpy           400        720   72.3 %     2.4 %  24.6 %     0.7 %

iterations (seconds of each, rows of each device):
iteration  seconds  residual  cpu0  cpu1  emu0
        1   0.0402       0.5   400   400   400
        2   0.0402      0.25   400   400   400
        4   0.0402    0.0625   400   400   400
        8   0.0407   0.00391   200   200   800
       16   0.0242  1.53e-05   240   240   720
       32   0.0242  2.33e-10   240   240   720
       60   0.0242  8.67e-19   240   240   720

when and why rows moved:
  after iteration 4: 600 rows (cpu0 400 -> 200, cpu1 400 -> 200, emu0 400 -> 800): imbalance (cpu0\
 was busy for 40.2 ms, emu0 for 10.7 ms); 40.2 ms -> 41.5 ms an iteration (expected 20.1 ms); cost\
 4 ms (expected 5 ms); lost 6.5 ms in 5 iterations
  after iteration 9: 120 rows (cpu0 200 -> 240, cpu1 200 -> 240, emu0 800 -> 720): imbalance (emu0\
 was busy for 40.7 ms, cpu0 for 20.2 ms); 41.5 ms -> 24.2 ms an iteration (expected 20.1 ms); cost\
 0 us (expected 5 ms); gained 882 ms in 51 iterations
  all moves for balance together gained 876 ms

2 checkpoints, the last after iteration 40, 3 MiB; the devices paused for 10 ms (0.624 % of the\
 iterations' time)
1 iteration computed again after a device was lost"""


def text_of(recorder: IterationRecorder) -> str:
    iterations = recorder.history()
    return str(Explanation(job=3, state="done", workload="w", load=640, iterations=iterations))


def test_the_text_says_when_and_why_rows_moved() -> None:
    assert str(explanation()) == EXPECTED


def test_the_time_of_saving_rows_is_a_phase() -> None:
    recorder = IterationRecorder(["cpu0", "gpu0"])
    recorder.add(1, (320, 320), [PhaseTimes(3.0, save=1.0), PhaseTimes(2.0, save=2.0)])

    header, core, gpu = text_of(recorder).splitlines()[-3:]
    assert header.split()[-2:] == ["compute", "save"]
    assert (core.split()[-4:], gpu.split()[-4:]) == (
        ["75.0", "%", "25.0", "%"],
        ["50.0", "%", "50.0", "%"],
    )


def test_a_device_that_waits_for_another_one_to_begin_waits_for_all_of_the_time() -> None:
    recorder = IterationRecorder(["cpu0", "cpu1"])
    recorder.add(1, (320, 320), [PhaseTimes(1.0, wait=3.0), PhaseTimes(1.0)])

    lines = text_of(recorder).splitlines()

    assert "where the time went, of 4 s:" in lines
    assert [line.split()[-4:] for line in lines if line.startswith("cpu0")] == [
        ["25.0", "%", "75.0", "%"]
    ]


def test_lines_fit_into_a_terminal() -> None:
    assert max(map(len, explanation_text(explanation(5000), 80).splitlines())) <= 80


def test_a_job_without_iterations_is_explained() -> None:
    empty = IterationHistory(devices=("cpu0",))
    explained = Explanation(
        job=3, state="failed", workload="pcg", load=9, error="zero diagonal", iterations=empty
    )

    assert str(explained) == (
        "job 3, failed: pcg\nended early: zero diagonal\n9 rows, no complete iteration"
    )


def test_a_continued_job_says_so() -> None:
    recorder = recorded(60, first=21)
    text = str(
        Explanation(job=3, state="done", workload="w", load=1200, iterations=recorder.history())
    )

    assert "40 iterations in" in text
    assert "continued from a checkpoint after iteration 20" in text


def test_many_moves_are_counted() -> None:
    lines = move_lines(recorded(101, lambda k: (k % 7, 7 - k % 7, 0)).history())

    assert len(lines) == 14
    assert "(88 more in between)" in lines[6]


def test_many_devices_share_a_row() -> None:
    recorder = IterationRecorder([f"cpu{i}" for i in range(64)])
    for iteration in (1, 2, 3):
        recorder.add(iteration, (10,) * 64, [PhaseTimes(0.5)] * 64, 0.1)
    text = str(
        Explanation(job=3, state="done", workload="w", load=640, iterations=recorder.history())
    )

    assert "cpu (64)                  640        640  100.0 %" in text
