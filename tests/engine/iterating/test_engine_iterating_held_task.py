"""Segments stay while a thread may use them, and no longer."""

from __future__ import annotations

import pytest

from hetsched.engine.iterating.held_task import HeldTask
from hetsched.errors import Cancelled


class Releases:
    """Counts releases; functions for the loop's thread are called at once."""

    def __init__(self) -> None:
        self.count = 0
        self.task = HeldTask(self.release, lambda function: function())

    def release(self) -> None:
        self.count += 1


def test_the_end_of_the_thread_releases_once() -> None:
    held = Releases()
    assert held.task.run(lambda: 3) == 3
    held.task.answered()
    assert held.count == 1


def test_a_task_that_was_never_started_is_released_by_its_answer() -> None:
    held = Releases()
    held.task.answered()
    held.task.answered()
    with pytest.raises(Cancelled):
        held.task.run(lambda: 3)
    assert held.count == 1


def test_a_task_that_was_given_up_is_released_by_its_thread() -> None:
    held = Releases()

    def work() -> int:
        held.task.answered()
        return held.count

    assert held.task.run(work) == 0
    assert (held.count, held.task.is_given_up) == (1, True)
