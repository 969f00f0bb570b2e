"""Cores of one device process compute iterative jobs in processes of their own."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from diffusing_workload import Diffusion, DiffusionParams
from iterating_bench import JOB, PATIENCE, IteratingBench, ProcessDevices
from spawned_process import CPU

from hetsched.device_process.iterating import core_processes as module
from hetsched.device_process.iterating.core_processes import CoreProcesses
from hetsched.devices.process_spec import ProcessSpec
from hetsched.iterations.serial import run
from hetsched.transport.device_messages import (
    Attach,
    Check,
    Checked,
    CommandFailed,
    Detach,
    Fence,
    Fenced,
    Prepare,
    Release,
    StoredArray,
)

TESTS = Path(__file__).parent.parent
X = np.random.default_rng(5).standard_normal((24, 4))

MakeBench = Callable[..., IteratingBench]

PREPARE = Prepare(
    job=JOB,
    device=1,
    workload="",
    params=b"",
    variant="",
    arrays=(StoredArray(array="control", key=1, shape=(1,), dtype="<i4"),),
    chunk=1,
)


@pytest.fixture
def make_bench(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[MakeBench]:
    monkeypatch.setenv("PYTHONPATH", str(TESTS))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with contextlib.ExitStack() as stack:

        def make(spec: ProcessSpec = CPU, **settings: Any) -> IteratingBench:
            bench = IteratingBench(DiffusionParams(**settings), X, spec)
            return stack.enter_context(contextlib.closing(bench))

        yield make


def core_processes(bench: IteratingBench) -> list[int]:
    """The ids of the processes that the device process has started."""
    assert isinstance(bench.devices, ProcessDevices)
    files = Path(f"/proc/{bench.devices.process.pid}/task").glob("*/children")
    return [int(pid) for file in files for pid in file.read_text().split()]


def wait_for_end(pid: int) -> None:
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        assert select.select([pidfd], [], [], PATIENCE)[0]
    finally:
        os.close(pidfd)


def iterated(bench: IteratingBench) -> list[int]:
    """Run the job and return the core processes, which end with the bench."""
    bench.prepare()
    bench.iterate({0: 10, 1: 14})
    stopped = bench.stopped(2)
    assert {(stop.device, stop.reason) for stop in stopped} == {(0, "limit"), (1, "limit")}
    return core_processes(bench)


def test_each_core_computes_and_checks_in_a_process_of_its_own(make_bench: MakeBench) -> None:
    bench = make_bench()

    processes = iterated(bench)
    bench.order(1, Check(JOB, 1, 0, 24, (), seed=0))
    (checked,) = bench.answers(Checked, 1)

    result = run(Diffusion(), bench.params, {"x": X}, (10, 14))
    np.testing.assert_array_equal(bench.arrays["y"], result.outputs["y"])
    assert tuple(bench.residuals(0)) == tuple(bench.residuals(1)) == result.residuals
    assert (len(processes), checked.device, checked.worst < 1) == (2, 1, True)


def test_the_next_job_uses_the_same_processes(make_bench: MakeBench) -> None:
    bench = make_bench()
    before = iterated(bench)
    for core in range(2):
        bench.order(core, Release(JOB, core))
    bench.arrays["y"][...] = 0

    after = iterated(bench)

    assert before == after
    assert np.any(bench.arrays["y"])


def test_what_the_device_process_detaches_its_core_processes_detach(
    make_bench: MakeBench,
) -> None:
    bench = make_bench()
    iterated(bench)
    for core in range(2):
        bench.order(core, Release(JOB, core))
    bench.order(0, Detach((0,)))

    bench.prepare()
    failures = bench.answers(CommandFailed, 2)

    assert {failed.error.code for failed in failures} == {70}


def test_a_fence_is_answered_by_the_core_process(make_bench: MakeBench) -> None:
    bench = make_bench(iterations=1_000_000)
    bench.prepare()
    bench.iterate({0: 10, 1: 14})

    bench.order(0, Fence(JOB, 0))
    bench.order(1, Fence(JOB, 1))

    assert [fenced.device for fenced in bench.answers(Fenced, 2)] == [0, 1]


def test_a_core_process_that_dies_takes_the_device_process_with_it(
    make_bench: MakeBench,
) -> None:
    bench = make_bench(iterations=1_000_000)
    bench.prepare()
    bench.iterate({0: 10, 1: 14})
    bench.wait_for_report(0, 1)
    assert isinstance(bench.devices, ProcessDevices)
    processes = core_processes(bench)

    os.kill(processes[0], signal.SIGKILL)
    (failed,) = bench.answers(CommandFailed, 1)
    for pid in processes:
        wait_for_end(pid)

    assert bench.devices.wait_for_end() == 17
    assert (failed.job, failed.cause) == (JOB, "fault")
    assert failed.error.message.endswith("has ended: SIGKILL")


def test_core_processes_end_with_the_device_process(make_bench: MakeBench) -> None:
    bench = make_bench(iterations=1_000_000)
    bench.prepare()
    bench.iterate({0: 10, 1: 14})
    bench.wait_for_report(1, 1)
    assert isinstance(bench.devices, ProcessDevices)
    processes = core_processes(bench)

    bench.devices.process.kill()

    for pid in processes:
        wait_for_end(pid)


def test_idle_core_processes_end_and_are_started_again(make_bench: MakeBench) -> None:
    bench = make_bench(msgspec.structs.replace(CPU, warm_for=0.05))
    before = iterated(bench)
    for core in range(2):
        bench.order(core, Release(JOB, core))
    for pid in before:
        wait_for_end(pid)

    after = iterated(bench)

    assert not set(before).intersection(after)


def test_the_thread_computes_if_no_process_can_be_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused(*arguments: object, **settings: object) -> None:
        raise BlockingIOError("fork: resource temporarily unavailable")

    monkeypatch.setattr("subprocess.Popen", refused)
    processes = CoreProcesses(CPU, lambda event: None, lambda: None)
    assert not processes.handle(PREPARE)
    assert not processes.handle(Release(JOB, 1))


class FakeProcess:
    """Records how it was started and what it was sent."""

    started: FakeProcess

    def __init__(
        self, spec: Any, on_event: Any, on_end: Any, may_end: Any, idle_seconds: float
    ) -> None:
        self.on_event, self.may_end, self.idle_seconds = on_event, may_end, idle_seconds
        self.attached: set[int] = set()
        self.commands: list[Any] = []
        FakeProcess.started = self

    def send(self, command: Any, fds: Any = ()) -> None:
        self.commands.append(command)


@pytest.fixture
def make_processes(monkeypatch: pytest.MonkeyPatch) -> Callable[..., CoreProcesses]:
    monkeypatch.setattr(module, "CoreProcess", FakeProcess)

    def make(warm_for: float = 60.0) -> CoreProcesses:
        spec = msgspec.structs.replace(CPU, warm_for=warm_for)
        return CoreProcesses(spec, lambda event: None, lambda: None)

    return make


def test_a_process_may_not_end_before_it_has_answered_a_fence(
    make_processes: Callable[..., CoreProcesses],
) -> None:
    processes = make_processes()
    assert processes.handle(PREPARE)
    assert processes.handle(Fence(JOB, 1))
    process = FakeProcess.started
    assert not process.may_end(process)

    process.on_event(Fenced(JOB, 0))

    assert process.may_end(process)


@pytest.mark.parametrize("warm_for", [0.0, 1e9])
def test_processes_are_looked_at_neither_without_a_pause_nor_after_years(
    make_processes: Callable[..., CoreProcesses], warm_for: float
) -> None:
    assert make_processes(warm_for).handle(PREPARE)
    assert 0 < FakeProcess.started.idle_seconds * 1e3 < 2**31


def test_the_thread_computes_if_a_segment_has_no_descriptor_left(
    make_processes: Callable[..., CoreProcesses], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(fd: int) -> int:
        raise OSError(errno.EMFILE, "too many open files")

    processes = make_processes()
    with monkeypatch.context() as patch:
        patch.setattr(os, "dup", refused)
        processes.attach(Attach(1, "segment", 4), 0)
    assert not processes.handle(PREPARE)

    processes.detach([1])
    assert processes.handle(PREPARE)
