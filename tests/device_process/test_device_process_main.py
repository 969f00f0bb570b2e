"""Device processes, driven over their socket."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import numpy as np
import pytest
from device_bench import LINKED, VIRTUAL, cut, info_of
from device_toys import AffineParams
from spawned_process import CPU, Talk

from hetsched.devices.probe import ProcessSpec
from hetsched.transport.device_messages import (
    Check,
    Checked,
    ChunksDone,
    CommandFailed,
    Detach,
    Fill,
    Filled,
    Prepared,
    Release,
    Released,
    Run,
    StoredArray,
)

TESTS = Path(__file__).parent.parent
SPECS = {
    "cpu": CPU,
    "real": ProcessSpec(
        package="hetsched.devices.emulated", device=info_of(LINKED), config=LINKED
    ),
    "virtual": ProcessSpec(
        package="hetsched.devices.emulated", device=info_of(VIRTUAL), config=VIRTUAL
    ),
}

Starter = Callable[[ProcessSpec], Talk]


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(TESTS))
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture
def start(environment: None) -> Iterator[Starter]:
    with contextlib.ExitStack() as stack:
        yield lambda spec: stack.enter_context(contextlib.closing(Talk(spec)))


@pytest.fixture
def fresh(start: Starter) -> Talk:
    """A process for a test that ends it, or needs one that has done nothing."""
    return start(CPU)


@pytest.fixture(scope="module")
def running(environment: None) -> Iterator[Talk]:
    with contextlib.closing(Talk(CPU)) as talk:
        yield talk


@pytest.fixture
def cpu(running: Talk) -> Iterator[Talk]:
    """The same process for many tests, without the jobs of the last one."""
    yield running
    for attempt in (1, 2):
        running.process.send(Release(attempt, answer=True))
    while not isinstance(running._next(), Released):
        pass
    running.expect(Released)
    running.notes.clear()
    running.y[...] = -7


@pytest.mark.parametrize("kind", SPECS)
def test_a_load_is_computed(start: Starter, kind: str) -> None:
    talk = start(SPECS[kind])
    talk.prepare(slots=2, memory=2048)
    talk.expect(Prepared)

    talk.process.send(Run(1, tuple(cut([10] * 4))))

    assert talk.chunks_done(4) == [0, 1, 2, 3]
    np.testing.assert_array_equal(talk.y, 2 * talk.x + 1)
    assert talk.hello.info.name == SPECS[kind].device.name


def test_a_load_is_filled_computed_and_checked(cpu: Talk) -> None:
    cpu.prepare()
    cpu.process.send(Fill(1, "x", 0, 40, 3))
    cpu.process.send(Fill(1, "y", 0, 40, 0, poison=True))
    cpu.expect(Prepared | Filled, 3)
    assert np.isnan(cpu.y).all()

    cpu.process.send(Run(1, tuple(cut([10] * 4))))
    cpu.chunks_done(4)
    cpu.process.send(Check(1, 0, 40, (0, 17, 39), 9))
    checked = cpu.expect(Checked)

    assert checked.worst <= 1 and checked.max_error == 0 and checked.sample_error == 0


def failure(talk: Talk, cause: str) -> CommandFailed:
    failed = talk.expect(CommandFailed)
    assert failed.cause == cause
    return failed


def test_a_kernel_that_raises_is_reported_and_the_process_lives_on(cpu: Talk) -> None:
    cpu.prepare(variant="broken")
    cpu.expect(Prepared)
    cpu.process.send(Run(1, tuple(cut([10] * 4))))
    failed = failure(cpu, "kernel")

    cpu.prepare(attempt=2)
    cpu.expect(Prepared)
    cpu.process.send(Run(2, tuple(cut([10] * 4))))

    assert (failed.chunk, failed.error.code) == (0, 1)
    assert "no such luck" in failed.error.message
    assert cpu.chunks_done(4) == [0, 1, 2, 3]


def test_chunks_of_a_job_that_failed_are_dropped(cpu: Talk) -> None:
    chunks = cut([10] * 4)
    cpu.prepare(variant="broken")
    cpu.process.send(Run(1, (chunks[0],)))
    cpu.expect(Prepared)
    failure(cpu, "kernel")

    cpu.process.send(Run(1, tuple(chunks[1:])))
    cpu.prepare(attempt=2)

    cpu.expect(Prepared)


def test_released_and_detached_segments_are_unmapped(fresh: Talk) -> None:
    fresh.prepare()
    fresh.process.send(Run(1, tuple(cut([10] * 4))))
    fresh.expect(Prepared)
    fresh.chunks_done(4)
    maps = Path(f"/proc/{fresh.process.pid}/maps")
    before = maps.read_text().count("memfd:hetsched")

    fresh.process.send(Release(1))
    fresh.process.send(Detach((1, 2)))
    fresh.prepare(attempt=2)
    failure(fresh, "kernel")  # nothing is attached any more

    assert (before, maps.read_text().count("memfd:hetsched")) == (2, 0)


def test_pages_are_put_in_place_for_the_job_that_needs_them(cpu: Talk) -> None:
    fresh = cpu.arena.allocate(cpu.units * 32)
    cpu.process.attach_file(4, fresh.fd, fresh.nbytes, "segment")
    cpu.prepare()
    cpu.expect(Prepared)
    before = os.fstat(fresh.fd).st_blocks
    y = StoredArray(array="y", key=4, shape=cpu.y.shape, dtype="<f8", output=True)

    arrays = cpu.prepare_command().arrays
    cpu.prepare(attempt=2, arrays=(arrays[0], y))
    cpu.expect(Prepared)

    assert (before, os.fstat(fresh.fd).st_blocks * 512) == (0, fresh.nbytes)


def test_a_job_that_is_not_prepared_is_reported(cpu: Talk) -> None:
    cpu.process.send(Fill(5, "x", 0, 40, 3))

    assert "isn't prepared" in failure(cpu, "kernel").error.message


def test_an_interrupt_does_not_end_the_process(cpu: Talk) -> None:
    os.kill(cpu.process.pid, signal.SIGINT)

    cpu.prepare()

    cpu.expect(Prepared)


@pytest.mark.parametrize(
    "fault", ["recursion", "memory", "SystemExit", "KeyboardInterrupt", "unprintable"]
)
def test_whatever_a_kernel_raises_is_a_failure_of_its_job(cpu: Talk, fault: str) -> None:
    cpu.prepare_faulty(fault)
    cpu.expect(Prepared)
    cpu.process.send(Run(1, tuple(cut([10] * 4))))

    failed = failure(cpu, "kernel")

    assert failed.error.code == 1
    assert failed.error.message.startswith("the kernel failed: ")
    cpu.prepare(attempt=2)
    cpu.expect(Prepared)


@pytest.mark.parametrize(
    ("fault", "reason"), [("segfault", "ended by SIGSEGV"), ("exit", "exit status 3")]
)
def test_a_kernel_that_ends_its_process_is_seen(fresh: Talk, fault: str, reason: str) -> None:
    fresh.prepare_faulty(fault)
    fresh.expect(Prepared)

    fresh.process.send(Run(1, tuple(cut([10] * 4))))

    assert fresh.wait_end().startswith(reason)


def test_commands_and_events_of_any_size_arrive(cpu: Talk) -> None:
    params = b" " * 6600 + msgspec.json.encode(AffineParams(cpu.units))
    params += b" " * 100_000
    cpu.prepare(params=params)
    cpu.expect(Prepared)

    cpu.prepare(attempt=2, variant="talkative")

    cpu.expect(Prepared)
    assert max(map(len, cpu.notes)) == 300  # what a kernel says is cut


def test_the_process_ends_when_its_socket_does(fresh: Talk) -> None:
    fresh.process._sock.shutdown(2)

    assert fresh.wait_end() == "exit status 0"


def test_two_jobs_on_a_core_take_turns(cpu: Talk) -> None:
    cpu.prepare(attempt=1)
    cpu.prepare(attempt=2)
    cpu.expect(Prepared, 2)

    cpu.process.send(Run(1, tuple(cut([1] * 40))))
    cpu.process.send(Run(2, tuple(cut([10] * 2))))

    done = {1: 0, 2: 0}
    while done[2] < 2:
        report = cpu.expect(ChunksDone)
        done[report.attempt] += len(report.chunks)
    while done[1] < 40:
        done[1] += len(cpu.expect(ChunksDone).chunks)
    assert done == {1: 40, 2: 2}
    np.testing.assert_array_equal(cpu.y, 2 * cpu.x + 1)
