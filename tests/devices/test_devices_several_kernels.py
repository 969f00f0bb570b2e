from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from device_bench import Bench, cut, drive
from toys import Toy

from hetsched.device import Chunk, DeviceInfo
from hetsched.device_process.prepared_job import StepFailed
from hetsched.devices.base import DeviceJob
from hetsched.devices.cpu.device import CpuDevice, CpuKernels
from hetsched.errors import UsageError
from hetsched.testing.toys import Affine
from hetsched.workload import Variant

CORE = DeviceInfo(name="cpu0", kind="cpu", identity="test")


class Racing(Toy):
    """Has two variants that work, and one that doesn't."""

    def variants(self, kind: str) -> Sequence[Variant]:
        (working,), (_, broken) = super().variants(kind), Affine().variants(kind)
        return [working, Variant("other", "1", working.make), broken]


def racing(bench: Bench, *variants: str, rejected: dict[str, str] | None = None) -> DeviceJob:
    """`rejected`: gets the variants that a device has given up, with the reasons."""
    bench.workload, given_up = Racing(), {} if rejected is None else rejected
    first, *rivals = variants

    def reject(variant: str, error: Exception) -> None:
        given_up[variant] = str(error)

    return replace(bench.job(4), variant=first, rivals=tuple(rivals), reject=reject)


def alternating(kernels: list[int]) -> list[Chunk]:
    chunks = cut([4] * len(kernels))
    return [msgspec.structs.replace(c, kernel=k) for c, k in zip(chunks, kernels, strict=True)]


@pytest.mark.parametrize("stored", [{}, {"dtypes": {"x": "float32"}}])
def test_each_chunk_is_computed_by_its_kernel(stored: dict[str, Any]) -> None:
    bench = Bench(16, **stored)

    times = drive(CpuDevice(CORE), racing(bench, "numpy", "other"), alternating([0, 1, 1, 0]))

    assert [times[number].kernel for number in range(4)] == [0, 1, 1, 0]
    np.testing.assert_array_equal(bench.result(), bench.expected())


@pytest.mark.parametrize("in_file", [False, True])
def test_a_kernel_that_fails_is_replaced_by_one_that_works(tmp_path: Path, in_file: bool) -> None:
    bench = Bench(16, folder=tmp_path if in_file else None)
    rejected: dict[str, str] = {}
    job = racing(bench, "broken", "numpy", rejected=rejected)

    times = drive(CpuDevice(CORE), job, alternating([0, 1, 0, 1]))

    assert {found.kernel for found in times.values()} == {1}
    assert rejected == {"broken": "no such luck"}
    np.testing.assert_array_equal(bench.result(), bench.expected())


def test_a_variant_that_cant_be_made_falls_out_of_the_race() -> None:
    rejected: dict[str, str] = {}
    job = racing(Bench(8), "absent", "numpy", rejected=rejected)

    times = drive(CpuDevice(CORE), job, cut([4, 4]))

    assert times[0].kernel == 1
    assert "absent" in rejected["absent"]


def test_without_a_variant_that_can_be_made_the_first_error_counts() -> None:
    with pytest.raises(UsageError, match="absent"):
        CpuDevice(CORE).prepare(racing(Bench(8), "absent", "missing"))


def test_if_every_kernel_fails_none_is_to_blame() -> None:
    rejected: dict[str, str] = {}
    job = racing(Bench(8), "broken", "broken", rejected=rejected)

    with pytest.raises(StepFailed) as failure:
        drive(CpuDevice(CORE), job, cut([4, 4]))

    assert isinstance(failure.value.__cause__, ZeroDivisionError)
    assert not rejected


def test_a_kernel_serves_chunks_of_almost_the_same_size() -> None:
    """A new plan of a job, whose chunks differ a little, must not wait for new kernels."""
    job, kernels = Bench(16).job(4), CpuKernels()
    chunks = (2047, 2048, 2049, 4000)

    made = [kernels.get(replace(job, chunk=chunk), job.variant) for chunk in chunks]

    assert made[0] is made[1] is made[2]
    assert made[3] is not made[2]
