from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import opencl_toys
import pytest

import hetsched
from hetsched.config import DeviceConfig, parse
from hetsched.devices.accelerator.on_host import lending
from hetsched.devices.accelerator.runtime import Fault
from hetsched.devices.base import DeviceFault
from hetsched.devices.opencl import probe as opencl_probe
from hetsched.devices.opencl.device import OpenClRuntime
from hetsched.devices.opencl.probe import Found, probe
from hetsched.devices.probe import CorePool
from hetsched.errors import Unavailable

SHARING = """
[[device]]
kind = "opencl"
on_cpu = true
count = 1
host_memory = true
"""


def test_a_device_on_the_hosts_memory_computes_jobs_of_all_kinds() -> None:
    opencl_toys.processor()
    rng = np.random.default_rng(1)
    x = (rng.standard_normal((40, 16, 16)) + 0j).astype("complex64")
    with hetsched.Local(parse(SHARING, "test"), learn=False) as local:
        y = local.submit("fft", x, verify=True).result(timeout=120)
        heat = local.submit("heat", grid="40x30", steps=5, verify=True)
        heat.result(timeout=120)
        (info,), _ = local.devices()

    np.testing.assert_allclose(y, np.fft.fft2(x), rtol=1e-3, atol=1e-3)
    assert heat.report.verified
    assert (info.link, info.memory) == (False, None)


GPU = Found(0, 0, "Fast GPU", "Vendor", False, 1 << 30, True)
CPU = Found(1, 0, "Processor", "PoCL", True, 1 << 30, True)
BROKEN = Found(2, 0, "Processor", "Old", True, 1 << 30, True, problem="unknown target CPU")


@pytest.mark.parametrize(
    ("listed", "table", "platforms", "absent"),
    [
        ([BROKEN, GPU, CPU], {}, ["0"], ""),
        ([BROKEN, GPU, CPU], {"on_cpu": True}, ["1"], ""),
        (
            [BROKEN, GPU, CPU],
            {"on_cpu": True, "count": 2},
            ["1"],
            "Processor of Old can't be used: unknown target CPU",
        ),
        ([GPU], {"count": 2}, ["0"], "this machine has only 1 such device"),
        ([CPU], {}, [], "OpenCL shows processors only; on_cpu = true uses them"),
        ([], {}, [], "OpenCL shows no device"),
    ],
)
def test_a_table_gets_the_devices_that_can_compute(
    listed: list[Found],
    table: dict[str, Any],
    platforms: list[str],
    absent: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Processors only if it says so: cores are devices already."""
    monkeypatch.setattr(opencl_probe, "devices", lambda: (listed, ""))

    found = probe([(0, DeviceConfig(kind="opencl", optional=True, **table))], CorePool((0,), 1))

    assert [process.device.details["platform"] for process in found.processes] == platforms
    assert list(found.absent.values()) == ([absent] if absent else [])


class LostRuntime(OpenClRuntime):
    waited = False

    def __init__(self) -> None:
        pass

    def take_back(self, written: Any) -> None:
        self.waited = True
        raise failing(-36)


def failing(code: int) -> RuntimeError:
    error = RuntimeError(f"OpenCL says {code}")
    error.code = code  # type: ignore[attr-defined]
    return error


@pytest.mark.parametrize(
    ("fault", "codes"),
    [(Fault.MEMORY, (-4, -61)), (Fault.STICKY, (-14, -36)), (Fault.USAGE, (-11,))],
)
def test_each_code_has_its_class(fault: Fault, codes: tuple[int, ...]) -> None:
    assert {LostRuntime().classify(failing(code)) for code in codes} == {fault}


def test_on_the_hosts_memory_a_lost_context_is_a_fault_too() -> None:
    def kernel() -> None:
        raise failing(-14)

    lost = LostRuntime()
    with pytest.raises(DeviceFault, match="ocl0: unusable after a fault: OpenCL says -14"):
        lending("ocl0", lost, kernel)()
    assert lost.waited, "the device may still use memory that the caller frees"


PLANES = ((16, 32), (8, 4))
"""Powers of two: for other sizes much more is compiled."""
SCHEDULES = ("best", "ring", "multi-installment", "factoring")
TOLERANCE = {"complex64": 1e-5, "complex128": 1e-12, "float32": 1e-4, "float64": 1e-11}


def numbered(usual: int, stress: int) -> Any:
    """Seeds: some for `make test`, the others for `make stress`."""
    rest = [pytest.param(seed, marks=pytest.mark.stress) for seed in range(usual, stress)]
    return pytest.mark.parametrize("seed", [*range(usual), *rest])


@pytest.fixture(scope="module", params=[2, 1])
def local(request: pytest.FixtureRequest) -> Iterator[hetsched.Local]:
    opencl_toys.processor()
    config = opencl_toys.beside_a_core(request.param)
    with hetsched.Local(config, learn=False) as local:
        yield local


def transform(rng: np.random.Generator) -> tuple[str, dict[str, np.ndarray], np.ndarray]:
    shape = (int(rng.integers(1, 120)), *PLANES[rng.integers(2)])
    dtype = ("complex64", "complex128")[rng.integers(2)]
    x = (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(dtype)
    return "fft", {"x": x}, np.fft.fft2(x)


def update(rng: np.random.Generator) -> tuple[str, dict[str, np.ndarray], np.ndarray]:
    rows, cols, inner = (int(n) for n in rng.integers(1, (800, 90, 60)))
    dtype = ("float32", "float64")[rng.integers(2)]
    shapes = ((rows, cols), (rows, inner), (inner, cols))
    c, a, b = (rng.standard_normal(shape).astype(dtype) for shape in shapes)
    return "matrix_update", {"C": c, "A": a, "B": b}, c + a @ b


def scale(rng: np.random.Generator) -> tuple[str, dict[str, np.ndarray], np.ndarray]:
    x = rng.standard_normal((int(rng.integers(1, 9000)), 4))
    return "opencl_toys:InPlace", {"x": x}, 2 * x + 1


@numbered(3, 100)
def test_a_random_job_equals_numpys(local: hetsched.Local, seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    workload, arrays, expected = (transform, update, scale)[seed % 3](rng)
    dtype = next(iter(arrays.values())).dtype.name
    options: dict[str, Any] = {
        "devices": ("ocl0",) if rng.integers(2) else (),
        "schedule": SCHEDULES[rng.integers(4)],
        "memory_limit": int(rng.integers(200 << 10, 1 << 20)),
    }
    given: dict[str, Any] = arrays
    if rng.integers(2):
        given = {name: tmp_path / f"{name}.npy" for name in arrays}
        for name, path in given.items():
            np.save(path, arrays[name])
        options["out"] = tmp_path / "out.npy"

    params = {"units": len(expected)} if workload.endswith("InPlace") else {}

    job = local.submit(workload, given, verify=True, **options, **params)
    job.result(timeout=120)

    result = np.load(options["out"]) if "out" in options else job.result()
    error = np.abs(result - expected).max() / max(1e-30, np.abs(expected).max())
    assert error <= TOLERANCE[dtype], (workload, options)


@numbered(1, 50)
def test_a_job_is_right_although_the_devices_process_is_killed(seed: int) -> None:
    """In one of the first chunks; a third death would bar the device from such jobs."""
    opencl_toys.processor()
    rng, notes = np.random.default_rng(seed), list[str]()
    with hetsched.Local(opencl_toys.beside_a_core(), learn=False) as local:
        for _ in range(2):
            x = rng.standard_normal((int(rng.integers(200, 900)), 4))
            lives = int(rng.integers(0, 3))
            job = local.submit("opencl_toys:Mortal", x, units=len(x), lives=lives)

            np.testing.assert_array_equal(job.result(timeout=120), 2 * x + 1)
            notes += job.report.notes
    assert any("ocl0 died, ended by SIGKILL" in note for note in notes)


def test_a_workload_without_kernels_for_the_device_names_what_can_run_it() -> None:
    opencl_toys.processor()
    with (
        hetsched.Local(opencl_toys.beside_a_core(), learn=False) as local,
        pytest.raises(Unavailable, match=r"no working variant of pcg for opencl; .* run it: cpu"),
    ):
        local.submit("pcg", grid="6x6x6", devices="ocl0").result(timeout=60)
