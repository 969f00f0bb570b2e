"""Variants that can't be prepared: for which jobs, and for how long, they aren't used."""

from __future__ import annotations

from typing import Any

from faulty_workload import Faulty

from hetsched.device import DeviceInfo
from hetsched.engine.health.failure_tally import FIRST_BAR_SECONDS
from hetsched.engine.planning.variant_catalog import VariantCatalog

INFO = DeviceInfo(name="cpu0", kind="cpu", identity="x")


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class FakeJob:
    """What the catalog needs of a job: a workload and `units` as its only parameter."""

    reference = "faulty_workload:Faulty"

    def __init__(self, units: int) -> None:
        self.workload = Faulty()
        self.params = Faulty.Params(units=units)


def job(units: int) -> Any:
    return FakeJob(units)


def names(catalog: VariantCatalog, units: int) -> list[str]:
    return [variant.name for variant in catalog.usable(job(units), INFO)]


def test_a_variant_that_cannot_be_prepared_serves_jobs_with_other_parameters() -> None:
    catalog = VariantCatalog(Clock())

    catalog.exclude(job(3), INFO, "numpy", "3 units are too few")

    assert names(catalog, 3) == []
    assert names(catalog, 4) == ["numpy"]
    assert catalog.reasons(job(3), INFO) == ["3 units are too few"]
    assert catalog.reasons(job(4), INFO) == []


def test_after_three_kinds_of_parameters_it_is_taken_to_be_broken() -> None:
    catalog = VariantCatalog(Clock())

    for units in (1, 2, 3):
        catalog.exclude(job(units), INFO, "numpy", "no library")

    assert names(catalog, 4) == []
    assert catalog.reasons(job(4), INFO) == ["no library"]


def test_a_preparation_that_succeeds_shows_that_it_is_not_broken() -> None:
    catalog = VariantCatalog(Clock())
    for units in (1, 2, 4, 3):
        if units == 4:
            catalog.succeed(job(units), INFO, "numpy")
        else:
            catalog.exclude(job(units), INFO, "numpy", "no library")

    assert names(catalog, 4) == ["numpy"]
    assert names(catalog, 1) == []


def test_it_is_tried_again_after_a_minute_then_after_two() -> None:
    clock = Clock()
    catalog = VariantCatalog(clock)
    catalog.exclude(job(3), INFO, "numpy", "no memory")

    clock.now = FIRST_BAR_SECONDS
    assert names(catalog, 3) == ["numpy"]
    catalog.exclude(job(3), INFO, "numpy", "no memory")

    clock.now = 2.9 * FIRST_BAR_SECONDS
    assert names(catalog, 3) == []
    clock.now = 3 * FIRST_BAR_SECONDS
    assert names(catalog, 3) == ["numpy"]
