from hypothesis import given
from hypothesis import strategies as st

from hetsched.transport.timers import MAX_CANCELLED, Timer, TimerQueue


def nothing() -> None:
    """Do nothing."""


def test_timers_come_in_the_order_of_their_times_then_of_their_age() -> None:
    queue = TimerQueue()
    calls: list[str] = []
    for name, due in (("b", 2.0), ("a", 1.0), ("c", 2.0)):
        queue.add(due, lambda name=name: calls.append(name))  # type: ignore[misc]

    while (timer := queue.pop_due(2.0)) is not None:
        timer[1]()

    assert calls == ["a", "b", "c"]


def test_a_timer_that_is_not_due_stays() -> None:
    queue = TimerQueue()
    queue.add(5.0, nothing)

    assert queue.pop_due(4.9) is None
    assert queue.next_due() == 5.0


def test_cancelling_a_timer_that_was_due_changes_nothing() -> None:
    queue = TimerQueue()
    timer = queue.add(1.0, nothing)
    queue.pop_due(1.0)
    timer.cancel()
    queue.add(2.0, nothing)

    assert not timer.is_pending
    assert len(queue) == 1


def test_cancelled_timers_do_not_accumulate() -> None:
    queue = TimerQueue()
    queue.add(1.0, nothing)
    for number in range(100_000):
        queue.add(1e9 + number, nothing).cancel()

    assert len(queue._heap) <= 2 * MAX_CANCELLED + 2


@given(st.lists(st.tuples(st.sampled_from(["add", "cancel", "pop"]), st.integers(0, 9))))
def test_a_queue_behaves_like_a_sorted_list(steps: list[tuple[str, int]]) -> None:
    queue = TimerQueue()
    model: list[tuple[float, int, Timer]] = []
    for index, (step, value) in enumerate(steps):
        if step == "add":
            model.append((value, index, queue.add(value, nothing)))
        elif step == "cancel" and model:
            model.pop(value % len(model))[2].cancel()
        elif step == "pop":
            due = min((entry for entry in model if entry[0] <= value), default=None)
            popped = queue.pop_due(value)
            assert (popped is None) == (due is None)
            if popped is not None and due is not None:
                assert popped[0] == due[0]
                assert not due[2].is_pending
                model.remove(due)
        assert len(queue) == len(model)
        assert queue.next_due() == min((entry[0] for entry in model), default=None)
