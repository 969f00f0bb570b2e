from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetsched.engine.failures import (
    FIRST_BAR_SECONDS,
    MAX_BAR_SECONDS,
    MAX_FAILURES,
    Failures,
    VariantKey,
)
from hetsched.errors import plug_in_error

DEVICES = ("gpu0", "cpu0")
VARIANT: VariantKey = ("cpu", "m:toy", "numpy")


def died(times: int, *kinds: str, failures: Failures | None = None) -> Failures:
    """gpu0's process has died at second 0 for the kinds in turn, which run well on cpu0."""
    failures = failures or Failures()
    for index in range(times):
        kind = kinds[index % len(kinds)]
        failures.note_success("cpu0", kind)
        failures.fail_device("gpu0", kind, "SIGSEGV", 0.0, is_death=True, devices=DEVICES)
    return failures


def test_an_error_of_a_plug_in_is_one_line() -> None:
    error = plug_in_error("planning", ValueError("first\n  second"))
    assert str(error) == "planning failed: ValueError: first second"


def test_after_three_failures_a_device_takes_no_more_jobs_of_that_kind() -> None:
    failures = died(MAX_FAILURES, "fft")

    assert "takes no jobs of kind fft" in failures.reason_against("gpu0", "fft", 1.0)
    assert failures.reason_against("gpu0", "matrix_update", 1.0) == ""
    assert failures.reason_against("cpu0", "fft", 1.0) == ""
    assert failures.restricted(1.0) == {"gpu0": failures.reason_against("gpu0", "fft", 1.0)}
    assert failures.quarantined(1.0) == {}


def test_deaths_in_kinds_that_run_well_elsewhere_quarantine_a_device() -> None:
    failures = died(MAX_FAILURES, "fft", "matrix_update")

    for kind in ("fft", "matrix_update", "jacobi"):
        assert "quarantined" in failures.reason_against("gpu0", kind, 1.0)
    (reason,) = failures.quarantined(1.0).values()
    assert "(the last: SIGSEGV); it is tried again in 59 s" in reason


def test_deaths_in_kinds_that_run_well_nowhere_quarantine_none() -> None:
    failures = Failures()
    for kind in ("one", "other") * MAX_FAILURES:
        failures.note_success("gpu0", kind)
        failures.fail_device("gpu0", kind, "SIGSEGV", 0.0, is_death=True, devices=DEVICES)

    assert failures.quarantined(1.0) == {}


def test_a_device_is_tried_again_and_barred_for_longer_if_it_fails_again() -> None:
    failures = died(MAX_FAILURES, "fft")
    assert failures.reason_against("gpu0", "fft", FIRST_BAR_SECONDS) == ""

    failures.fail_device("gpu0", "fft", "died", FIRST_BAR_SECONDS)

    assert failures.reason_against("gpu0", "fft", FIRST_BAR_SECONDS * 2.9) != ""
    assert failures.reason_against("gpu0", "fft", FIRST_BAR_SECONDS * 3.0) == ""


Steps = st.lists(
    st.tuples(
        st.sampled_from(["fail", "succeed", "wait"]),
        st.sampled_from(DEVICES),
        st.sampled_from(["fft", "jacobi", "lbm"]),
        st.floats(0.1, 1e5),
    ),
    max_size=60,
)


@given(Steps)
def test_whatever_happens_a_device_works_and_all_are_tried_again_within_a_day(
    steps: list[tuple[str, str, str, float]],
) -> None:
    failures, now = Failures(), 0.0
    for action, device, kind, seconds in steps:
        if action == "fail":
            failures.fail_device(device, kind, "died", now, is_death=True, devices=DEVICES)
        elif action == "succeed":
            failures.note_success(device, kind)
            failures.succeed(device, kind)
        else:
            now += seconds
        assert len(failures.quarantined(now)) < len(DEVICES)

    later = now + MAX_BAR_SECONDS
    assert failures.quarantined(later) == failures.restricted(later) == {}


@pytest.mark.parametrize(
    ("failed", "succeeded", "reasons"),
    [
        ("3", "", {"3": "no library", "4": ""}),
        ("123", "", {"4": "no library"}),  # it is taken to be broken
        ("12", "4", {"1": "no library", "4": ""}),
    ],
)
def test_a_variant_is_barred_from_parameters_with_which_it_fails_and_at_three_from_all(
    failed: str, succeeded: str, reasons: dict[str, str]
) -> None:
    failures = Failures()
    for params in failed:
        failures.fail_variant(VARIANT, params, "no library", 0.0)
    for params in succeeded:
        failures.succeed(VARIANT, params)
        failures.fail_variant(VARIANT, "3", "no library", 0.0)

    assert {each: failures.reason_against(VARIANT, each, 0.0) for each in reasons} == reasons
