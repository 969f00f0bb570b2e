"""A message without end: its connection is closed, whoever sends it."""

from __future__ import annotations

import errno
import os
import socket
import time
from pathlib import Path

import daemon_harness
import pytest
from descriptors import open_descriptors

from hetsched.client.control import Control
from hetsched.daemon.limits import connection_guard
from hetsched.daemon.limits.flood_detector import MIN_SAMPLES, FloodDetector
from robustness.malformed_frames import GREETING, READY

MIB = 1 << 20
PATIENCE = 60.0
PID = 7


def test_a_connection_that_grows_the_process_without_completing_a_message_is_a_flood() -> None:
    detector = FloodDetector(limit=10 * MIB)
    floods = [detector.sample({1: PID}, (), step * 8 * MIB) for step in range(MIN_SAMPLES)]
    assert floods == [[], [], [1]]
    assert detector.sample({}, (), 0) == [] and not detector.is_suspicious


def test_completed_messages_are_no_flood_however_much_memory_grows() -> None:
    detector = FloodDetector(limit=10 * MIB)
    for step in range(100):
        assert detector.sample({1: PID}, {PID}, step * 8 * MIB) == []


def test_waiting_data_without_growth_is_no_flood() -> None:
    detector = FloodDetector(limit=10 * MIB)
    assert [detector.sample({1: PID}, (), 50 * MIB) for _ in range(100)] == [[]] * 100


def test_memory_of_an_earlier_flood_does_not_hide_the_next() -> None:
    detector = FloodDetector(limit=10 * MIB)
    detector.sample({1: PID}, (), 500 * MIB)
    detector.sample({1: PID}, (), 20 * MIB)
    assert detector.sample({1: PID}, (), 31 * MIB) == [1]


def test_a_quiet_connection_is_forgotten() -> None:
    detector = FloodDetector(limit=MIB)
    for step in range(10):
        detector.sample({1: PID} if step % 2 else {}, (), step * MIB)
    assert not detector.sample({}, (), 99 * MIB) and not detector.is_suspicious


def test_an_endless_message_is_cut_off_and_others_are_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_guard, "MAX_GROWTH", 2 * MIB)
    with daemon_harness.daemon(tmp_path) as harness, socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(PATIENCE)
        sock.connect(str(harness.folder / "control.sock"))
        sock.sendall(GREETING + READY)
        frame = b"\x03" + (1 << 16).to_bytes(8, "big") + bytes(1 << 16)
        end = time.monotonic() + PATIENCE
        with pytest.raises(OSError, match=r"Broken pipe|reset"):
            while time.monotonic() < end:
                sock.sendall(frame)
        with Control(harness.folder) as client:
            assert client.ping().pid == os.getpid()


def test_floods_are_still_found_after_a_moment_without_descriptors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    samples = list[int]()

    def private_memory() -> int:
        samples.append(0)
        if len(samples) == 1:
            raise OSError(errno.EMFILE, "Too many open files")
        return 0

    monkeypatch.setattr(connection_guard, "private_memory", private_memory)
    monkeypatch.setattr(connection_guard.ConnectionGuard, "_has_event", lambda guard: True)
    with daemon_harness.daemon(tmp_path) as harness, Control(harness.folder) as client:
        end = time.monotonic() + PATIENCE
        while len(samples) < 3 and time.monotonic() < end:
            client.ping()

    assert len(samples) >= 3


def test_a_sample_without_waiting_data_reads_no_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    samples, readings = list[bool](), list[int]()

    def has_event(guard: connection_guard.ConnectionGuard) -> bool:
        samples.append(False)
        return False

    def private_memory() -> int:
        readings.append(len(samples))
        return 0

    monkeypatch.setattr(connection_guard, "private_memory", private_memory)
    monkeypatch.setattr(connection_guard.ConnectionGuard, "_has_event", has_event)
    monkeypatch.setattr(connection_guard._Connection, "waiting_bytes", lambda connection: 0)
    with daemon_harness.daemon(tmp_path) as harness, Control(harness.folder) as client:
        end = time.monotonic() + PATIENCE
        while len(samples) < 3 and time.monotonic() < end:
            client.ping()

    assert len(samples) >= 3 and len(readings) <= 1  # after the connection was accepted


def test_closed_connections_are_forgotten(tmp_path: Path) -> None:
    with daemon_harness.daemon(tmp_path) as harness:
        for _ in range(3):
            with Control(harness.folder) as client:
                client.ping()
        guard = harness.server._router._guard
        assert guard is not None
        with Control(harness.folder) as client:
            client.ping()
            connections = guard._connections
            assert harness.until(lambda: [each.is_open for each in connections.values()] == [True])


def test_a_descriptor_that_is_another_file_by_now_is_left_alone(tmp_path: Path) -> None:
    before = open_descriptors()
    with (tmp_path / "file").open("wb") as file:
        with pytest.raises(OSError):
            connection_guard._Connection(file.fileno())
        file.write(b"still open")
    assert open_descriptors() <= before
