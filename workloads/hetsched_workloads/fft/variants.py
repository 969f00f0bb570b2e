"""The FFT variants that are installed, likely fastest first. Imports no library."""

from __future__ import annotations

import functools

from hetsched.workload import Variant
from hetsched_workloads.installed import CUPY, late, processor, shared_library, version

HERE = "hetsched_workloads.fft."


@functools.cache
def variants(kind: str) -> tuple[Variant, ...]:
    """Return the installed variants for "cpu" or "cuda"; none for other kinds."""
    if kind == "cuda":
        return _cuda()
    return _cpu() if kind == "cpu" else ()


def _cpu() -> tuple[Variant, ...]:
    versions = {
        "pyfftw": version("pyfftw", "pyFFTW"),
        "ducc0": version("ducc0", "ducc0"),
        "mkl": (shared_library("mkl", "libmkl_rt.so") or (None,))[0],
        "scipy": version("scipy", "scipy"),
    }
    files = {"pyfftw": "pyfftw_cpu", "ducc0": "ducc_cpu", "mkl": "mkl_cpu", "scipy": "scipy_cpu"}
    # MKL has optimised kernels for Intel's processors only; on others it loads generic ones.
    is_intel = processor()[0] == "GenuineIntel"
    order = (
        ("mkl", "pyfftw", "ducc0", "scipy") if is_intel else ("pyfftw", "ducc0", "mkl", "scipy")
    )
    return tuple(
        # Threads of MKL need its OpenMP, which leaves files in shared memory after a kill.
        Variant(name, installed, late(HERE + files[name]), threaded=name != "mkl")
        for name in order
        if (installed := versions[name])
    )


def _cuda() -> tuple[Variant, ...]:
    installed = version("cupy", *CUPY)
    if not installed:
        return ()
    return (Variant("cufft", f"cupy-{installed}", late(HERE + "cupy_cuda"), in_place={"y": "x"}),)
