"""What is cached of a plug-in's answers, and that jobs like earlier ones don't ask it again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hetsched.device import DeviceInfo
from hetsched.engine.admission.bind import MachineLimits
from hetsched.engine.admission.check import Admission, CheckedJob
from hetsched.engine.admission.declare import declare
from hetsched.engine.threads import Pool, Step
from hetsched.errors import TryAgain, UsageError
from hetsched.job import JobSpec
from hetsched.transport.loop import Loop
from hetsched.workload import find

MACHINE = MachineLimits([DeviceInfo(name="cpu0", kind="cpu", identity="c")], {}, 1 << 30)
SPEC = JobSpec(workload="fft", params={"batch": "4x8x8"})


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
    bench.check(SPEC)

    first, second = bench.answers
    assert isinstance(first, CheckedJob)
    assert isinstance(second, CheckedJob)
    assert second.declaration is first.declaration
    assert second.job is not first.job


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


def test_more_iterations_than_devices_can_count_are_refused() -> None:
    spec = JobSpec(workload="heat", params={"grid": "9x9", "steps": 2**31})

    with pytest.raises(UsageError, match="heat: 2147483648 iterations; the maximum is 2000000000"):
        declare(spec, find("heat"), {}, Step())
