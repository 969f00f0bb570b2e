from __future__ import annotations

import threading

import numpy as np
import pytest

from hetsched.transport.control import (
    Aborted,
    EpochDecision,
    IterationControl,
    control_words,
)

SLOTS = 3


@pytest.fixture(params=[0.0, 50e-6], ids=["sleeping", "spinning"])
def control(request: pytest.FixtureRequest) -> IterationControl:
    words = np.zeros(control_words(SLOTS), np.int32)
    control = IterationControl(words, request.param)
    control.begin()
    return control


def test_nobody_is_ahead_of_the_others(control: IterationControl) -> None:
    seen: list[int] = []

    def work(slot: int) -> None:
        for round_number in range(1, 200):
            count = control.arrive(slot)
            assert control.wait_for(range(SLOTS), count, 60.0)
            seen.append(min(control.arrivals(other) for other in range(SLOTS)) - round_number)

    threads = [threading.Thread(target=work, args=(slot,)) for slot in range(SLOTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert len(seen) == 199 * SLOTS
    assert min(seen) >= 0
    assert max(seen) <= 1


def test_an_abort_wakes_those_that_wait(control: IterationControl) -> None:
    ends: list[str] = []

    def work() -> None:
        try:
            control.wait_for(range(SLOTS), control.arrive(0), 60.0)
        except Aborted:
            ends.append("aborted")

    thread = threading.Thread(target=work)
    thread.start()
    control.abort()
    thread.join(60)

    assert ends == ["aborted"]


def test_an_abort_stops_nobody_at_a_moment_that_all_have_reached(
    control: IterationControl,
) -> None:
    for slot in range(SLOTS):
        control.arrive(slot)
    control.abort()

    assert control.wait_for(range(SLOTS), 1)
    with pytest.raises(Aborted):
        control.wait_for(range(SLOTS), 2)


def test_paced_devices_wait_until_they_are_allowed(control: IterationControl) -> None:
    control.allow(2)

    assert control.wait_until_allowed(2)
    assert not control.wait_until_allowed(3)
    control.abort()
    with pytest.raises(Aborted):
        control.wait_until_allowed(3)


def test_a_decision_holds_for_its_iteration_only(control: IterationControl) -> None:
    control.decide(1)
    number = control.propose((0, 5, 5, 1 << 40))
    control.decide(2)
    control.pause()
    control.decide(3)

    assert control.decision(2) == EpochDecision(1, pause=False)
    assert control.decision(3) == EpochDecision(1, pause=True)
    assert control.bounds(number, 3) == (0, 5, 5, 1 << 40)


def test_rows_that_are_not_home_send_devices_back_to_what_all_have_saved(
    control: IterationControl,
) -> None:
    control.begin(3)
    for slot in (0, 1):
        control.finish(slot, 5, is_home=slot == 0)
        control.save(slot, 3)
    assert (control.finished((0, 1)), control.saved((0, 1))) == (5, 3)

    control.come_home(1, 5)
    control.save(0, 5)
    assert control.saved((0, 1)) is None
