"""How often a job is retried, and on which devices."""

from __future__ import annotations

from hetsched.engine.failures import MAX_FAILURES
from hetsched.engine.job.events import DevicesLost
from hetsched.engine.job.retries.device_failures import MAX_DEATHS, DeviceFailures
from hetsched.engine.job.retries.retry_policy import MAX_ATTEMPTS, RetryCounts
from hetsched.engine.job.stages.failures import loss_note


def test_a_job_fails_after_its_last_attempt_with_the_last_reason() -> None:
    counts = RetryCounts().with_reason("a device went")
    for _ in range(MAX_ATTEMPTS):
        counts = counts.with_attempt()
        assert counts.attempts_error() is None

    error = counts.with_attempt().attempts_error()

    assert str(error) == f"gave up after {MAX_ATTEMPTS} attempts: a device went"


def test_attempts_after_a_death_are_limited_by_the_devices_only() -> None:
    counts = RetryCounts()
    for _ in range(10 * MAX_ATTEMPTS):
        counts = counts.with_attempt().with_death()

    assert counts.attempts_error() is None


def test_many_lost_cores_are_counted_in_the_note() -> None:
    cores = tuple(f"cpu{i}" for i in range(16))

    note = loss_note(DevicesLost(cores, "ended by SIGKILL", frozenset()))

    assert note.startswith("the process of cpu (16) died, ended by SIGKILL:")


def test_a_device_is_excluded_after_its_last_death() -> None:
    failures = DeviceFailures()
    for _ in range(MAX_FAILURES - 1):
        failures.record_death({"cpu0": 0}, "ended by SIGSEGV")
    assert failures.remaining(["cpu0", "cpu1"]) == ("cpu0", "cpu1")

    failures.record_death({"cpu0": 0}, "ended by SIGSEGV")

    assert failures.remaining(["cpu0", "cpu1"]) == ("cpu1",)
    assert not failures.excludes_all(["cpu0", "cpu1"])
    assert failures.excludes_all(["cpu0"])


def test_a_device_that_gets_on_between_deaths_is_used_for_longer() -> None:
    failures = DeviceFailures()
    for death in range(MAX_DEATHS - 1):
        failures.record_death({"cpu0": death}, "ended by SIGKILL")
        assert not failures.has_progressed("cpu0", death)
        assert failures.excluded == {}

    failures.record_death({"cpu0": MAX_DEATHS}, "ended by SIGKILL")

    assert failures.excluded == {"cpu0": "its process died 20 times: ended by SIGKILL"}


def test_without_a_culprit_every_busy_device_may_have_caused_a_death() -> None:
    failures = DeviceFailures()
    lost = ["cpu0", "cpu1", "cpu2"]

    assert failures.responsible(lost, ["cpu0", "cpu2", "gpu0"]) == ["cpu0", "cpu2"]
    failures.culprits.update(["cpu2", "gpu0"])
    assert failures.responsible(lost, ["cpu0", "cpu2"]) == ["cpu2"]
