"""Segments get huge pages where the kernel can make them, and small ones where it can't."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from descriptors import open_descriptors

from hetsched.transport import pages
from hetsched.transport.arena import Arena
from hetsched.transport.pages import (
    HUGE_BYTES,
    HugePages,
    map_segment,
    map_unpopulated,
    seconds_of_one_page,
    touched_byte,
)

SIZE = 4 * HUGE_BYTES + (64 << 10)
"""Bytes of four huge pages and a rest."""
SETTING = Path("/sys/kernel/mm/transparent_hugepage/shmem_enabled")


@pytest.fixture(autouse=True)
def fresh_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process that has made none."""
    monkeypatch.setattr(pages, "_huge_pages", HugePages())


@pytest.fixture
def arena() -> Iterator[Arena]:
    arena = Arena(1 << 26)
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


def gives_them_itself() -> bool:
    """Return whether this system gives huge pages that are only advised."""
    chosen = SETTING.read_text(encoding="ascii") if SETTING.exists() else "[never]"
    return "[never]" not in chosen and "[deny]" not in chosen


only_on_request = pytest.mark.skipif(
    gives_them_itself(), reason="shared memory has huge pages without a request here"
)


def can_collapse() -> bool:
    """Return whether this kernel makes huge pages of shared memory on request."""
    arena = Arena(1 << 26)
    try:
        fresh = arena.allocate(HUGE_BYTES)
        with map_unpopulated(fresh.fd, fresh.nbytes) as mapping:
            HugePages().collapse(mapping, 0, HUGE_BYTES)
            return huge_bytes(mapping) == HUGE_BYTES
    finally:
        arena.close()


def test_all_whole_huge_pages_of_a_segment_are_huge(arena: Arena) -> None:
    if not can_collapse():
        pytest.skip("the kernel makes no huge pages here: it is too old, or memory fragmented")
    fresh = arena.allocate(SIZE)

    with map_segment(fresh.fd, fresh.nbytes) as mapping:
        held = huge_bytes(mapping)
        with map_segment(fresh.fd, fresh.nbytes) as again:
            held_again = huge_bytes(again)

    # Memory may be fragmented just then: all or none from some page on, the same for both.
    assert held == held_again
    assert held in range(0, SIZE, HUGE_BYTES)


@pytest.mark.parametrize("nodes", [2, 3, 4, 6, 8])
def test_huge_pages_are_interleaved_as_small_ones_would_be(nodes: int) -> None:
    count = 48
    touched = [touched_byte(number) for number in range(count)]
    pages = Counter(byte // mmap.PAGESIZE % nodes for byte in touched)

    assert [byte // HUGE_BYTES for byte in touched] == [*range(count)]
    assert {*pages.values()} == {count // nodes}


def test_contents_survive_the_change_of_pages(
    arena: Arena, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(pages._huge_pages, "collapse", lambda mapping, start, end: None)
        fresh = arena.allocate(SIZE)
        values = fresh.array((SIZE,), "uint8")
        values[:] = np.random.default_rng(1).integers(0, 256, SIZE, np.uint8)
        expected = values.tobytes()

    with map_segment(fresh.fd, fresh.nbytes) as mapping:
        assert mapping[:] == expected
    assert values.tobytes() == expected


@only_on_request
def test_a_kernel_that_cannot_leaves_small_pages(
    arena: Arena, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "MADV_COLLAPSE", 12345)
    fresh = arena.allocate(SIZE)

    with map_segment(fresh.fd, fresh.nbytes) as mapping:
        assert huge_bytes(mapping) == 0


def test_a_mapping_that_cannot_be_aligned_has_small_pages(
    arena: Arena, monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh = arena.allocate(SIZE)
    monkeypatch.setattr(pages, "HUGE_BYTES", 1 << 50)  # larger than the segment
    with map_segment(fresh.fd, fresh.nbytes) as mapping:
        assert len(mapping) == fresh.nbytes


@pytest.mark.parametrize(
    ("wall", "processor", "attempts"),
    [(0.05, 0.05, 4), (0.5, 0.05, 4), (0.2, 0.2, 1), (1.5, 0.05, 1)],
    ids=["quick", "busy machine", "fragmented memory", "waits"],
)
def test_a_slow_attempt_is_one_of_much_processor_time(
    wall: float, processor: float, attempts: int, arena: Arena, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []

    def collapse(mapping: mmap.mmap, start: int, end: int) -> bool:
        made.append(start)
        return True

    monkeypatch.setattr(pages, "PIECE_BYTES", HUGE_BYTES)
    monkeypatch.setattr(pages, "_collapse_piece", collapse)
    clocks = SimpleNamespace(
        monotonic=lambda: 100.0 + wall * len(made), thread_time=lambda: processor * len(made)
    )
    monkeypatch.setattr(pages, "time", clocks)
    fresh = arena.allocate(SIZE)

    with map_unpopulated(fresh.fd, fresh.nbytes) as mapping:
        HugePages().collapse(mapping, 0, SIZE)

    assert len(made) == attempts


def test_a_trial_page_leaves_nothing_behind() -> None:
    before = open_descriptors()
    with contextlib.suppress(OSError):  # where the kernel can't
        assert seconds_of_one_page() > 0
    assert open_descriptors() <= before
