"""Accelerators on a real asynchronous runtime: OpenCL on the processor, by PoCL."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import test_devices_conformance as suite
from device_bench import MEMORY, affine_bench, cut, drive
from opencl_toys import open_runtime, processor

import hetsched
from hetsched.config import DeviceConfig, parse
from hetsched.device import DeviceInfo
from hetsched.devices.accelerator.device import Accelerator
from hetsched.devices.accelerator.runtime import Fault
from hetsched.devices.base import Device
from hetsched.devices.opencl import probe as opencl_probe
from hetsched.devices.opencl.device import OpenClRuntime, classify
from hetsched.devices.opencl.probe import Found, probe
from hetsched.devices.probe import CorePool


@pytest.fixture(scope="module")
def info() -> DeviceInfo:
    return processor()


@pytest.fixture(scope="module")
def runtime(info: DeviceInfo) -> OpenClRuntime:
    return open_runtime(info)


class TestOpenCl(suite.TestEveryDevice):
    @pytest.fixture
    def device(self, info: DeviceInfo, runtime: OpenClRuntime) -> Iterator[Device]:
        opened = Accelerator(info, runtime, limit=MEMORY)
        yield opened
        opened.close()


@pytest.mark.parametrize("seed", range(30))
def test_results_are_right_whatever_the_chunks(
    seed: int, info: DeviceInfo, runtime: OpenClRuntime, tmp_path: Path
) -> None:
    rng = np.random.default_rng(seed)
    sizes = [int(size) for size in rng.integers(1, 60, rng.integers(1, 20))]
    bench = affine_bench(sum(sizes), folder=tmp_path if seed % 3 == 0 else None)
    device = Accelerator(info, runtime)
    job = bench.job("opencl", max(sizes), slots=int(rng.integers(1, 5)))

    drive(device, job, cut(sizes), ring=bool(seed % 2))

    np.testing.assert_array_equal(bench.result("y"), bench.expected())
    device.close()


JOINT = """
[[device]]
kind = "cpu"
count = 1

[[device]]
kind = "opencl"
on_cpu = true
memory = "1MiB"
"""


def test_a_core_and_an_opencl_device_compute_a_job_together(info: DeviceInfo) -> None:
    rng = np.random.default_rng(1)
    c, a, b = (rng.standard_normal(shape, "float32") for shape in ((600, 70), (600, 50), (50, 70)))
    with hetsched.Local(parse(JOINT, "test"), learn=False) as local:
        job = local.submit("matrix_update", {"C": c, "A": a, "B": b}, verify=True)
        np.testing.assert_allclose(job.result(timeout=120), c + a @ b, rtol=1e-4, atol=1e-4)

    assert {device.device for device in job.report.devices} == {"cpu0", "ocl0"}


def test_a_kernel_that_writes_out_of_bounds_costs_the_device_and_not_the_job(
    info: DeviceInfo,
) -> None:
    """It ends the process, as the loss of a GPU does; a core computes its chunks."""
    x = np.random.default_rng(1).standard_normal((600, 4))
    with hetsched.Local(parse(JOINT, "test"), learn=False) as local:
        job = local.submit("opencl_toys:Wild", x, units=600)

        np.testing.assert_array_equal(job.result(timeout=120), 2 * x + 1)

    assert any("ocl0 died, ended by SIGSEGV" in note for note in job.report.notes)


def test_a_machine_with_processors_only_has_no_opencl_device_unless_a_table_says_so(
    info: DeviceInfo,
) -> None:
    table = DeviceConfig(kind="opencl", optional=True)

    found = probe([(0, table)], CorePool((0,), 1))

    assert found.absent == {"ocl0": "OpenCL shows processors only; on_cpu = true uses them"}


def test_what_is_allocated_counts_and_a_buffer_that_is_too_large_is_refused(
    runtime: OpenClRuntime,
) -> None:
    before = runtime.memory().free
    block = runtime.allocate(1 << 20)
    assert runtime.memory().free == before - (1 << 20)

    with pytest.raises(MemoryError):
        runtime.allocate(before + 1)
    del block
    assert runtime.memory().free == before


@pytest.mark.parametrize(
    ("code", "opening", "fault"),
    [
        (-4, False, Fault.MEMORY),
        (-61, False, Fault.MEMORY),
        (-14, False, Fault.STICKY),
        (-36, False, Fault.STICKY),
        (-11, False, Fault.USAGE),
        (-36, True, Fault.ABSENT),
    ],
)
def test_each_code_has_its_class(code: int, opening: bool, fault: Fault) -> None:
    error = RuntimeError("from OpenCL")
    error.code = code  # type: ignore[attr-defined]

    assert classify(error, opening) is fault


GPU = Found(0, 0, "Fast GPU", "Vendor", False, 1 << 30, True)
CPU = Found(1, 0, "Processor", "PoCL", True, 1 << 30, True)
BROKEN = Found(2, 0, "Processor", "Old", True, 1 << 30, True, problem="unknown target CPU")


@pytest.mark.parametrize(
    ("table", "platforms", "absent"),
    [
        ({}, ["0"], {}),
        ({"on_cpu": True}, ["1"], {}),
        (
            {"on_cpu": True, "count": 2},
            ["1"],
            {"ocl1": "Processor of Old can't be used: unknown target CPU"},
        ),
        ({"count": 2}, ["0"], {"ocl1": "this machine has only 1 such device"}),
    ],
)
def test_a_table_gets_the_devices_that_can_compute(
    table: dict[str, Any],
    platforms: list[str],
    absent: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Processors only if it says so: cores are devices already."""
    monkeypatch.setattr(opencl_probe, "devices", lambda: ([BROKEN, GPU, CPU], ""))

    found = probe([(0, DeviceConfig(kind="opencl", optional=True, **table))], CorePool((0,), 1))

    assert [process.device.details["platform"] for process in found.processes] == platforms
    assert found.absent == absent
