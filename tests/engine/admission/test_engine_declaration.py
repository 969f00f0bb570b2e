"""What is cached of a plug-in's answers, and that jobs like earlier ones don't ask it again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hetsched.device import DeviceInfo
from hetsched.engine.admission.bind import MachineLimits
from hetsched.engine.admission.check import Admission
from hetsched.engine.admission.declare import declare
from hetsched.engine.admission.resolved_job import ResolvedJob
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
        self.answers: list[ResolvedJob | BaseException | None] = []

    def check(self, spec: JobSpec) -> None:
        def on_checked(checked: ResolvedJob | None, error: BaseException | None) -> None:
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


def test_checks_in_progress_can_be_abandoned(bench: Bench) -> None:
    bench.check(SPEC)
    bench.admission.abandon_checks(TryAgain("stopping"))
    assert str(bench.answers[0]) == "stopping"


def test_more_iterations_than_devices_can_count_are_refused() -> None:
    spec = JobSpec(workload="heat", params={"grid": "9x9", "steps": 2**31})

    with pytest.raises(UsageError, match="heat: 2147483648 iterations; the maximum is 2000000000"):
        declare(spec, find("heat"), {}, Step())
