"""The FFT variants that are installed, likely fastest first. Imports no library."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

from hetsched.machine_limits import processor
from hetsched.workload import Kernel, KernelContext, Tuning, Variant, version
from hetsched_workloads.installed import by_opencl_fft, late, shared_library

if TYPE_CHECKING:
    from hetsched_workloads.fft.declaration import FftParams

HERE = "hetsched_workloads.fft."
CPU = ("pyfftw", "ducc0", "mkl", "scipy")


@functools.cache
def variants(kind: str) -> tuple[Variant, ...]:
    """Return the installed variants for "cpu", "cuda" or "opencl"; none for other kinds."""
    if kind == "cpu":
        return _cpu()
    if kind == "cuda" and (installed := version("cupy")):
        return (Variant("cufft", f"cupy-{installed}", _make(f"cupy {installed}", "cupy_cuda")),)
    return by_opencl_fft(late(HERE + "opencl")) if kind == "opencl" else ()


def _cpu() -> tuple[Variant, ...]:
    versions = {name: version(name) for name in CPU}
    versions["mkl"] = (shared_library("mkl", "libmkl_rt.so") or (None,))[0]
    # MKL has optimised kernels for Intel's processors only; on others it loads generic ones.
    order = sorted(CPU, key=lambda name: name != "mkl") if "Intel" in processor() else CPU
    return tuple(
        # Threads of MKL need its OpenMP, which leaves files in shared memory after a kill.
        Variant(
            name,
            installed,
            _make(f"{name} {installed}", "pyfftw_cpu" if name == "pyfftw" else ""),
            threaded=name != "mkl",
            tuning=_tuning(f"{name} {installed}"),
        )
        for name in order
        if (installed := versions[name])
    )


def _make(library: str, file: str) -> Callable[[FftParams, int, KernelContext], Kernel]:
    """Return what makes a kernel; `file`: has the library's own for complex planes, if any."""
    planes = late(HERE + file)

    def make(p: FftParams, chunk: int, context: KernelContext) -> Kernel:
        if file and p.is_planes:
            kernel: Kernel = planes(p, chunk, context)
            return kernel
        from hetsched_workloads.fft import libraries

        return libraries.make(library, p, chunk, context)

    return make


def _tuning(library: str) -> Callable[[FftParams, int, str], Tuning]:
    """Return how long it takes to time the calls of `library`, and to make FFTW's plans."""

    @functools.lru_cache(maxsize=64)  # every job asks, of each core
    def left(p: FftParams, threads: int, cache: str, changed: int) -> Tuning:
        from hetsched_workloads.fft import tuned
        from hetsched_workloads.fft.call_sizes import seconds_to_time

        if not p.is_planes:
            return Tuning()
        if not library.startswith("pyfftw "):
            return Tuning(seconds_to_time(library, p, threads, cache))
        done = tuned.fftw_effort(library, p, threads, cache)
        calls = seconds_to_time(library, p, threads, cache, tuned.MAX_FFTW_CALL_BYTES)
        seconds = tuned.planning_seconds(tuned.next_effort(done, p), p)
        return Tuning(calls + seconds) if done else Tuning(seconds, is_needed=True)

    def tuning(p: FftParams, threads: int, cache: str) -> Tuning:
        from hetsched_workloads.fft import tuned

        return left(p, threads, cache, tuned.changed(cache))

    return tuning
