"""Filling and checking block by block."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

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


def test_poison_is_not_a_number(bench: Bench) -> None:
    fill(bench, bench.outputs["y"], Fill(1, "y", 5, 10, 0, poison=True))

    result = bench.result()
    assert np.isnan(result[5:15]).all()
    assert np.isfinite(result[:5]).all() and np.isfinite(result[15:]).all()


ONE, LARGE = np.array([1e6, 1.0, -1.0, 1.0]), np.array([1e6, 0, 0, 0])
SMALL = np.array([1e-6, 2e-6, 1e-6])
ERRORS: dict[str, tuple[np.ndarray, np.ndarray, dict[str, Any], tuple[float, float]]] = {
    "a huge mean hides no error": (ONE + np.eye(4)[1] / 2, ONE, {}, (5e-7, 0.5)),
    "rounding beside a large value is none": (
        np.array([1e6, 0.1, 0, 0], "float32"), LARGE, {"floor": 8 / 1e-4}, (1e-7, 1.0486e-5)),
    "zeros are zeros": (np.zeros(4), np.zeros(4), {}, (0, 0)),
    "anything else isn't": (np.full(4, 1e-30), np.zeros(4), {}, (math.inf, math.inf)),
    "of what isn't finite comes what isn't": (
        np.array([1.0, math.nan]), np.ones(2), {"finite": False}, (0, 0)),
    "of what isn't finite never comes what is": (
        np.ones(2), np.ones(2), {"finite": False}, (math.inf, math.inf)),
    "terms that cancel count": (
        SMALL + 1e-6 * np.eye(3)[1], SMALL, {"scale": np.array([1.0, 10.0, 1.0])}, (0.5, 1e-7)),
}  # fmt: skip


@pytest.mark.parametrize("case", ERRORS)
def test_errors_are_relative_to_the_largest_and_to_the_other_values(case: str) -> None:
    values, reference, settings, expected = ERRORS[case]

    found = fill_and_check.unit_errors(values, reference, **settings)

    assert found == pytest.approx(expected, rel=1e-3)


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
