"""The engine's side of device processes: nothing blocks, no descriptor or thread leaks."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from descriptors import open_descriptors
from spawned_process import CPU, Talk

from hetsched.device import DeviceInfo
from hetsched.devices.process_spec import ProcessSpec
from hetsched.engine.processes import device_process
from hetsched.engine.processes.device_process import DeviceProcess
from hetsched.errors import InternalError, ProtocolError
from hetsched.transport.codec import Decoder
from hetsched.transport.device_messages import Detach
from hetsched.transport.large_messages import MARKER, MAX_INLINE, MAX_LARGE, unpack
from hetsched.transport.sockets import receive_message


@pytest.fixture(autouse=True)
def _place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def test_a_process_that_was_stopped_leaves_nothing_behind() -> None:
    fds, threads = open_descriptors(), threading.active_count()

    talk = Talk(CPU)
    talk.close()

    assert open_descriptors() <= fds
    assert threading.active_count() <= threads
    assert not Path(f"/proc/{talk.process.pid}").exists()


def test_a_process_that_was_killed_leaves_nothing_behind() -> None:
    fds = open_descriptors()
    talk = Talk(CPU)

    talk.process.kill()
    reason = talk.wait_end()
    talk.release()

    assert reason == "ended by SIGKILL"
    assert open_descriptors() <= fds


def test_sending_to_a_dead_process_does_nothing() -> None:
    talk = Talk(CPU)
    talk.process.kill()
    talk.wait_end()

    talk.process.send(Detach((1,)))

    assert talk.process.receive() == []
    talk.release()


def test_the_last_output_of_a_process_is_in_its_exit_reason() -> None:
    odd = DeviceInfo(name="odd", kind="nonsense", identity="")
    spec = ProcessSpec(package="hetsched.devices.nonsense", devices=(odd,), config=CPU.config)

    process = DeviceProcess(spec)
    status = process.join(60)

    assert status != 0
    assert "nonsense" in process.exit_reason()


class StuckProcess(DeviceProcess):
    """A process that never reads its socket: `process_end` does so in its place."""

    def __init__(self) -> None:
        super().__init__(CPU)
        engine_end, self.process_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        engine_end.setblocking(False)
        self._sock.close()
        self._sock = engine_end

    def close(self) -> None:
        self.kill()
        self.join(60)
        self.process_end.close()


@pytest.fixture
def stuck() -> Iterator[StuckProcess]:
    with contextlib.closing(StuckProcess()) as process:
        yield process


def test_what_a_full_socket_does_not_take_is_kept_and_sent_later(stuck: StuckProcess) -> None:
    with Path(os.devnull).open() as file:
        fds = open_descriptors()
        for key in range(5000):
            stuck.send(Detach((key,)), fds=(file.fileno(),) if key == 4999 else ())
    is_queued = not stuck.flush()

    received = 0
    stuck.process_end.setblocking(False)
    while received < 5000:
        try:
            stuck.process_end.recv(1000)
            received += 1
        except BlockingIOError:
            stuck.flush()

    assert is_queued
    assert stuck.flush()
    assert open_descriptors() <= fds


def test_a_process_that_never_reads_is_given_up_before_memory_runs_out(
    stuck: StuckProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_process, "MAX_QUEUED_BYTES", 10_000)

    with pytest.raises(InternalError, match="hasn't read 1"):
        for key in range(100_000):
            stuck.send(Detach((key,)))


def test_a_command_larger_than_the_socket_buffer_arrives(stuck: StuckProcess) -> None:
    fds = open_descriptors()
    keys = tuple(range(1 << 32, (1 << 32) + 100_000))

    stuck.send(Detach(keys))

    payload, descriptors = receive_message(stuck.process_end, MAX_INLINE)
    command = Decoder[Detach](Detach, MAX_LARGE)(unpack(payload, descriptors))
    assert command == Detach(keys)
    assert open_descriptors() <= fds


@pytest.mark.parametrize("descriptors", [0, 2])
def test_a_large_message_without_its_memory_is_a_protocol_error(descriptors: int) -> None:
    before = open_descriptors()
    fds = [os.open(os.devnull, os.O_RDONLY) for _ in range(descriptors)]

    with pytest.raises(ProtocolError, match=f"{descriptors} descriptors"):
        unpack(MARKER, fds)

    assert open_descriptors() <= before


def test_device_processes_die_with_their_engine() -> None:
    code = (
        "import msgspec, os, sys\n"
        "from hetsched.devices.process_spec import ProcessSpec\n"
        "from hetsched.engine.processes.device_process import DeviceProcess\n"
        "spec = msgspec.json.decode(sys.argv[1], type=ProcessSpec)\n"
        "process = DeviceProcess(spec)\n"
        "while not process.receive(): pass\n"
        "print(process.pid, flush=True); sys.stdin.readline(); os._exit(0)\n"
    )
    command = [sys.executable, "-c", code, msgspec.json.encode(CPU).decode()]
    engine = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert engine.stdout is not None
    pidfd = os.pidfd_open(int(engine.stdout.readline()))

    engine.kill()
    engine.communicate()
    dead, _, _ = select.select([pidfd], [], [], 30)
    os.close(pidfd)

    assert dead
