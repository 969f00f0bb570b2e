"""The kernels of toys in OpenCL, and the device that they are tested on."""

from __future__ import annotations

import functools
import itertools
import os
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from toys import Toy, ToyParams

from hetsched.config import Config, DeviceConfig
from hetsched.device import DeviceInfo
from hetsched.devices.accelerator.on_host import on_host
from hetsched.devices.cpu.device import CpuDevice
from hetsched.devices.opencl.device import OpenClRuntime
from hetsched.devices.opencl.probe import Found, devices
from hetsched.workload import Arrays, Kernel, Variant

SOURCE = """
#define IN(T, name) __global const char *name##_bytes, ulong name##_start
#define AT(T, name) ((__global T *)(name##_bytes + name##_start))
__kernel void affine(IN(double, x), __global char *y_bytes, ulong y_start) {
    const size_t i = get_global_id(0);
    AT(double, y)[i] = 2 * AT(const double, x)[i] + 1;
}
__kernel void update(IN(double, c), IN(float, a), IN(double, b),
                     __global char *new_bytes, ulong new_start) {
    const size_t i = get_global_id(0);
    const double product = AT(const float, a)[i / 3] * AT(const double, b)[i % 3];
    AT(double, new)[i] = AT(const double, c)[i] + product;
}
"""


def arguments(*arrays: Any) -> list[Any]:
    return [one for array in arrays for one in (array.base_data, np.uint64(array.offset))]


def kernel_of(name: str, inputs: tuple[str, ...], output: str) -> Kernel:
    programs: dict[Any, Any] = {}

    def kernel(given: Arrays, outputs: Arrays) -> None:
        import pyopencl as cl

        target = outputs[output]
        queue = target.queue
        if queue.context not in programs:
            programs[queue.context] = getattr(cl.Program(queue.context, SOURCE).build(), name)
        arrays = [given[name] for name in inputs]
        programs[queue.context](queue, (target.size,), None, *arguments(*arrays, target))

    return kernel


def affine() -> Kernel:
    return kernel_of("affine", ("x",), "y")


class InPlace(Toy):
    """Whose results replace the input in the memory of an OpenCL device."""

    name = "in_place"
    in_place = {"opencl": {"y": "x"}}

    def variants(self, kind: str) -> Sequence[Variant]:
        if kind == "opencl":
            return [Variant("affine", "1", lambda *_: affine())]
        return super().variants(kind)[:1]


class MortalParams(ToyParams, frozen=True):
    lives: int = 0


class Mortal(Toy):
    """Whose OpenCL kernel kills its process after so many chunks."""

    name = "mortal"
    Params = MortalParams

    def variants(self, kind: str) -> Sequence[Variant]:
        if kind == "opencl":
            return [Variant("mortal", "1", lambda p, *_: mortal(p.lives))]
        return super().variants(kind)[:1]


def mortal(lives: int) -> Kernel:
    kernel, calls = affine(), itertools.count(-1)  # one call before the job

    def killing(inputs: Arrays, outputs: Arrays) -> None:
        if next(calls) >= lives:
            os.kill(os.getpid(), signal.SIGKILL)
        kernel(inputs, outputs)

    return killing


def update() -> Kernel:
    return kernel_of("update", ("c", "a", "b"), "c")


def beside_a_core(engines: int = 2) -> Config:
    """A core, and the processor as an OpenCL device behind a link."""
    devices = (
        DeviceConfig(kind="cpu", count=1),
        DeviceConfig(kind="opencl", on_cpu=True, count=1, memory="1MiB", engines=engines),
    )
    return Config(device=devices)


MAKERS = {"affine": lambda *_: affine(), "update": lambda *_: update()}
EACH_RUNTIME = [0, pytest.param(1, marks=pytest.mark.stress)]
"""Parameters of `processor`: a second runtime, say Intel's beside PoCL, only in `make stress`."""


@functools.cache
def intel() -> tempfile.TemporaryDirectory[str] | None:
    """Have the loader find Intel's runtime for processors, as its own package doesn't.

    `make stress` installs it, 700 MB.
    """
    library = Path(sys.prefix) / "lib/libintelocl.so"
    if os.environ.get("HETSCHED_TEST_PROFILE") != "stress" or not library.exists():
        return None
    folder = tempfile.TemporaryDirectory(prefix="hs-icd-")
    (Path(folder.name) / "intel.icd").write_text(f"{library}\n")
    os.environ.setdefault("OCL_ICD_VENDORS", folder.name)
    return folder


@functools.cache
def found() -> tuple[list[Found], str]:
    intel()
    listed, problem = devices()
    usable = [one for one in listed if one.is_cpu and not one.problem]
    reasons = [one.problem for one in listed if one.problem]
    return usable, problem or "; ".join(reasons) or "no other runtime is installed"


def processor(number: int = 0) -> DeviceInfo:
    """The processor as an OpenCL device of a runtime, or skip."""
    usable, problem = found()
    if number >= len(usable):
        pytest.skip(f"no OpenCL on this processor: {problem}")
    details = {"platform": str(usable[number].platform), "number": str(usable[number].number)}
    return DeviceInfo(name="ocl0", kind="opencl", identity="", link=True, details=details)


def open_runtime(info: DeviceInfo, **settings: Any) -> OpenClRuntime:
    import pyopencl as cl

    platform = cl.get_platforms()[int(info.details["platform"])]
    return OpenClRuntime(cl, platform.get_devices()[int(info.details["number"])], **settings)


def open_on_host_memory(info: DeviceInfo, runtime: OpenClRuntime) -> CpuDevice:
    return on_host(msgspec.structs.replace(info, link=False), runtime)
