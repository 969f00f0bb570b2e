"""Describes the machine that figures depend on: processor, memory, versions, load."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from pathlib import Path
from typing import Any

PACKAGES = ("hetsched", "numpy", "scipy", "pyfftw", "ducc0", "mkl", "mkl_fft", "pyzmq")
KERNELS = ("mkl", "fftw", "ducc", "openblas", "pocketfft", "iomp", "gomp", "cufft", "cublas")


def describe() -> dict[str, Any]:
    return {
        "processor": processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "packages": {name: version(name) for name in PACKAGES},
        "load_average": round(os.getloadavg()[0], 2),
    }


def processor() -> str:
    """Return the processor's model as reported by the kernel, else the architecture."""
    fields = dict(
        line.split(":", 1)
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if ":" in line
    )
    facts = {key.strip(): value.strip() for key, value in fields.items()}
    name = facts.get("model name", platform.machine())
    return f"{name}, family {facts['cpu family']}" if "cpu family" in facts else name


def intel() -> bool:
    return "GenuineIntel" in Path("/proc/cpuinfo").read_text()


def version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def loaded(pid: int | str = "self") -> list[str]:
    """Return the libraries with kernels that process `pid` has mapped."""
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    files = {Path(line.split(maxsplit=5)[5]).name for line in lines if ".so" in line}
    return sorted(name for name in files if any(word in name.lower() for word in KERNELS))
