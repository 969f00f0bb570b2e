"""How often a job is started again."""

from __future__ import annotations

from hetsched.engine.job.retry_policy import MAX_ATTEMPTS, MAX_DEATHS, Patience


def test_it_lasts_for_so_many_starts_and_then_says_why_the_last_one_was_needed() -> None:
    patience = Patience()
    assert [patience.start() for _ in range(MAX_ATTEMPTS)] == [None] * MAX_ATTEMPTS
    patience.again("a device went")

    given_up = patience.start()

    assert str(given_up) == f"given up after {MAX_ATTEMPTS} starts: a device went"


def test_it_ends_with_a_death_too_many() -> None:
    patience = Patience()
    assert [patience.death("signal 9") for _ in range(MAX_DEATHS - 1)] == [None] * (MAX_DEATHS - 1)

    assert str(patience.death("signal 11")) == (
        f"its device processes died {MAX_DEATHS} times: signal 11"
    )
