"""Segments in systemd's store, between two arenas as between two daemons."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from service_manager import NotifySocket, notify_socket

from hetsched.daemon.service import stored_segments
from hetsched.daemon.service.stored_segments import StoredSegments
from hetsched.daemon.service.systemd import ServiceManager
from hetsched.transport.arena import Arena

LIMIT = 1 << 24
SIZE = 1 << 16


class Daemon:
    """An arena with its stored segments; `needed` is what its jobs need."""

    def __init__(self, manager: ServiceManager, first_id: int = 1) -> None:
        self.arena = Arena(LIMIT, first_id)
        self.needed: list[int] = []
        self.timers: list[Callable[[], None]] = []
        self.segments = StoredSegments(
            manager,
            self.arena,
            self,  # type: ignore[arg-type]
            lambda: self.needed,
        )

    def call_later(self, seconds: float, callback: Callable[[], None]) -> None:
        self.timers.append(callback)

    def need(self, count: int = 1) -> list[int]:
        """Make segments that a job needs, with their number as contents."""
        for _ in range(count):
            segment = self.arena.allocate(SIZE)
            segment.array((1,), "int64")[0] = segment.id
            self.needed.append(segment.id)
        return self.needed


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[NotifySocket]:
    with notify_socket(tmp_path) as notified:
        yield notified
    for fd in notified.stored.values():
        os.close(fd)


def manager(systemd: NotifySocket) -> ServiceManager:
    """The manager as the next daemon sees it."""
    stored = tuple((name, os.dup(fd)) for name, fd in systemd.stored.items())
    return ServiceManager(systemd.address, descriptors=stored, stores_descriptors=True)


def receive(systemd: NotifySocket, count: int) -> None:
    for _ in range(count):
        systemd.receive()


def test_needed_segments_are_stored_once(systemd: NotifySocket) -> None:
    daemon = Daemon(manager(systemd))
    daemon.need(2)
    daemon.segments.start()
    daemon.timers.pop()()
    receive(systemd, 2)

    assert set(systemd.stored) == {"segment-1", "segment-2"}
    assert systemd.lines.count("FDSTORE=1") == systemd.lines.count("FDPOLL=0") == 2
    assert daemon.segments.hold_all([1, 2])
    daemon.arena.close()


def test_the_next_daemon_finds_them_under_the_same_numbers(systemd: NotifySocket) -> None:
    first = Daemon(manager(systemd))
    first.need(2)
    first.segments.freeze()
    receive(systemd, 2)
    first.arena.close()

    second = Daemon(manager(systemd), first_id=100)
    second.segments.adopt()

    assert [second.arena.segment(n).array((1,), "int64")[0] for n in (1, 2)] == [1, 2]
    assert second.arena.allocate(SIZE).id == 100
    second.arena.close()


def test_memory_that_no_job_needs_is_released_after_the_second_look(
    systemd: NotifySocket,
) -> None:
    daemon = Daemon(manager(systemd))
    (number,) = daemon.need()
    daemon.segments.update()
    daemon.arena.release(number)  # the client's
    daemon.needed = []
    daemon.segments.update()
    assert daemon.arena.holds(number)

    daemon.segments.update()
    receive(systemd, 2)
    assert not daemon.arena.holds(number)
    assert systemd.lines[-2:] == ["FDSTOREREMOVE=1", "FDNAME=segment-1"]
    daemon.arena.close()


def test_adopted_memory_that_no_job_claims_is_released(systemd: NotifySocket) -> None:
    first = Daemon(manager(systemd))
    first.need()
    first.segments.freeze()
    receive(systemd, 1)
    first.arena.close()
    second = Daemon(manager(systemd), first_id=100)
    second.segments.adopt()
    second.segments.update()
    second.segments.update()
    receive(systemd, 1)

    assert (second.arena.used, systemd.stored) == (0, {})
    second.arena.close()


def test_nothing_is_removed_while_the_daemon_stops(systemd: NotifySocket) -> None:
    daemon = Daemon(manager(systemd))
    daemon.need()
    daemon.segments.start()
    daemon.segments.freeze()
    daemon.needed = []
    for timer in daemon.timers:
        timer()
    receive(systemd, 1)

    assert list(systemd.stored) == ["segment-1"]
    assert daemon.segments.hold_all([1])
    daemon.arena.close()


def test_the_store_isnt_overfilled(systemd: NotifySocket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_segments, "MAX_STORED", 2)
    daemon = Daemon(manager(systemd))
    daemon.need(3)
    daemon.segments.update()
    receive(systemd, 2)

    assert set(systemd.stored) == {"segment-1", "segment-2"}
    assert not daemon.segments.hold_all([1, 2, 3])
    daemon.arena.close()


def test_without_a_store_nothing_is_held() -> None:
    daemon = Daemon(ServiceManager())
    daemon.need()
    daemon.segments.start()
    daemon.segments.freeze()

    assert daemon.timers == []
    assert not daemon.segments.hold_all([1])
    daemon.arena.close()


def test_a_segment_that_couldnt_be_stored_is_tried_again(tmp_path: Path) -> None:
    daemon = Daemon(ServiceManager(str(tmp_path / "notify.sock"), stores_descriptors=True))
    daemon.need()
    daemon.segments.update()
    assert not daemon.segments.hold_all([1])

    with notify_socket(tmp_path) as systemd:
        daemon.segments.update()
        systemd.receive()
        assert daemon.segments.hold_all([1])
        os.close(systemd.stored["segment-1"])
    daemon.arena.close()


def test_descriptors_that_arent_segments_are_removed_from_the_store(
    systemd: NotifySocket, caplog: pytest.LogCaptureFixture
) -> None:
    systemd.stored = {"segment-7": os.memfd_create("no seals"), "segment-x": os.memfd_create("x")}
    daemon = Daemon(manager(systemd))
    daemon.segments.adopt()
    receive(systemd, 2)

    assert systemd.stored == {}
    assert "segment 7 of an earlier daemon is lost" in caplog.text
    daemon.arena.close()


@pytest.mark.parametrize(
    ("variables", "stores"),
    [
        ({"NOTIFY_SOCKET": "/n", "FDSTORE": "512"}, True),
        ({"NOTIFY_SOCKET": "/n", "FDSTORE": "0", "INVOCATION_ID": "1"}, False),
        ({"NOTIFY_SOCKET": "/n", "INVOCATION_ID": "1"}, True),
        ({"NOTIFY_SOCKET": "/n"}, False),
        ({"INVOCATION_ID": "1"}, False),
    ],
)
def test_whether_there_is_a_store(variables: dict[str, str], stores: bool) -> None:
    assert ServiceManager.from_environment(variables, 1).stores_descriptors == stores
