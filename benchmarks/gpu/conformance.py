"""The conformance suites of devices and runtimes, on the GPU."""

from __future__ import annotations

import traceback

from benchmarks.gpu.common import Report, device_info, open_runtime
from hetsched.devices.accelerator.device import Accelerator
from hetsched.devices.accelerator.runtime import Runtime
from hetsched.devices.base import Device
from hetsched.testing import DeviceSuite, RuntimeSuite

LIMIT = 8 << 10
"""Bytes of the GPU that the suite of devices may use."""


def measure(report: Report) -> None:
    runtime, info = open_runtime(report.dry), device_info(report.dry)

    class OnGpu(DeviceSuite, RuntimeSuite):
        def open_device(self) -> Device:
            return Accelerator(info, runtime, limit=LIMIT)

        def open_runtime(self) -> Runtime:
            return runtime

    suites: tuple[type, ...] = (RuntimeSuite, DeviceSuite)
    wrong = 0
    for suite in suites:
        for name in [name for name in vars(suite) if name.startswith("test_")]:
            problem = ""
            try:
                tested = OnGpu()
                tested.opened = suite.opened.__get__(tested)  # type: ignore[attr-defined, method-assign]
                getattr(tested, name)()
            except Exception:
                problem = traceback.format_exc()
                wrong += 1
            report.row("checks", suite=suite.__name__, name=name, problem=problem)
    report.put(wrong=wrong)
    if wrong:
        raise RuntimeError(f"{wrong} checks failed")
