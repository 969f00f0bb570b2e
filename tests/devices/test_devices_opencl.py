from __future__ import annotations

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
