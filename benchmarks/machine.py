"""Describes the machine that figures depend on: processor, memory, versions, load."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from pathlib import Path
from typing import Any

PACKAGES = (
    "hetsched", "numpy", "scipy", "pyfftw", "ducc0", "mkl", "mkl_fft", "numba", "scikit-learn",
    "pyzmq", "msgspec", "apsw", "cupy-cuda12x", "pyopencl",
)  # fmt: skip


def describe() -> dict[str, Any]:
    return {
        "processor": processor(),
        "cores": cores(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "packages": {name: version(name) for name in PACKAGES},
        "load_average": round(os.getloadavg()[0], 2),
    }


def cores() -> int:
    return len(os.sched_getaffinity(0))


def processor() -> str:
    """Return the processor's name with the numbers that tell its generation, if there are any."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    facts = {key.strip(): text.strip() for key, _, text in (line.partition(":") for line in lines)}
    name = facts.get("model name", platform.machine())
    numbers = [
        f"{key.split()[-1]} {facts[key]}" for key in ("cpu family", "model") if key in facts
    ]
    return ", ".join([name, *numbers])


def version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
