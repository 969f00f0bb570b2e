"""When a device releases what it keeps between jobs."""

from __future__ import annotations

from typing import Any

import pytest

from hetsched.device_process.device_loop import CHECK_SECONDS, MemoryUpkeep


class Keeper:
    """A device that keeps memory until it is released."""

    def __init__(self) -> None:
        self.keeps, self.is_short = True, False

    def keeps_memory(self) -> bool:
        return self.keeps

    def is_memory_short(self) -> bool:
        return self.is_short

    def release_memory(self) -> None:
        self.keeps = False


def upkeep_of(keeper: Any, warm_for: float = 60.0) -> MemoryUpkeep:
    return MemoryUpkeep(keeper, warm_for)


def test_memory_is_released_after_a_time_without_jobs() -> None:
    keeper = Keeper()
    upkeep = upkeep_of(keeper, warm_for=2.5)

    assert upkeep.seconds_to_check(10.0) == CHECK_SECONDS
    assert not upkeep.check(11.0)
    assert upkeep.seconds_to_check(12.0) == 0.5
    assert upkeep.check(12.5)
    assert not keeper.keeps
    assert upkeep.seconds_to_check(12.5) is None


def test_a_job_starts_the_time_again() -> None:
    keeper = Keeper()
    upkeep = upkeep_of(keeper)

    upkeep.seconds_to_check(10.0)
    upkeep.on_busy()
    upkeep.seconds_to_check(69.0)

    assert not upkeep.check(71.0)


def test_memory_is_released_at_once_when_others_need_it() -> None:
    keeper = Keeper()
    upkeep = upkeep_of(keeper)
    keeper.is_short = True

    upkeep.seconds_to_check(10.0)

    assert upkeep.check(11.0)
    assert not keeper.keeps


def test_memory_that_can_t_be_released_isn_t_tried_without_a_pause() -> None:
    class FailingKeeper(Keeper):
        def release_memory(self) -> None:
            raise RuntimeError("the driver refuses")

    upkeep = upkeep_of(FailingKeeper(), warm_for=0.0)
    assert upkeep.seconds_to_check(10.0) == 0.0

    with pytest.raises(RuntimeError):
        upkeep.check(10.0)

    assert upkeep.seconds_to_check(10.0) == CHECK_SECONDS
