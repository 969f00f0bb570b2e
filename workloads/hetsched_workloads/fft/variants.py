"""The FFT variants that are installed, likely fastest first. Imports no library."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

from hetsched.workload import Tuning, Variant
from hetsched_workloads.installed import CUPY, late, processor, shared_library, version

if TYPE_CHECKING:
    from hetsched_workloads.fft.declaration import FftParams

HERE = "hetsched_workloads.fft."


@functools.cache
def variants(kind: str) -> tuple[Variant, ...]:
    """Return the installed variants for "cpu", "cuda" or "opencl"; none for other kinds."""
    if kind == "cuda":
        return _cuda()
    if kind == "opencl":
        installed = version("reikna", "reikna") and version("pyopencl", "pyopencl")
        make = late(HERE + "reikna_opencl")
        return (Variant("reikna", str(version("reikna", "reikna")), make),) if installed else ()
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
        Variant(
            name,
            installed,
            late(HERE + files[name]),
            threaded=name != "mkl",
            tuning=_tuning(f"{name} {installed}"),
        )
        for name in order
        if (installed := versions[name])
    )


def _tuning(library: str) -> Callable[[FftParams, int, str], Tuning]:
    """Return how long it takes to time the calls of `library`, and to make FFTW's plans."""

    @functools.lru_cache(maxsize=64)  # every job asks, of each core
    def left(p: FftParams, threads: int, cache: str, changed: int) -> Tuning:
        from hetsched_workloads.fft import tuned
        from hetsched_workloads.fft.call_sizes import STREAM_BYTES, seconds_to_time

        if not library.startswith("pyfftw "):
            return Tuning(seconds_to_time(library, p, threads, cache, STREAM_BYTES))
        done = tuned.fftw_effort(library, p, threads, cache)
        calls = seconds_to_time(library, p, threads, cache, tuned.MAX_FFTW_CALL_BYTES)
        seconds = tuned.planning_seconds(tuned.next_effort(done, p), p)
        return Tuning(calls + seconds) if done else Tuning(seconds, is_needed=True)

    def tuning(p: FftParams, threads: int, cache: str) -> Tuning:
        from hetsched_workloads.fft import tuned

        return left(p, threads, cache, tuned.changed(cache))

    return tuning


def _cuda() -> tuple[Variant, ...]:
    installed = version("cupy", *CUPY)
    if not installed:
        return ()
    return (Variant("cufft", f"cupy-{installed}", late(HERE + "cupy_cuda"), in_place={"y": "x"}),)
