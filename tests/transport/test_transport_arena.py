import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from hetsched.errors import DataError, ProtocolError, TryAgain
from hetsched.transport.arena import SIZE_GRANULARITY as GRAIN
from hetsched.transport.arena import Arena, Segment, map_segment

MIB = 1 << 20


@pytest.fixture
def arena() -> Iterator[Arena]:
    arena = Arena(16 * MIB)
    yield arena
    arena.close()


def test_a_segment_cannot_be_cut_off_under_those_who_map_it(arena: Arena) -> None:
    segment = arena.allocate(MIB)
    for size in (0, 2 * MIB):
        with pytest.raises(PermissionError):
            os.ftruncate(segment.fd, size)


def test_a_foreign_segment_without_seals_is_not_mapped(tmp_path: Path) -> None:
    fd = os.memfd_create("unsealed", os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, GRAIN)
    try:
        with pytest.raises(ProtocolError, match="without a sealed size"):
            map_segment(fd, GRAIN)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_GROW)
        with pytest.raises(ProtocolError, match="without a sealed size"):
            map_segment(fd, GRAIN)
    finally:
        os.close(fd)
    with (tmp_path / "file").open("wb+") as file, pytest.raises(ProtocolError):
        file.truncate(GRAIN)
        map_segment(file.fileno(), GRAIN)


@pytest.mark.parametrize("nbytes", [GRAIN + 1, 1 << 50, 0, -1])
def test_a_foreign_segment_of_another_size_is_not_mapped(arena: Arena, nbytes: int) -> None:
    with pytest.raises(ProtocolError, match=f"{nbytes} bytes"):
        map_segment(arena.allocate(1).fd, nbytes)


def test_those_who_only_keep_are_asked_before_anybody_is_refused(arena: Arena) -> None:
    spare = arena.allocate(10 * MIB)
    requests: list[int] = []

    def release(nbytes: int) -> None:
        requests.append(nbytes)
        arena.release(spare.id)

    arena.on_pressure = release
    arena.allocate(8 * MIB)
    assert requests == [2 * MIB]


def test_an_array_outlives_its_segment(arena: Arena) -> None:
    segment = arena.allocate(MIB)
    array = segment.array((1000,), "int32")
    array[:] = 5
    arena.close()
    assert array.sum() == 5000


def test_an_array_may_not_reach_past_its_segment(arena: Arena) -> None:
    segment = arena.allocate(GRAIN)
    segment.array((GRAIN - 8,), "uint8", 8)
    for shape, dtype, offset in (
        ((GRAIN,), "u1", 8),
        ((1,), "u1", -1),
        ((-1,), "u1", 0),
    ):
        with pytest.raises(DataError):
            segment.array(shape, dtype, offset)
    with pytest.raises(DataError):
        segment.array((1,), "O")


class Ledger(RuleBasedStateMachine):
    """The arena against a dict of reference counts."""

    def __init__(self) -> None:
        super().__init__()
        self.arena = Arena(8 * MIB)
        self.counts: dict[int, int] = {}
        self.seen: dict[int, Segment] = {}

    @rule(size=st.integers(0, 3 * MIB))
    def allocate(self, size: int) -> None:
        try:
            segment = self.arena.allocate(size)
        except TryAgain:
            return
        assert segment.id not in self.counts
        assert self.seen.setdefault(segment.id, segment) is segment
        assert segment.nbytes >= size
        self.counts[segment.id] = 1

    @precondition(lambda self: self.counts)
    @rule(data=st.data())
    def retain(self, data: st.DataObject) -> None:
        ident = data.draw(st.sampled_from(sorted(self.counts)))
        self.arena.retain(ident)
        self.counts[ident] += 1

    @precondition(lambda self: self.counts)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        ident = data.draw(st.sampled_from(sorted(self.counts)))
        self.arena.release(ident)
        self.counts[ident] -= 1
        if not self.counts[ident]:
            del self.counts[ident]

    @invariant()
    def sums_are_right(self) -> None:
        assert self.arena.used == sum(self.seen[ident].nbytes for ident in self.counts)
        assert self.arena.used + self.arena.warm <= 8 * MIB
        assert all(self.arena.segment(ident).fd >= 0 for ident in self.counts)

    def teardown(self) -> None:
        self.arena.close()


TestLedger = Ledger.TestCase


def passed_on(segment: Segment) -> int:
    """A descriptor of `segment`, as another process would receive it."""
    return os.dup(segment.fd)


def test_an_adopted_segment_is_never_recycled() -> None:
    old, arena = Arena(1 << 20).allocate(8), Arena(1 << 20)
    discarded: list[int] = []
    arena.on_discard.append(discarded.append)
    segment = arena.adopt(passed_on(old))
    arena.release(segment.id)
    assert discarded == [segment.id]
    assert arena.warm == arena.used == 0


def test_only_sealed_memory_is_adopted(tmp_path: Path) -> None:
    arena = Arena(1 << 20)
    unsealed = os.memfd_create("x", os.MFD_ALLOW_SEALING)
    os.ftruncate(unsealed, 1 << 16)
    for fd in (unsealed, os.open(tmp_path, os.O_RDONLY)):
        with pytest.raises(DataError, match="isn't a sealed segment"):
            arena.adopt(fd)
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(fd)


def test_memory_of_one_client_is_never_shown_to_another(arena: Arena) -> None:
    first = arena.allocate(GRAIN, "me")
    first.array((GRAIN,), "u1")[:] = 7
    arena.release(first.id)

    assert not arena.allocate(GRAIN, "you").array((GRAIN,), "u1").any()
    assert arena.allocate(GRAIN, "me") is first
