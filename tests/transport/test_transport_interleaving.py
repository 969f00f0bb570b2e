"""Segments interleaved over NUMA nodes, where there are several."""

from __future__ import annotations

import os

import pytest

from hetsched.transport.arena import Arena
from hetsched.transport.pages import interleaving
from hetsched.transport.pages.interleaving import Interleaving


def memfd(nbytes: int) -> int:
    fd = os.memfd_create("test")
    os.ftruncate(fd, nbytes)
    return fd


def test_with_one_node_nothing_is_done() -> None:
    subject = Interleaving([0])
    subject.apply(-1, 4096)  # would fail

    assert subject.note() == ""


def test_the_kernel_accepts_the_call_for_a_node_that_exists() -> None:
    fd = memfd(1 << 20)
    try:
        interleaving._mbind(fd, 1 << 20, [0])
    except OSError as error:  # a container may forbid it
        pytest.skip(f"mbind: {error}")
    finally:
        os.close(fd)


def test_a_failure_is_one_line_in_the_log(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interleaving.platform, "machine", lambda: "sparc64")
    subject = Interleaving([0, 1])

    subject.apply(-1, 1 << 20)
    subject.apply(-1, 1 << 20)

    assert len(caplog.messages) == 1
    assert "isn't interleaved" in caplog.messages[0]
    assert subject.note() == ""


def test_an_arena_interleaves_what_it_creates(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[int, tuple[int, ...]]] = []
    monkeypatch.setattr(
        interleaving, "_mbind", lambda fd, nbytes, nodes: calls.append((nbytes, tuple(nodes)))
    )
    arena = Arena(1 << 20, nodes=[0, 2])

    arena.allocate(1 << 16)
    arena.close()

    assert calls == [(1 << 16, (0, 2))]
    assert arena.interleaving.note() == "shared memory is interleaved over NUMA nodes 0, 2"
