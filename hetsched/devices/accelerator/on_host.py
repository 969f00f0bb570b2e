"""A device that works on the host's memory: it has no link, and is a core with other kernels."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import numpy as np

from hetsched.device import DeviceInfo
from hetsched.devices.accelerator.runtime import Runtime, translated
from hetsched.devices.base import DeviceJob
from hetsched.devices.cpu.device import CoreClock, CpuDevice, CpuKernels
from hetsched.errors import DataError
from hetsched.workload import Kernel
from hetsched.workload.protocol import KernelArrays


class HostRuntime(Runtime, Protocol):
    """What a runtime also has whose device may share the host's memory."""

    def lend(self, host: np.ndarray) -> Any:
        """Return an array of the device in the memory of `host`, with what that contains now."""

    def take_back(self, written: Iterable[Any]) -> None:
        """Wait for all kernels, and until the host sees what is in these arrays."""


def on_host(info: DeviceInfo, runtime: HostRuntime) -> CpuDevice:
    """Return the device `info`, of which `runtime` computes on NumPy's arrays."""

    def adapted(kernel: Callable[..., None]) -> Callable[..., None]:
        return lending(info.name, runtime, kernel)

    kernels = CpuKernels(runtime.kernels, runtime.xp, adapted, _warm_up)
    return CpuDevice(info, CoreClock(has_own_core=False), kernels)  # it waits for the device


def lending(name: str, runtime: HostRuntime, kernel: Callable[..., None]) -> Callable[..., None]:
    """Return the kernel of a chunk, or of a stage, for NumPy's arrays."""

    def call(*arguments: Any) -> None:
        lent: dict[tuple[int, int], Any] = {}
        given, written = list(arguments), list[Any]()

        def lend(host: np.ndarray) -> Any:  # one array for equal parts
            key = host.ctypes.data, host.nbytes
            if key not in lent:
                lent[key] = runtime.lend(host)
            return lent[key]

        try:
            with translated(name, runtime.classify):
                for number, argument in enumerate(arguments):
                    if isinstance(argument, KernelArrays):  # outputs come last
                        given[number] = KernelArrays({n: lend(a) for n, a in argument.items()})
                        written = list(given[number].values())
                kernel(*given)
                runtime.take_back(written)
        except BaseException:
            # Nothing may still use memory that the caller frees; the first error counts.
            with contextlib.suppress(Exception):
                runtime.take_back([])
            raise

    call.units_per_call = getattr(kernel, "units_per_call", 0)  # type: ignore[attr-defined]
    call.takes_range = getattr(kernel, "takes_range", False)  # type: ignore[attr-defined]
    return call


def _warm_up(kernel: Kernel, job: DeviceJob) -> None:
    """Have a kernel compile, which it does when first called: here for a unit of zeros."""
    specs = job.workload.arrays(job.params)
    zeros = {spec.name: np.zeros(spec.shape(1), spec.dtype) for spec in specs}
    inputs = KernelArrays({spec.name: zeros[spec.name] for spec in specs if spec.is_input})
    outputs = KernelArrays({s.name: zeros[s.name].copy() for s in specs if s.is_output})
    with contextlib.suppress(DataError):  # about zeros, which the job may not have
        kernel(inputs, outputs)
