"""Failures and successes of devices, and who may work for what."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hetsched.engine.health.device_health import MAX_TALLIES, DeviceHealth
from hetsched.engine.health.failure_tally import (
    FIRST_BAR_SECONDS,
    MAX_BAR_SECONDS,
    MAX_FAILURES,
    bar_seconds,
)


def failed(times: int, *kinds: str, health: DeviceHealth | None = None) -> DeviceHealth:
    """A device gpu0 that has failed at second 0 for the kinds in turn."""
    health = health or DeviceHealth()
    for index in range(times):
        health.fail("gpu0", kinds[index % len(kinds)], "ended by SIGSEGV", 0.0)
    return health


def barred(health: DeviceHealth, now: float) -> set[str]:
    return {*health.quarantined(now), *health.restricted(now)}


def test_after_three_failures_a_device_takes_no_more_jobs_of_that_kind() -> None:
    health = failed(MAX_FAILURES, "fft")

    assert "takes no jobs of kind fft" in health.reason_against("gpu0", "fft", 1.0)
    assert health.reason_against("gpu0", "matrix_update", 1.0) == ""
    assert health.reason_against("cpu0", "fft", 1.0) == ""
    assert health.restricted(1.0) == {"gpu0": health.reason_against("gpu0", "fft", 1.0)}
    assert health.quarantined(1.0) == {}


def test_two_failures_change_nothing() -> None:
    assert barred(failed(MAX_FAILURES - 1, "fft"), 0.0) == set()


def test_failures_in_different_kinds_quarantine_a_device() -> None:
    health = failed(MAX_FAILURES, "fft", "matrix_update")

    for kind in ("fft", "matrix_update", "jacobi"):
        assert "quarantined" in health.reason_against("gpu0", kind, 1.0)
    (reason,) = health.quarantined(1.0).values()
    assert "(the last: ended by SIGSEGV); it is tried again in 59 s" in reason


def test_a_failure_that_bars_a_device_is_reported_once() -> None:
    health = failed(MAX_FAILURES - 1, "fft")

    assert "takes no jobs of kind fft" in health.fail("gpu0", "fft", "died", 0.0)
    assert "quarantined" in health.fail("gpu0", "jacobi", "died", 0.0)
    assert health.fail("cpu0", "fft", "died", 0.0) == ""


def test_a_device_is_tried_again_and_barred_for_longer_if_it_fails_again() -> None:
    health = failed(MAX_FAILURES, "fft")
    assert health.reason_against("gpu0", "fft", FIRST_BAR_SECONDS) == ""

    health.fail("gpu0", "fft", "died", FIRST_BAR_SECONDS)

    assert health.reason_against("gpu0", "fft", FIRST_BAR_SECONDS * 2.9) != ""
    assert health.reason_against("gpu0", "fft", FIRST_BAR_SECONDS * 3.0) == ""


def test_successes_are_forgotten_failures() -> None:
    health = failed(MAX_FAILURES - 1, "fft")

    health.succeed(["gpu0"], "fft")
    failed(1, "fft", health=health)

    assert barred(health, 0.0) == set()
    for _ in range(3):
        health.succeed(["gpu0", "cpu0"], "fft")
    assert health.is_perfect


def test_a_success_in_one_kind_does_not_excuse_another() -> None:
    health = failed(MAX_FAILURES, "fft")

    health.succeed(["gpu0"], "matrix_update")

    assert health.reason_against("gpu0", "fft", 1.0) != ""


def test_a_probe_gives_every_device_another_chance() -> None:
    health = failed(MAX_FAILURES, "fft", "jacobi")

    health.forget()

    assert health.is_perfect
    assert barred(health, 0.0) == set()


def test_what_is_remembered_is_bounded() -> None:
    health = DeviceHealth()
    for number in range(2 * MAX_TALLIES):
        health.fail("gpu0", f"kind {number}", "died", 0.0)

    assert len(health._by_kind) == MAX_TALLIES
    assert len(health._by_device["gpu0"].kinds) < 100


@given(st.integers(0, 10_000))
def test_a_device_is_barred_for_twice_as_long_each_time(times: int) -> None:
    assert bar_seconds(times + 1) == min(2 * bar_seconds(times), MAX_BAR_SECONDS)


Steps = st.lists(
    st.tuples(
        st.sampled_from(["fail", "succeed", "wait"]),
        st.sampled_from(["a", "b"]),
        st.sampled_from(["fft", "jacobi", "lbm"]),
        st.floats(0.1, 1e5),
    ),
    max_size=60,
)


@given(Steps)
def test_whatever_happens_a_device_is_tried_again_within_a_day(
    steps: list[tuple[str, str, str, float]],
) -> None:
    health, now = DeviceHealth(), 0.0
    for action, device, kind, seconds in steps:
        if action == "fail":
            health.fail(device, kind, "died", now)
        elif action == "succeed":
            health.succeed([device], kind)
        else:
            now += seconds

    assert barred(health, now + MAX_BAR_SECONDS) == set()


@given(Steps)
def test_fewer_than_three_failures_never_bar_a_device(
    steps: list[tuple[str, str, str, float]],
) -> None:
    health, failures = DeviceHealth(), 0
    for action, _, kind, _ in steps:
        if action == "fail" and failures < MAX_FAILURES - 1:
            failures += 1
            health.fail("a", kind, "died", 0.0)
        elif action == "succeed":
            health.succeed(["a"], kind)

    assert barred(health, 0.0) == set()


@given(Steps)
def test_a_device_that_always_succeeds_is_never_barred(
    steps: list[tuple[str, str, str, float]],
) -> None:
    health, now = DeviceHealth(), 0.0
    for action, _, kind, seconds in steps:
        now += seconds
        if action == "fail":
            health.fail("bad", kind, "died", now)
        else:
            health.succeed(["good"], kind)

    assert "good" not in barred(health, now)


def test_kernels_that_cannot_be_run_never_quarantine_a_device() -> None:
    health = DeviceHealth()

    for kind in ("fft", "jacobi", "mandelbrot") * MAX_FAILURES:
        health.fail("gpu0", kind, "not supported", 0.0, is_death=False)

    assert "takes no jobs" in health.reason_against("gpu0", "fft", 1.0)
    assert health.quarantined(1.0) == {}
