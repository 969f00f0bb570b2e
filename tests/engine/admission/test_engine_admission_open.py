"""Opening a job without files, which needs no thread."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from hetsched.device import DeviceInfo
from hetsched.engine.admission.bind import MachineLimits
from hetsched.engine.admission.check import Admission, CheckedJob, check
from hetsched.engine.admission.files import PendingOutputs
from hetsched.engine.admission.resolved_job import ResolvedJob
from hetsched.engine.threads import Pool, Step
from hetsched.errors import Unavailable
from hetsched.job import JobSpec
from hetsched.transport.loop import Loop

MACHINE = MachineLimits([DeviceInfo(name="cpu0", kind="cpu", identity="c")], {}, 1 << 30)
SPEC = JobSpec(workload="fft", params={"batch": "4x8x8"}, devices=("cpu0",))


class Machine:
    """An admission on a machine that may change."""

    def __init__(self, pool: Pool) -> None:
        self.limits = MACHINE
        self.admission = Admission(pool, lambda: self.limits)

    def check(self) -> CheckedJob:
        return check(SPEC, self.limits, PendingOutputs(), Step())

    def open(self, checked: CheckedJob) -> ResolvedJob | BaseException:
        opened: list[ResolvedJob | BaseException | None] = []
        self.admission.open(checked, lambda job, error: opened.append(job or error))
        (result,) = opened
        assert result is not None
        return result


@pytest.fixture
def machine() -> Iterator[Machine]:
    loop = Loop()
    pool = Pool(loop, 4, 30.0)
    yield Machine(pool)
    pool.close(1.0)
    loop.close()


def test_a_job_on_the_same_devices_is_bound_only_once(machine: Machine) -> None:
    checked = machine.check()

    assert machine.open(checked) is checked.job


def test_a_job_whose_device_is_gone_meanwhile_is_refused(machine: Machine) -> None:
    checked = machine.check()
    other = DeviceInfo(name="cpu1", kind="cpu", identity="c")
    machine.limits = replace(MACHINE, infos=[other], absent={"cpu0": "it died"})

    assert isinstance(machine.open(checked), Unavailable)
