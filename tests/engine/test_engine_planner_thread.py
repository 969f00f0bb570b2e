"""Work on the planner's thread, and work done synchronously."""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from hetsched.engine.planning.planner_thread import (
    MAX_HANGING,
    PlannerThread,
    run_inline,
)
from hetsched.errors import JobFailed
from hetsched.transport.loop import Loop

PATIENCE = 60.0


@pytest.fixture
def loop() -> Iterator[Loop]:
    loop = Loop()
    yield loop
    loop.close()


class Heavy:
    """Something whose end can be seen."""


def fails_with(argument: Heavy) -> None:
    raise ValueError(f"with {argument}")


def test_a_worker_runs_elsewhere_in_order_and_answers_on_the_loop(loop: Loop) -> None:
    thread, answers = PlannerThread(loop), list[Any]()
    for number in range(3):
        thread.submit(
            functools.partial(lambda number: (number, threading.current_thread().name), number),
            lambda value, error: answers.append((value, threading.current_thread().name)),
        )
    thread.submit(lambda: None, lambda value, error: loop.stop())

    loop.run()
    thread.close()

    loop_thread = threading.current_thread().name
    assert answers == [((number, "planner"), loop_thread) for number in range(3)]


def test_what_fails_is_answered_with_its_error(loop: Loop) -> None:
    thread, errors = PlannerThread(loop), list[BaseException | None]()
    thread.submit(lambda: 1 // 0, lambda value, error: errors.append(error))
    thread.submit(lambda: None, lambda value, error: loop.stop())

    loop.run()
    thread.close()

    assert isinstance(errors[0], ZeroDivisionError)


def test_at_once_means_on_this_thread() -> None:
    answers = list[Any]()

    run_inline(threading.current_thread, lambda value, error: answers.append((value, error)))
    run_inline(lambda: 1 // 0, lambda value, error: answers.append((value, type(error))))

    assert answers == [(threading.current_thread(), None), (None, ZeroDivisionError)]


def test_a_failure_keeps_nothing_alive() -> None:
    objects = [Heavy()]
    seen = weakref.ref(objects[0])
    failures = list[str]()

    run_inline(lambda: fails_with(objects.pop()), lambda value, error: failures.append(str(error)))

    assert failures
    assert seen() is None, "an exception and its frame hold each other"


def hang(released: threading.Event) -> None:
    released.wait()


def test_a_function_that_hangs_fails_and_its_thread_is_replaced(loop: Loop) -> None:
    thread, released = PlannerThread(loop, deadline=0.02), threading.Event()
    answers = list[Any]()

    def on_given_up(value: None, error: BaseException | None) -> None:
        answers.append(error)
        thread._deadline = PATIENCE  # what follows may take as long as this machine needs

    thread.submit(lambda: hang(released), on_given_up)
    thread.submit(lambda: "next", lambda value, error: (answers.append(value), loop.stop()))  # type: ignore[func-returns-value]

    loop.run()

    assert isinstance(answers[0], JobFailed)
    assert "planning hasn't finished within 0.02 s" in str(answers[0])
    assert answers[1] == "next"
    assert not thread.close(0.0)
    released.set()
    for hanging in thread._hanging:
        hanging.join(PATIENCE)
    assert thread.close(PATIENCE)


def test_when_too_many_functions_hang_others_fail_at_once(loop: Loop) -> None:
    thread, released = PlannerThread(loop, deadline=0.01), threading.Event()
    errors = list[BaseException | None]()
    count = MAX_HANGING + 3
    for _ in range(count):
        thread.submit(
            lambda: hang(released),
            lambda value, error: (errors.append(error), len(errors) == count and loop.stop()),  # type: ignore[func-returns-value]
        )

    loop.run()
    thread.submit(lambda: "never", lambda value, error: errors.append(error))
    released.set()

    assert [type(error) for error in errors] == [JobFailed] * (count + 1)


def test_planning_goes_on_once_the_threads_that_hung_have_ended(loop: Loop) -> None:
    thread, released = PlannerThread(loop, deadline=0.01), threading.Event()
    count = MAX_HANGING + 1
    errors = list[BaseException | None]()
    for _ in range(count):
        thread.submit(
            lambda: hang(released),
            lambda value, error: (errors.append(error), len(errors) == count and loop.stop()),  # type: ignore[func-returns-value]
        )
    loop.run()
    released.set()
    for hanging in thread._hanging:
        hanging.join(PATIENCE)

    answers = list[Any]()
    loop._stopping = False
    thread._deadline = PATIENCE
    thread.submit(lambda: "next", lambda value, error: (answers.append(value), loop.stop()))  # type: ignore[func-returns-value]
    loop.run()

    assert answers == ["next"]
    assert thread.close(PATIENCE)
