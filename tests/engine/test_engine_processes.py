"""The engine's side of device processes: nothing blocks, no descriptor or thread leaks."""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
import threading
from pathlib import Path

import msgspec
import pytest
from spawned_process import CPU, Talk, open_fds

from hetsched.device import DeviceInfo
from hetsched.devices.process_spec import ProcessSpec
from hetsched.engine.processes import device_process
from hetsched.engine.processes.device_process import DeviceProcess
from hetsched.errors import InternalError
from hetsched.transport.device_messages import Detach


@pytest.fixture(autouse=True)
def _place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def test_a_process_that_was_stopped_leaves_nothing_behind() -> None:
    fds, threads = open_fds(), threading.active_count()

    talk = Talk(CPU)
    talk.close()

    assert open_fds() == fds
    assert threading.active_count() == threads
    assert not Path(f"/proc/{talk.process.pid}").exists()


def test_a_process_that_was_killed_leaves_nothing_behind() -> None:
    fds = open_fds()
    talk = Talk(CPU)

    talk.process.kill()
    reason = talk.wait_end()
    talk.release()

    assert reason == "ended by SIGKILL"
    assert open_fds() == fds


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
    status = process.join(30)

    assert status != 0
    assert "nonsense" in process.exit_reason()


def stuck(monkeypatch: pytest.MonkeyPatch, max_queued: int) -> DeviceProcess:
    """A process that never reads its socket."""
    monkeypatch.setattr(device_process, "MAX_QUEUED_MESSAGES", max_queued)
    process = DeviceProcess(CPU)
    engine_end, process_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    engine_end.setblocking(False)
    process._sock.close()
    process._sock = engine_end
    process._process_end = process_end  # type: ignore[attr-defined]
    return process


def test_what_a_full_socket_does_not_take_is_kept_and_sent_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    process = stuck(monkeypatch, 100_000)
    process_end = process._process_end  # type: ignore[attr-defined]
    with Path(os.devnull).open() as file:
        fds = open_fds()
        for key in range(5000):
            process.send(Detach((key,)), fds=(file.fileno(),) if key == 4999 else ())
    is_queued = not process.flush()

    received = 0
    process_end.setblocking(False)
    while received < 5000:
        try:
            process_end.recv(1000)
            received += 1
        except BlockingIOError:
            process.flush()
    process.join(0)
    process_end.close()

    assert is_queued
    assert process.flush()
    assert open_fds() <= fds


def test_a_process_that_never_reads_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    process = stuck(monkeypatch, 10)

    with pytest.raises(InternalError, match="stopped reading"):
        for key in range(100_000):
            process.send(Detach((key,)))

    process.join(0)
    process._process_end.close()  # type: ignore[attr-defined]


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
