"""k-means and heat on two cores and an emulated device, verified."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from cores import COUNT
from hetsched_workloads.heat import Heat, HeatParams
from hetsched_workloads.kmeans import KMeans, KMeansParams

import hetsched
from hetsched.config import parse
from hetsched.errors import DataError
from hetsched.iterations import serial

MACHINE = f"""
[[device]]
kind = "cpu"
count = {COUNT}
hardware_threads = true
"""
EMULATED = """
[[device]]
kind = "emulated"
name = "emu0"
clock = "real"
memory = "1MiB"
compute = { gap = "20us", unit = "1us" }
h2d = { gap = "5us", rate = "1GB/s" }
d2h = { gap = "5us", rate = "1GB/s" }
"""
run = functools.partial(serial.run, variant="numpy")
"""Numba must compile nothing in this process while the devices' variable is set."""


@pytest.fixture(scope="module")
def local() -> Iterator[hetsched.Local]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NUMBA_DISABLE_JIT", "1")  # so little work isn't worth compiling
        with hetsched.Local(parse(MACHINE + EMULATED, "test"), learn=False) as local:
            yield local


def test_points_are_clustered(local: hetsched.Local) -> None:
    p = KMeansParams(3000, 4, 5, dtype="float64")
    points = np.empty((3000, 4))
    KMeans().generate(p, 1, "points", 0, points)

    result = local.submit("kmeans", {"points": points}, clusters=5, verify=True).result(timeout=60)

    expected = run(KMeans(), p, {"points": points}, (3000,))
    assert result.iterations == expected.iterations
    np.testing.assert_allclose(result["centroids"], expected.outputs["centroids"], rtol=1e-10)
    assert np.array_equal(result["labels"], expected.outputs["labels"])


def test_heat_diffuses(local: hetsched.Local) -> None:
    initial = np.random.default_rng(2).standard_normal((60, 50))

    job = local.submit("heat", {"initial": initial}, steps=40, border="neumann", verify=True)

    p = HeatParams("60x50", 40, border="neumann", dtype="float64")
    expected = run(Heat(), p, {"initial": initial}, (60,))
    assert np.array_equal(job.result(timeout=60)["final"], expected.outputs["final"])


def test_results_in_the_memory_of_the_state_outlive_later_jobs(local: hetsched.Local) -> None:
    initial = np.random.default_rng(2).standard_normal((40, 30))
    results = [
        local.submit("heat", {"initial": initial}, steps=steps).result(timeout=60)
        for steps in (5, 6, 7)
    ]

    for steps, result in zip((5, 6, 7), results, strict=True):
        p = HeatParams("40x30", steps, dtype="float64")
        expected = run(Heat(), p, {"initial": initial}, (40,))
        assert np.array_equal(result["final"], expected.outputs["final"])


def test_a_result_may_be_the_input_of_the_next_job(local: hetsched.Local) -> None:
    initial = np.random.default_rng(2).standard_normal((40, 30))
    half = local.submit("heat", {"initial": initial}, steps=5).result(timeout=60)

    final = local.submit("heat", {"initial": half["final"]}, steps=5).result(timeout=60)["final"]

    p = HeatParams("40x30", 10, dtype="float64")
    assert np.array_equal(final, run(Heat(), p, {"initial": initial}, (40,)).outputs["final"])


@pytest.mark.parametrize(
    ("name", "arrays", "params", "message"),
    [
        ("kmeans", {"points": np.diag([1, np.nan, 1])}, {"clusters": 2}, "row 1 has a NaN"),
        ("kmeans", {"points": np.zeros((3, 2))}, {"clusters": 4}, "only 3 points"),
        ("heat", {"initial": np.full((9, 2), np.inf)}, {}, "infinite"),
    ],
)
def test_bad_data_get_a_clear_line(
    local: hetsched.Local, name: str, arrays: Any, params: dict[str, Any], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        local.submit(name, arrays, **params).result(timeout=60)
