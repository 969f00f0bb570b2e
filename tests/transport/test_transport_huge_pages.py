from __future__ import annotations

import ctypes
import mmap
import multiprocessing
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from hetsched.transport import arena as arena_module
from hetsched.transport.arena import (
    HUGE_BYTES,
    Arena,
    HugePages,
    map_segment,
    map_unpopulated,
)

SIZE = 4 * HUGE_BYTES + (64 << 10)
"""Bytes of four huge pages and a rest."""


@pytest.fixture(autouse=True)
def fresh_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process that has made none."""
    monkeypatch.setattr(arena_module, "_huge_pages", HugePages())


@pytest.fixture
def arena() -> Iterator[Arena]:
    arena = Arena(1 << 28)
    yield arena
    arena.close()


def address(mapping: mmap.mmap) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(mapping))


def huge_bytes(mapping: mmap.mmap) -> int:
    """Return how much of a mapping is in huge pages, from /proc/self/smaps."""
    start, inside = f"{address(mapping):x}-", False
    with open("/proc/self/smaps", encoding="ascii") as lines:
        for line in lines:
            if line.startswith(start):
                inside = True
            elif inside and line.startswith("ShmemPmdMapped:"):
                return int(line.split()[1]) << 10
    raise AssertionError("no such mapping")


def can_collapse() -> bool:
    """Return whether this kernel makes huge pages of shared memory on request."""
    arena = Arena(1 << 26)
    try:
        fresh = arena.allocate(HUGE_BYTES)
        with map_unpopulated(fresh.fd, fresh.nbytes) as mapping:
            HugePages().collapse(mapping, fresh.fd, 0, HUGE_BYTES)
            return huge_bytes(mapping) == HUGE_BYTES
    finally:
        arena.close()


def test_all_whole_huge_pages_of_a_segment_are_huge(
    arena: Arena, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not can_collapse():
        pytest.skip("the kernel makes no huge pages here: it is too old, or memory fragmented")
    held = []
    for _ in range(5):  # memory may be fragmented at a moment, or the machine slow
        fresh = arena.allocate(SIZE)
        monkeypatch.setattr(arena_module, "_huge_pages", HugePages())
        with map_segment(fresh.fd, fresh.nbytes) as mapping:
            monkeypatch.setattr(arena_module, "_huge_pages", HugePages())
            with map_segment(fresh.fd, fresh.nbytes) as again:
                held.append((huge_bytes(mapping), huge_bytes(again)))

    if all(first < 4 * HUGE_BYTES for first, _ in held) and not can_collapse():
        pytest.skip(f"memory is fragmented: {held}")
    assert (4 * HUGE_BYTES, 4 * HUGE_BYTES) in held


def test_processes_that_map_a_segment_at_once_all_get_huge_pages(arena: Arena) -> None:
    if not can_collapse():
        pytest.skip("the kernel makes no huge pages here: it is too old, or memory fragmented")
    fork, size = multiprocessing.get_context("fork"), 16 * HUGE_BYTES
    answers = []
    for _ in range(5):  # as above
        fresh, start, found = arena.allocate(size), fork.Barrier(3), fork.Queue()

        def map_it(fd: int, start: Any, found: Any) -> None:
            arena_module._huge_pages = HugePages()
            start.wait()
            with map_segment(fd, size) as mapping:
                found.put(huge_bytes(mapping))

        processes = [
            fork.Process(target=map_it, args=(fresh.fd, start, found), daemon=True)
            for _ in range(3)
        ]
        for process in processes:
            process.start()
        answers.append([found.get(timeout=60) for _ in processes])
        for process in processes:
            process.join(60)

    if not can_collapse():
        pytest.skip(f"memory is fragmented: {answers}")
    assert [size] * 3 in answers


def test_contents_survive_the_change_of_pages(
    arena: Arena, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(arena_module._huge_pages, "collapse", lambda *arguments: None)
        fresh = arena.allocate(SIZE)
        values = fresh.array((SIZE,), "uint8")
        values[:] = np.random.default_rng(1).integers(0, 256, SIZE, np.uint8)
        expected = values.tobytes()

    with map_segment(fresh.fd, fresh.nbytes) as mapping:
        assert mapping[:] == expected
    assert values.tobytes() == expected
