"""Finds OpenCL devices. Run as a program, it lists those of this machine.

A vendor's runtime brings threads, memory and bugs into a process, so the list is made in one that
ends; there, each device also computes 4 KiB.
"""

from __future__ import annotations

import importlib
import importlib.util
import subprocess
import sys
import warnings
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from hetsched.config import DeviceConfig
from hetsched.device import DeviceInfo
from hetsched.devices.probe import CorePool, Probe, ProcessSpec, claimed
from hetsched.units import counted, format_bytes

LIST_SECONDS = 60.0
"""Time for the list. Arbitrary: a first kernel is compiled in about a second."""
SOURCE = "__kernel void twice(__global int *x) { x[get_global_id(0)] *= 2; }"


class Found(msgspec.Struct, frozen=True):
    """A device of this machine: where it is in the lists of OpenCL, and why it can't be used."""

    platform: int
    number: int
    name: str
    platform_name: str
    is_cpu: bool
    memory: int
    has_float64: bool
    problem: str = ""
    shares_memory: bool = False
    """Of the host: it is no more of its own."""


def probe(tables: Sequence[tuple[int, DeviceConfig]], pool: CorePool) -> Probe:
    """Return one process for each device that is asked for.

    Processors only where a table says so, as cores are devices already.
    """
    found, problem = devices()

    def listed(config: DeviceConfig) -> list[Found]:
        return [device for device in found if device.is_cpu == config.on_cpu]

    def usable(config: DeviceConfig) -> list[Found]:
        return [device for device in listed(config) if not device.problem]

    def lack(config: DeviceConfig, device: Found | None) -> str:
        if device is not None or problem:
            return problem
        refused = next((device for device in listed(config) if device.problem), None)
        if refused is not None:
            return f"{refused.name} of {refused.platform_name} can't be used: {refused.problem}"
        if count := len(usable(config)):
            return f"this machine has only {counted(count, 'such device')}"
        if found:
            return "OpenCL shows processors only; on_cpu = true uses them"
        return "OpenCL shows no device"

    return claimed(tables, "ocl", usable, lack, _process)


def devices() -> tuple[list[Found], str]:
    """Return the devices of this machine, or why there are none."""
    if importlib.util.find_spec("pyopencl") is None:
        return [], "pyopencl isn't installed: pip install 'hetsched[opencl]'"
    command = [sys.executable, "-m", __name__]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=LIST_SECONDS, check=False
        )
        return msgspec.json.decode(done.stdout.splitlines()[-1], type=list[Found]), ""
    except subprocess.TimeoutExpired:
        return [], "OpenCL doesn't respond"
    except (IndexError, msgspec.DecodeError):
        lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        return [], f"OpenCL fails: {lines[-1]}"


def _process(name: str, found: Found, config: DeviceConfig) -> ProcessSpec:
    limit = config.memory_bytes()
    link = not (found.shares_memory if config.host_memory is None else config.host_memory)
    details = {
        "platform": str(found.platform),
        "number": str(found.number),
        "driver": found.platform_name,
        "memory": format_bytes(found.memory),
        "float64": "" if found.has_float64 else "no",
    }
    info = DeviceInfo(
        name=name,
        kind="opencl",
        identity=found.name,
        link=link,
        memory=(found.memory if limit is None else min(limit, found.memory)) if link else None,
        engines=config.engines if link else 0,
        details={key: value for key, value in details.items() if value},
    )
    # PoCL has one thread, as the cores are devices, too.
    env = {"POCL_MAX_PTHREAD_COUNT": "1"} if config.on_cpu else {}
    return ProcessSpec(package="hetsched.devices.opencl", device=info, config=config, env=env)


# ---- as a program


def list_devices() -> list[Found]:
    cl: Any = importlib.import_module("pyopencl")
    warnings.simplefilter("ignore", cl.CompilerWarning)  # Intel's compiler always says something
    return [
        _check(cl, platform_number, number, device)
        for platform_number, platform in enumerate(cl.get_platforms())
        for number, device in enumerate(platform.get_devices())
    ]


def _check(cl: Any, platform: int, number: int, device: Any) -> Found:
    try:
        problem = "" if _computes(cl, device) else "it computes wrongly"
    except Exception as error:
        problem = _reason(str(error))
    return Found(
        platform,
        number,
        name=device.name.strip(),
        platform_name=device.platform.name.strip(),
        is_cpu=bool(device.type & cl.device_type.CPU),
        memory=min(device.global_mem_size, device.max_mem_alloc_size),
        has_float64="cl_khr_fp64" in device.extensions,
        problem=problem,
        # A processor stands in for a GPU.
        shares_memory=bool(device.host_unified_memory and device.type & cl.device_type.GPU),
    )


def _reason(text: str) -> str:
    """Return one line: the compiler's error, if it has one."""
    lines = [" ".join(line.split()) for line in text.splitlines() if line.strip()]
    errors = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
    return (errors or lines or ["it can't compute"])[0][:200]


def _computes(cl: Any, device: Any) -> bool:
    context = cl.Context([device])
    queue = cl.CommandQueue(context)
    values = np.arange(1024, dtype=np.int32)
    buffer = cl.Buffer(context, cl.mem_flags.READ_WRITE, values.nbytes)
    cl.enqueue_copy(queue, buffer, values)
    cl.Program(context, SOURCE).build().twice(queue, values.shape, None, buffer)
    result = np.empty_like(values)
    cl.enqueue_copy(queue, result, buffer)
    return bool((result == 2 * values).all())


if __name__ == "__main__":
    sys.stdout.write(msgspec.json.encode(list_devices()).decode() + "\n")
