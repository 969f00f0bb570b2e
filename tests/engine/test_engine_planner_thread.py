"""Work on the planner's thread, and at once."""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from hetsched.engine.planning.planner_thread import PAUSE, Worker, here
from hetsched.transport.loop import Loop


@pytest.fixture
def loop() -> Iterator[Loop]:
    loop = Loop()
    yield loop
    loop.close()


class Heavy:
    """Something whose end can be seen."""


def fails_with(thing: Heavy) -> None:
    raise ValueError(f"with {thing}")


def test_a_worker_runs_elsewhere_in_order_and_answers_on_the_loop(loop: Loop) -> None:
    worker, answers = Worker(loop), list[Any]()
    for number in range(3):
        worker.do(
            functools.partial(lambda number: (number, threading.current_thread().name), number),
            lambda value, error: answers.append((value, threading.current_thread().name)),
        )
    worker.do(lambda: None, lambda value, error: loop.stop())

    loop.run()
    worker.close()

    own = threading.current_thread().name
    assert answers == [((number, "planner"), own) for number in range(3)]


def never() -> bool:
    return False


def test_what_has_time_waits_on_while_it_would_disturb(loop: Loop) -> None:
    worker, busy, seen = Worker(loop), [True], list[int]()

    def look() -> None:
        seen.append(worker.behind)
        busy.clear()
        worker.do_later(loop.stop, unless=lambda: bool(busy))

    worker.do_later(lambda: seen.append(-1), unless=lambda: bool(busy))
    loop.later(10 * PAUSE, look)

    loop.run()
    worker.close()

    assert seen == [1, -1]


def test_what_has_time_comes_before_what_is_asked_for_after_it(loop: Loop) -> None:
    worker, done = Worker(loop), list[str]()
    worker.do_later(lambda: done.append("later"), unless=never)
    worker.do(lambda: done.append("now"), lambda value, error: loop.stop())

    loop.run()
    worker.close()

    assert done == ["later", "now"]


@pytest.mark.parametrize("closing", [False, True])
def test_what_has_time_is_done_in_the_end(loop: Loop, closing: bool) -> None:
    worker, done = Worker(loop), list[str]()
    worker.do_later(lambda: done.append("later"), unless=never)
    if not closing:
        worker.do_later(loop.stop, unless=never)
        loop.run()

    worker.close()

    assert done == ["later"]


def test_what_fails_is_answered_with_its_error(loop: Loop) -> None:
    worker, errors = Worker(loop), list[BaseException | None]()
    worker.do(lambda: 1 // 0, lambda value, error: errors.append(error))
    worker.do(lambda: None, lambda value, error: loop.stop())

    loop.run()
    worker.close()

    assert isinstance(errors[0], ZeroDivisionError)


def test_at_once_means_on_this_thread() -> None:
    answers = list[Any]()

    here(threading.current_thread, lambda value, error: answers.append((value, error)))
    here(lambda: 1 // 0, lambda value, error: answers.append((value, type(error))))

    assert answers == [(threading.current_thread(), None), (None, ZeroDivisionError)]


def test_a_failure_keeps_nothing_alive() -> None:
    things = [Heavy()]
    seen = weakref.ref(things[0])
    failures = list[str]()

    here(lambda: fails_with(things.pop()), lambda value, error: failures.append(str(error)))

    assert failures
    assert seen() is None, "an exception and its frame hold each other"
