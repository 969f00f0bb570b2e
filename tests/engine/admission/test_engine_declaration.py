"""What is cached of a plug-in's answers, and that jobs like earlier ones don't ask it again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from hetsched.device import DeviceInfo
from hetsched.engine.admission.bind import MachineLimits
from hetsched.engine.admission.check import Admission, CheckedJob
from hetsched.engine.admission.declare import (
    declare,
)
from hetsched.engine.threads import Pool, Step
from hetsched.errors import TryAgain, UsageError
from hetsched.job import ArenaOut, ArenaRef, Dependency, FileOut, FileRef, JobSpec
from hetsched.transport.loop import Loop
from hetsched.workload import find

MACHINE = MachineLimits([DeviceInfo(name="cpu0", kind="cpu", identity="c")], {}, 1 << 30)
SPEC = JobSpec(workload="fft", params={"batch": "4x8x8"})


def with_input(shape: tuple[int, ...], dtype: str = "complex64") -> JobSpec:
    return JobSpec(workload="fft", params={}, inputs={"": ArenaRef(1, shape, dtype)})


class Bench:
    def __init__(self) -> None:
        self.loop = Loop()
        self.files = Pool(self.loop, 4, deadline=60.0)
        self.machine = MACHINE
        self.admission = Admission(self.files, lambda: self.machine)
        self.answers: list[CheckedJob | BaseException | None] = []

    def check(self, spec: JobSpec) -> None:
        def on_checked(checked: CheckedJob | None, error: BaseException | None) -> None:
            self.answers.append(checked or error)
            self.loop.stop()

        self.admission.check(spec, on_checked)

    def wait(self) -> None:
        self.loop._stopping = False
        self.loop.run()


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    bench.files.close(60)
    bench.loop.close()


def test_the_first_job_of_a_kind_is_checked_in_a_thread(bench: Bench) -> None:
    bench.check(SPEC)
    assert bench.answers == []
    bench.wait()
    assert isinstance(bench.answers[0], CheckedJob)


def test_a_job_like_an_earlier_one_is_checked_at_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.check(SPEC)
    bench.wait()
    monkeypatch.setattr("hetsched.engine.admission.declare.find", None)
    monkeypatch.setattr("hetsched.engine.admission.declare.declare", None)
    bench.check(SPEC)

    first, second = bench.answers
    assert isinstance(first, CheckedJob)
    assert isinstance(second, CheckedJob)
    assert second.declaration is first.declaration
    assert second.job is not first.job


def checked_jobs(bench: Bench, *specs: JobSpec) -> list[CheckedJob]:
    """Check requests of a known kind; return those that were accepted."""
    bench.answers.clear()
    for spec in specs:
        bench.check(spec)
    return [answer for answer in bench.answers if isinstance(answer, CheckedJob)]


def in_arena(input_segment: int, output_segment: int) -> JobSpec:
    source, target = (
        ArenaRef(segment, (4, 8, 8), "complex64") for segment in (input_segment, output_segment)
    )
    spec = with_input((4, 8, 8))
    return replace(spec, inputs={"": source}, outputs={"": ArenaOut(target)})


def test_a_refused_request_is_not_remembered(bench: Bench) -> None:
    wrong = JobSpec(workload="fft", params={"batch": "nonsense"})
    for _ in range(2):
        bench.check(wrong)
        bench.wait()

    assert len(bench.admission._declarations) == 0
    assert [type(answer).__name__ for answer in bench.answers] == ["UsageError"] * 2


def test_checks_in_progress_can_be_abandoned(bench: Bench) -> None:
    bench.check(SPEC)
    bench.admission.abandon_checks(TryAgain("stopping"))
    assert str(bench.answers[0]) == "stopping"


def test_jobs_of_an_earlier_daemon_are_checked_after_those_that_they_depend_on(
    bench: Bench, tmp_path: Path
) -> None:
    np.save(tmp_path / "0.npy", np.ones((4, 8, 8), "complex64"))
    numbers = iter(range(1, 100))

    def on_checked(checked: CheckedJob | None, error: BaseException | None) -> None:
        bench.answers.append(checked or error)
        if checked is not None:
            bench.admission.pending.add(next(numbers), checked.claims)
        if len(bench.answers) == 8:
            bench.loop.stop()

    for number in range(1, 9):
        spec = JobSpec(
            workload="fft",
            params={},
            inputs={"": FileRef(str(tmp_path / f"{number - 1}.npy"))},
            outputs={"": FileOut(str(tmp_path / f"{number}.npy"))},
            after=(Dependency(number - 1),) if number > 1 else (),
        )
        bench.admission.check(spec, on_checked, is_readmitted=True)
    bench.wait()

    assert [type(answer) for answer in bench.answers] == [CheckedJob] * 8


def test_more_iterations_than_devices_can_count_are_refused() -> None:
    spec = JobSpec(workload="heat", params={"grid": "9x9", "steps": 2**31})

    with pytest.raises(UsageError, match="heat: 2147483648 iterations; the maximum is 2000000000"):
        declare(spec, find("heat"), {}, Step())
