"""Sessions and segments leave descriptors for the daemon itself."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from hetsched.daemon.limits.descriptor_budget import (
    MIN_SEGMENTS,
    MIN_SESSIONS,
    PER_SESSION,
    RESERVE,
    DescriptorBudget,
)
from hetsched.errors import ConfigError, TryAgain


@given(
    st.integers(50, 300),
    st.integers(1, 30),
    st.lists(st.sampled_from(["session", "segment", "close", "free"]), max_size=300),
)
def test_whatever_clients_do_the_reserve_stays(limit: int, own: int, steps: list[str]) -> None:
    assume(limit >= own + RESERVE + PER_SESSION * MIN_SESSIONS + MIN_SEGMENTS)
    budget, sessions, segments = DescriptorBudget(limit, own), 0, 0
    for step in steps:
        if step == "session":
            try:
                budget.check_session(sessions, segments)
                sessions += 1
            except TryAgain:
                assert sessions >= MIN_SESSIONS
        elif step == "segment" and segments < budget.max_segments(sessions):
            segments += 1
        elif step == "close":
            sessions = max(0, sessions - 1)
        elif step == "free":
            segments = max(0, segments - 1)

        assert own + PER_SESSION * sessions + segments + RESERVE <= limit


def test_segments_leave_room_for_sessions() -> None:
    budget = DescriptorBudget(64, 25)
    budget.check_session(0, budget.max_segments(0))


def test_too_few_descriptors_for_any_work_are_an_error_of_the_configuration() -> None:
    with pytest.raises(ConfigError, match=r"32 descriptors \(RLIMIT_NOFILE\) are too few"):
        DescriptorBudget(32, 25)


def test_a_refusal_names_the_limit() -> None:
    with pytest.raises(TryAgain, match=r"limit of 64 descriptors \(RLIMIT_NOFILE\)"):
        DescriptorBudget(64, 25).check_session(10, 10)


def test_idle_sessions_leave_room_for_the_arrays_of_a_job() -> None:
    budget, sessions = DescriptorBudget(64, 25), 0
    with pytest.raises(TryAgain):
        while True:
            budget.check_session(sessions, 0)
            sessions += 1

    assert budget.max_segments(sessions) >= MIN_SEGMENTS
