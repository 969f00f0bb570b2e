"""Filling and checking block by block."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from device_bench import Bench

from hetsched.device_process import fill_and_check
from hetsched.devices.base import HostArray
from hetsched.transport.device_messages import Check, Checked, Fill


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fill_and_check, "BLOCK_BYTES", 200)


@pytest.fixture(params=["arena", "file"])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Bench:
    made = Bench(20, folder=tmp_path if request.param == "file" else None)
    made.outputs["y"].write(0, 20, made.expected())
    return made


def verified(bench: Bench, first: int = 0, count: int = 20) -> Checked:
    arrays = bench.inputs, bench.outputs
    command = Check(1, first, count, (0, 7, 19), 3)
    steps = fill_and_check.check(bench.workload, bench.params, arrays, command)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: Checked = end.value
            return result


def fill(bench: Bench, array: HostArray, command: Fill) -> None:
    for _ in fill_and_check.fill(bench.workload, bench.params, array, command):
        pass


def corrupt(array: HostArray, unit: int, value: float) -> None:
    values = np.empty((1, 4))
    array.read(unit, 1, values)
    values[0, 2] = value
    array.write(unit, 1, values)


def test_a_right_result_passes(bench: Bench) -> None:
    assert verified(bench).worst < 1


@pytest.mark.parametrize("value", [0.0, math.nan, math.inf])
def test_a_wrong_value_is_found_with_its_unit(bench: Bench, value: float) -> None:
    corrupt(bench.outputs["y"], 7, value)

    result = verified(bench)

    assert result.unit == 7
    assert result.worst > 1 and result.sample_error > 1 and result.max_error > 0


def test_only_the_requested_units_are_checked(bench: Bench) -> None:
    corrupt(bench.outputs["y"], 12, 99.0)

    assert verified(bench, 0, 12).worst <= 1 < verified(bench, 12, 3).worst


def test_generated_units_do_not_depend_on_how_they_are_cut(bench: Bench) -> None:
    whole, parts = np.empty((20, 4)), np.empty((20, 4))
    array = bench.inputs["x"]

    fill(bench, array, Fill(1, "x", 0, 20, 5))
    array.read(0, 20, whole)
    for first in (10, 0):
        fill(bench, array, Fill(1, "x", first, 10, 5))
    array.read(0, 20, parts)

    np.testing.assert_array_equal(whole, parts)


def test_poison_is_not_a_number(bench: Bench) -> None:
    fill(bench, bench.outputs["y"], Fill(1, "y", 5, 10, 0, poison=True))

    result = bench.result()
    assert np.isnan(result[5:15]).all()
    assert np.isfinite(result[:5]).all() and np.isfinite(result[15:]).all()


def test_a_huge_mean_does_not_hide_an_error() -> None:
    reference = np.array([1e6, 1.0, -1.0, 1.0])

    by_largest, by_rest = fill_and_check.unit_errors(reference + np.eye(4)[1] / 2, reference)

    assert by_largest == 5e-7
    assert by_rest == 0.5


def test_rounding_beside_a_single_large_value_is_no_error() -> None:
    reference = np.array([1e6, 0, 0, 0])
    rounded = np.array([1e6, 0.1, 0, 0], "float32")

    _, by_rest = fill_and_check.unit_errors(rounded, reference, floor=8 / 1e-4)

    assert 0 < by_rest < 1e-4


def test_nothing_but_zeros_must_come_out_as_zeros() -> None:
    zeros = np.zeros(4)

    assert fill_and_check.unit_errors(zeros, zeros) == (0, 0)
    assert fill_and_check.unit_errors(zeros + 1e-30, zeros) == (math.inf, math.inf)


def test_what_comes_from_a_unit_that_is_not_finite_must_not_be_finite() -> None:
    assert fill_and_check.unit_errors(np.array([1.0, math.nan]), np.ones(2), finite=False) == (
        0,
        0,
    )
    assert fill_and_check.unit_errors(np.ones(2), np.ones(2), finite=False) == (math.inf, math.inf)


def test_a_value_of_cancelling_terms_counts_relative_to_them() -> None:
    reference = np.array([1e-6, 2e-6, 1e-6])
    values = reference + 1e-6 * np.eye(3)[1]

    _, unscaled = fill_and_check.unit_errors(values, reference)
    _, scaled = fill_and_check.unit_errors(values, reference, scale=np.array([1.0, 10.0, 1.0]))

    assert unscaled > 0.5
    assert scaled == pytest.approx(1e-7)


def test_the_unit_is_that_of_the_sample_where_only_that_failed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    corrupt(bench.outputs["y"], 7, 99.0)
    corrupt(bench.outputs["y"], 12, 99.0)
    monkeypatch.setattr(
        type(bench.workload), "residual", lambda *given: np.zeros(len(given[2]["x"]))
    )

    result = verified(bench)

    assert (result.worst, result.unit) == (0, 7)
    assert result.sample_error > 1


def test_the_unit_is_that_of_the_residual_where_that_failed_too(bench: Bench) -> None:
    corrupt(bench.outputs["y"], 7, 9.0)
    corrupt(bench.outputs["y"], 12, 1e9)

    assert verified(bench).unit == 12
