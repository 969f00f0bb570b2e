"""Workloads of recent jobs: described once per workload and parameters, in bounded memory."""

from __future__ import annotations

import msgspec
import pytest

from hetsched.device_process.known_workloads import MAX_WORKLOADS, KnownWorkloads
from hetsched.errors import UsageError


def encoded(batch: int) -> bytes:
    return msgspec.json.encode({"batch": f"{batch}x4x4"})


def test_a_workload_is_described_once_for_each_set_of_parameters() -> None:
    workloads = KnownWorkloads("cpu")

    first, larger, repeated = (workloads.get("fft", encoded(batch)) for batch in (3, 5, 3))

    assert repeated is first
    assert [first.params.batch, larger.params.batch] == ["3x4x4", "5x4x4"]
    assert first.demand.input_bytes == 4 * 4 * 8
    assert [spec.name for spec in first.specs] == ["x", "y"]


def test_the_least_recent_is_forgotten() -> None:
    workloads = KnownWorkloads("cpu")
    kept, forgotten = workloads.get("fft", encoded(1)), workloads.get("fft", encoded(2))

    for batch in range(3, MAX_WORKLOADS + 2):
        workloads.get("fft", encoded(1))
        workloads.get("fft", encoded(batch))

    assert workloads.get("fft", encoded(1)) is kept
    assert workloads.get("fft", encoded(2)) is not forgotten


@pytest.mark.parametrize(
    ("reference", "parameters", "error"),
    [("no-such", b"{}", UsageError), ("fft", b"{}", msgspec.MsgspecError)],
)
def test_what_fails_is_not_remembered(
    reference: str, parameters: bytes, error: type[Exception]
) -> None:
    workloads = KnownWorkloads("cpu")

    for _ in range(2):
        with pytest.raises(error):
            workloads.get(reference, parameters)
