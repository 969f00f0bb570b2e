"""Options of iterative jobs: their values, and that other workloads refuse them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from hetsched.errors import UsageError
from hetsched.iteration_options import (
    check_iteration_options,
    check_not_iterative,
    iteration_options,
)
from hetsched.job import DeviceReport, JobReport, JobSpec, Running


def spec(**options: Any) -> JobSpec:
    return JobSpec(workload="diffusion", params={}, **options)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"balance": "functional", "warm_up": "dfpa"},
        {"checkpoint": "/tmp/x.npz", "every": 5.0, "resume": "/tmp/y.npz"},
    ],
)
def test_valid_options_pass(options: dict[str, Any]) -> None:
    check_iteration_options(spec(**options))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"balance": "fair"}, "balance: .fair. is unknown; choose from: auto, functional"),
        ({"warm_up": "yes"}, "warm_up: .yes. is unknown; choose from: dfpa"),
        ({"checkpoint": "x.npz"}, "checkpoint: .x.npz. should be an absolute path"),
        ({"resume": "x.npz"}, "resume: .x.npz. should be an absolute path"),
        ({"checkpoint": "/x", "every": 0.0}, "every: 0 should be positive"),
        ({"every": 3.0}, "every: there is no checkpoint"),
    ],
)
def test_other_values_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check_iteration_options(spec(**options))


def test_a_single_pass_refuses_each_option() -> None:
    options = spec(balance="none", warm_up="dfpa", checkpoint="/x", every=1.0, resume="/y")
    assert iteration_options(options) == ("balance", "warm-up", "checkpoint", "every", "resume")
    with pytest.raises(UsageError, match="fft has no iterations, so --resume can't be used"):
        check_not_iterative(spec(resume="/y"), "fft")


def test_a_single_pass_without_them_is_fine() -> None:
    check_not_iterative(spec(), "fft")


def test_records_of_earlier_versions_decode() -> None:
    old: list[tuple[type, dict[str, Any]]] = [
        (JobSpec, {"workload": "fft", "params": {}}),
        (Running, {"type": "running", "job": 1, "stage": "computing"}),
        (JobReport, {"job": 1, "state": "done", "workload": "fft", "load": 3}),
    ]
    for kind, fields in old:
        assert msgspec.convert(fields, kind)
    assert "phases" in DeviceReport.__struct_fields__
