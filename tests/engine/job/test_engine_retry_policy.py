"""How often a job is retried."""

from __future__ import annotations

from hetsched.engine.job.retry_policy import MAX_ATTEMPTS, MAX_DEATHS, RetryCounts, loss_note


def test_a_job_fails_after_its_last_attempt_with_the_last_reason() -> None:
    counts = RetryCounts().with_reason("a device went")
    for _ in range(MAX_ATTEMPTS):
        counts = counts.with_attempt()
        assert counts.attempts_error() is None

    error = counts.with_attempt().attempts_error()

    assert str(error) == f"gave up after {MAX_ATTEMPTS} attempts: a device went"


def test_a_job_whose_processes_keep_dying_fails() -> None:
    counts = RetryCounts()
    for _ in range(MAX_DEATHS - 1):
        counts = counts.with_death()
        assert counts.deaths_error("ended by SIGKILL") is None

    error = counts.with_death().deaths_error("ended by SIGKILL")

    assert str(error) == f"its device processes died {MAX_DEATHS} times: ended by SIGKILL"


def test_many_lost_cores_are_counted_in_the_note() -> None:
    note = loss_note([f"cpu{i}" for i in range(16)], "ended by SIGKILL")

    assert note.startswith("the process of cpu (16) died, ended by SIGKILL:")
