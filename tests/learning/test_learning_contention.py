"""Simulated devices that slow each other down."""

import pytest

from benchmarks.learning.contention import progress_of


def test_a_device_regains_its_pace_when_its_neighbour_is_done() -> None:
    kept = {"gpu0": 0.5, "cpu0": 1.0}

    progress = progress_of(
        {"gpu0": 3.0, "cpu0": 2.0}, lambda device, others: kept[device] if others else 1.0
    )

    assert progress["cpu0"] == [(0.0, 0.0), (2.0, 2.0)]
    assert progress["gpu0"] == [(0.0, 0.0), (2.0, 1.0), (4.0, 3.0)]


def test_devices_that_share_nothing_keep_their_times() -> None:
    progress = progress_of({"cpu0": 1.0, "cpu1": 2.5}, lambda device, others: 1.0)

    assert [steps[-1] for steps in progress.values()] == [
        pytest.approx((1.0, 1.0)),
        pytest.approx((2.5, 2.5)),
    ]
