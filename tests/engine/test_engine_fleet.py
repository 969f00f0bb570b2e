"""The fleet, on a loop whose callbacks only the test calls."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from timer_queue import Timer, TimerQueue

from hetsched.config import DeviceConfig
from hetsched.device import DeviceInfo
from hetsched.devices.process_spec import Probe, ProcessSpec
from hetsched.engine.deadlines import DEFAULT_DEADLINES
from hetsched.engine.processes.device_process import DeviceProcess
from hetsched.engine.processes.fleet import Fleet
from hetsched.engine.processes.fleet_listener import FleetListener
from hetsched.engine.processes.hosted_process import MAX_FAILED_STARTS, HostedProcess
from hetsched.errors import ErrorRecord, InternalError
from hetsched.transport.device_messages import Attach, CommandFailed, MemoryReading, Release

SPEC = ProcessSpec(
    package="hetsched.devices.cpu",
    devices=(DeviceInfo(name="cpu0", kind="cpu", identity="test"),),
    config=DeviceConfig(kind="cpu"),
)


class ManualLoop:
    """A loop that records its callbacks and calls none."""

    def __init__(self) -> None:
        self.readers: dict[int, Callable[[], None]] = {}
        self.delayed: list[Callable[[], None]] = []

    def add_reader(self, fd: int, call: Callable[[], None]) -> None:
        self.readers[fd] = call

    def remove_reader(self, fd: int) -> None:
        self.readers.pop(fd, None)

    def call_later(self, seconds: float, call: Callable[[], None]) -> Timer:
        self.delayed.append(call)
        return Timer(seconds, call, TimerQueue())

    def run_last(self) -> None:
        """Call what was delayed last."""
        self.delayed.pop()()


class ManualFleet:
    """A fleet of one process that is ready; `calls` are those of its listener."""

    def __init__(self) -> None:
        self.loop, self.calls = ManualLoop(), list[str]()
        listener = FleetListener(
            on_event=lambda device, event: self.calls.append("event"),
            on_lost=self.on_lost,
            on_ready=lambda devices: self.calls.append("ready"),
            on_stuck=self.on_stuck,
            on_memory=lambda *event: self.calls.append("memory {1} {2}".format(*event)),
        )
        deadlines = replace(DEFAULT_DEADLINES, stop=2.4)
        self.fleet = Fleet(Probe((SPEC,), {}), cast(Any, self.loop), listener, deadlines)
        self.fleet.start()
        (self.socket, self.read), (self.pidfd, self._died) = self.loop.readers.items()
        self.pid = self.fleet.pids()["cpu0"]

    def on_lost(self, devices: tuple[str, ...], reason: str, culprits: tuple[str, ...]) -> None:
        self.calls.append(f"lost: {reason}")
        self.culprits = culprits

    def on_stuck(self, keys: frozenset[int]) -> Callable[[], None]:
        self.calls.append(f"hold {sorted(keys)}")
        return lambda: self.calls.append("release")

    def died(self) -> None:
        """Wait for the end of the process, and let the fleet know."""
        select.select([self.pidfd], [], [], 60)
        process = self.fleet._hosts[0].process
        assert process is not None
        process.stderr.join(60)
        self._died()

    def hello(self) -> None:
        select.select([self.socket], [], [], 60)
        self.read()


@pytest.fixture
def manual() -> Iterator[ManualFleet]:
    made = ManualFleet()
    yield made
    made.fleet.close()


def test_a_process_that_misses_a_deadline_is_killed_and_replaced(manual: ManualFleet) -> None:
    manual.hello()

    manual.fleet.kill_process_of("cpu0", "too late")
    manual.died()
    manual.loop.run_last()

    assert (manual.calls, manual.culprits) == (["ready", "lost: too late"], ("cpu0",))
    assert manual.fleet.pids()["cpu0"] != manual.pid


def test_a_process_that_never_says_hello_is_killed(manual: ManualFleet) -> None:
    manual.loop.run_last()

    manual.died()

    assert manual.calls == [], "nothing used it"
    manual.loop.run_last()
    assert manual.fleet.pids()["cpu0"] != manual.pid


def test_a_killed_process_that_does_not_end_has_no_successor_until_it_does(
    manual: ManualFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DeviceProcess, "kill", lambda self: None)
    manual.hello()
    with Path(os.devnull).open() as file:
        manual.fleet.attach("cpu0", 7, file.fileno(), 0, "file")

    manual.fleet.kill_process_of("cpu0", "too late")
    manual.loop.run_last()

    reason = f"killed, too late, but process {manual.pid} doesn't end"
    assert manual.calls == ["ready", "hold [7]", f"lost: {reason}"]
    assert manual.fleet.absent == {"cpu0": reason}
    assert manual.fleet.usable(["cpu0"]) == []
    assert not manual.fleet.any_remaining(["cpu0"])
    os.kill(manual.pid, signal.SIGKILL)
    manual.died()
    manual.loop.run_last()
    assert manual.calls[-1] == "release"
    assert manual.fleet.absent == {}
    assert manual.fleet.pids()["cpu0"] != manual.pid


def test_the_end_of_the_fleet_does_not_wait_for_a_process_that_never_ends(
    manual: ManualFleet, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    manual.hello()
    with monkeypatch.context() as patch:
        patch.setattr(DeviceProcess, "kill", lambda self: None)
        os.kill(manual.pid, signal.SIGSTOP)

        manual.fleet.close()

    assert f"pid {manual.pid}, doesn't end" in caplog.text


def test_a_process_that_starts_ahead_keeps_nobody_waiting() -> None:
    manual = ManualFleet()
    fleet, called = manual.fleet, list[str]()
    lazy = msgspec.structs.replace(spec_of("team0"), lazy=True)
    fleet.update(Probe((SPEC, lazy), {}))
    manual.hello()

    fleet.start_ahead(["team0"])
    fleet.start_ahead(["cpu0", "team0"])
    fleet.when_settled(["cpu0", "team0"], lambda: called.append("settled"))
    fleet.ensure_started(["cpu0"], lambda: called.append("started"))

    assert called == ["settled", "started"]
    assert fleet.starting_ahead() == fleet.unstarted() == {"team0"}
    fleet.ensure_started(["team0"], lambda: called.append("team0 started"))
    assert len(called) == 2, "this one waits"
    socket, read = list(manual.loop.readers.items())[-2]
    select.select([socket], [], [], 60)
    read()
    assert called[-1] == "team0 started"
    assert not fleet.starting_ahead() | fleet.unstarted()
    fleet.kill()
    fleet.close()


def test_a_process_that_dies_while_it_starts_ahead_is_started_once() -> None:
    manual = ManualFleet()
    lazy = msgspec.structs.replace(spec_of("team0"), lazy=True)
    manual.fleet.update(Probe((SPEC, lazy), {}))
    manual.hello()
    manual.fleet.start_ahead(["team0"])
    first = manual.fleet.pids()["team0"]
    pidfd, died = list(manual.loop.readers.items())[-1]

    os.kill(first, signal.SIGKILL)
    select.select([pidfd], [], [], 60)
    died()  # its last lines may still be read
    while "team0" in manual.fleet.pids() and manual.fleet.pids()["team0"] == first:
        manual.loop.run_last()
    restart = manual.loop.delayed.pop()
    manual.fleet.start_ahead(["team0"])
    second = manual.fleet.pids()["team0"]
    restart()

    assert manual.fleet.pids()["team0"] == second != first
    assert manual.calls == ["ready"], "no job has lost it"
    manual.fleet.kill()
    manual.fleet.close()


def spec_of(device: str) -> ProcessSpec:
    info = DeviceInfo(name=device, kind="cpu", identity="test")
    return msgspec.structs.replace(SPEC, devices=(info,))


def test_a_device_that_was_missing_joins(manual: ManualFleet) -> None:
    absent = {"gpu": "no driver"}
    assert manual.fleet.update(Probe((SPEC,), absent)) == ()
    assert manual.fleet.absent == absent

    new = manual.fleet.update(Probe((SPEC, spec_of("gpu0")), {}))

    assert new == ("gpu0",)
    assert manual.fleet.absent == {}
    assert [info.name for info in manual.fleet.infos] == ["cpu0", "gpu0"]
    assert manual.fleet.pids().keys() == {"cpu0", "gpu0"}


def test_a_process_that_failed_to_start_is_tried_again_on_request(manual: ManualFleet) -> None:
    for _ in range(MAX_FAILED_STARTS):
        manual.fleet.kill_process_of("cpu0", "no hello")
        (manual.pidfd, manual._died) = list(manual.loop.readers.items())[-1]
        manual.died()
        if manual.fleet.any_remaining(["cpu0"]):
            manual.loop.run_last()
    assert "no hello" in manual.fleet.absent["cpu0"]

    manual.fleet.retry_abandoned()

    assert manual.fleet.absent == {}
    assert manual.fleet.any_remaining(["cpu0"])


def test_events_sent_before_a_death_are_handled_before_it() -> None:
    loop, calls = ManualLoop(), list[str]()
    listener = FleetListener(
        on_event=lambda device, event: calls.append("event"),
        on_lost=lambda devices, reason, culprits: calls.append("lost"),
        on_ready=lambda devices: calls.append("ready"),
    )
    fleet = Fleet(Probe((SPEC,), {}), cast(Any, loop), listener)
    fleet.start()
    socket, pidfd = loop.readers
    died = loop.readers[pidfd]
    select.select([socket], [], [], 60)  # it has said hello
    os.kill(fleet.pids()["cpu0"], signal.SIGKILL)
    select.select([pidfd], [], [], 60)
    fleet._hosts[0].process.stderr.join(60)  # type: ignore[union-attr]

    died()

    fleet.close()
    assert calls == ["ready", "lost"]


class RefusingProcess:
    """A device process that raises `error` for each message, until it is None."""

    is_alive = True

    def __init__(self, error: Exception) -> None:
        self.error: Exception | None = error
        self.sent: list[Any] = []

    def send(self, command: Any, fds: Any = ()) -> None:
        if self.error is not None:
            raise self.error
        self.sent.append(command)

    def kill(self) -> None:
        self.is_alive = False


def hosted(process: RefusingProcess) -> HostedProcess:
    return HostedProcess(SPEC, cast(Any, process), is_ready=True)


def test_an_attachment_that_could_not_be_sent_is_sent_for_the_next_job() -> None:
    process = RefusingProcess(OSError("no descriptors are left"))
    host = hosted(process)
    with pytest.raises(OSError, match="no descriptors"):
        host.attach(3, 0, 64, "segment")

    process.error = None
    host.attach(3, 0, 64, "segment")

    assert process.sent == [Attach(3, "segment", 64)]


def test_a_process_that_has_stopped_reading_is_killed(caplog: pytest.LogCaptureFixture) -> None:
    process = RefusingProcess(InternalError("it has stopped reading commands"))
    host = hosted(process)
    host.outbox.append(Release(1, 0))

    host.flush()
    host.attach(3, 0, 64, "segment")
    host.detach([3])

    assert not process.is_alive
    assert caplog.text.count("cpu0: it has stopped reading commands; killing it") == 1


class ReportingProcess(RefusingProcess):
    """A device process that has sent `events`."""

    ended = False

    def __init__(self, *events: Any) -> None:
        super().__init__(OSError())
        self.events = events

    def receive(self) -> tuple[Any, ...]:
        return self.events


def test_a_failure_between_two_jobs_is_logged(
    manual: ManualFleet, caplog: pytest.LogCaptureFixture
) -> None:
    error = ErrorRecord(70, "memory can't be released")
    process: Any = ReportingProcess(CommandFailed(0, 0, "kernel", error))

    manual.fleet._read_events(hosted(process), process)

    assert "event" not in manual.calls
    assert "cpu0: between two jobs: memory can't be released" in caplog.text


def test_a_reading_of_memory_changes_the_description_of_a_device(manual: ManualFleet) -> None:
    manual.hello()
    fleet = manual.fleet
    fleet._devices.set_memory("cpu0", 1 << 30)

    fleet._on_memory("cpu0", MemoryReading(0, 1 << 29))
    fleet._on_memory("cpu0", MemoryReading(0, (1 << 29) + 1, released=True))

    assert fleet.infos[0].memory == fleet.info("cpu0").memory == 1 << 29
    assert manual.calls[-2:] == ["memory True False", "memory False True"]
