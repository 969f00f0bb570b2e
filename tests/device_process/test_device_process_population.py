"""Pages of large segments are put in place block by block, and nobody waits for them in vain."""

from __future__ import annotations

import mmap
import os
import threading
from collections.abc import Iterator

import pytest

from hetsched.device_process import population
from hetsched.device_process.population import SegmentPopulation
from hetsched.transport import pages
from hetsched.transport.arena import Arena
from hetsched.transport.pages import map_segment, map_unpopulated, populate

BLOCK = 1 << 20


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "BLOCK_BYTES", BLOCK)
    monkeypatch.setattr(population, "BLOCK_BYTES", BLOCK)


@pytest.fixture
def arena() -> Iterator[Arena]:
    arena = Arena(1 << 26)
    yield arena
    arena.close()


def segment(arena: Arena, blocks: int) -> tuple[int, mmap.mmap]:
    """Return the descriptor of a fresh segment and its mapping."""
    fresh = arena.allocate(blocks * BLOCK)
    return fresh.fd, map_unpopulated(fresh.fd, fresh.nbytes)


def allocated(fd: int) -> int:
    """Return the bytes of memory that a memfd has."""
    return os.fstat(fd).st_blocks * 512


def test_a_mapped_segment_has_all_its_pages(arena: Arena) -> None:
    fresh = arena.allocate(3 * BLOCK)
    with map_segment(fresh.fd, fresh.nbytes):
        assert allocated(fresh.fd) == 3 * BLOCK


def test_it_gets_them_on_kernels_that_can_only_be_touched(
    arena: Arena, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "MADV_POPULATE_READ", 12345)
    fd, mapping = segment(arena, 2)

    assert list(populate(mapping)) == [BLOCK, 2 * BLOCK]
    assert allocated(fd) == 2 * BLOCK


def test_a_large_segment_is_populated_step_by_step(arena: Arena) -> None:
    steps, (fd, mapping) = SegmentPopulation(), segment(arena, 3)
    steps.add(1, mapping)
    steps.begin([1])
    sizes = [allocated(fd)]
    while steps.is_pending:
        steps.step()
        sizes.append(allocated(fd))

    assert sizes[:3] == [BLOCK, 2 * BLOCK, 3 * BLOCK]
    steps.wait(1)


def test_nothing_is_populated_for_jobs_of_other_processes(arena: Arena) -> None:
    steps, (fd, mapping) = SegmentPopulation(), segment(arena, 3)

    steps.add(1, mapping)

    assert (allocated(fd), steps.is_pending) == (0, False)


def test_a_segment_is_populated_once(arena: Arena) -> None:
    steps, (_, mapping) = SegmentPopulation(), segment(arena, 3)
    steps.add(1, mapping)
    steps.begin([1])
    while steps.is_pending:
        steps.step()

    steps.begin([1, 2])

    assert not steps.is_pending


def test_a_small_one_at_once(arena: Arena) -> None:
    steps, (fd, mapping) = SegmentPopulation(), segment(arena, 1)

    steps.add(1, mapping)
    steps.begin([1])

    assert (allocated(fd), steps.is_pending) == (BLOCK, False)


def test_whoever_waits_goes_on_once_a_job_is_cancelled(arena: Arena) -> None:
    steps, (fd, mapping) = SegmentPopulation(), segment(arena, 3)
    steps.add(1, mapping)
    steps.begin([1])
    waiting = threading.Thread(target=steps.wait, args=(1,))
    waiting.start()

    steps.abandon()
    waiting.join(60)

    assert not waiting.is_alive()
    assert allocated(fd) == BLOCK
