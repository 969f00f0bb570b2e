"""Calls of CUDA through CuPy and the driver: with stubs of them, and with CuPy if installed."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import textwrap
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from hetsched.devices.accelerator.runtime import Memory
from hetsched.devices.cuda import device as cuda
from hetsched.devices.cuda.driver import sleep_while_waiting, sleeps_while_waiting
from hetsched.devices.cuda.faults import NOT_READY, CudaError


class FakeDriver:
    """libcuda: `statuses` of its calls; what the flags were set to, and before what."""

    def __init__(self, **statuses: int) -> None:
        self._statuses = statuses
        self.flags: int | None = None
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Callable[..., int]:
        if name in self._statuses and self._statuses[name] < 0:
            raise AttributeError(name)

        def call(*arguments: Any) -> int:
            self.calls.append(name)
            if "SetFlags" in name:
                self.flags = arguments[1]
            if name == "cuDevicePrimaryCtxGetState":
                arguments[1]._obj.value, arguments[2]._obj.value = 12, 1
            return self._statuses.get(name, 0)

        return call


def test_waits_of_the_context_sleep() -> None:
    library = FakeDriver()

    assert sleep_while_waiting(library)
    assert library.calls == ["cuInit", "cuDeviceGet", "cuDevicePrimaryCtxSetFlags_v2"]
    assert library.flags == 4
    assert sleeps_while_waiting(library)


def test_an_older_driver_has_the_older_call() -> None:
    library = FakeDriver(cuDevicePrimaryCtxSetFlags_v2=-1)

    assert sleep_while_waiting(library)
    assert library.flags == 4


@pytest.mark.parametrize("call", ["cuInit", "cuDeviceGet", "cuDevicePrimaryCtxSetFlags_v2"])
def test_a_driver_that_refuses_leaves_the_flags(call: str) -> None:
    assert not sleep_while_waiting(FakeDriver(**{call: 100}))


def test_a_pending_event_leaves_no_error_behind() -> None:
    """Thrust and CUB report the thread's last error as that of their own kernel."""
    thread = SimpleNamespace(last_error=0)

    def query(pointer: int) -> int:
        thread.last_error = NOT_READY
        return NOT_READY

    def check(status: int) -> None:
        thread.last_error = 0
        raise CudaError(status)

    calls = SimpleNamespace(eventQuery=query, check_status=check, CUDARuntimeError=CudaError)
    event = SimpleNamespace(ptr=1)
    cupy = SimpleNamespace(cuda=SimpleNamespace(runtime=calls, Event=lambda block: event))

    assert not cuda._CupyEvent(cupy).is_done()
    assert thread.last_error == 0


def test_kernels_may_fill_the_memory_and_what_they_returned_is_free() -> None:
    """A pool without `set_limit`: kernels of iterative jobs keep data there that grow with it."""
    pool = SimpleNamespace(malloc=None, total_bytes=lambda: 700, free_bytes=lambda: 300)
    calls = SimpleNamespace(
        setDevice=lambda number: None,
        deviceSynchronize=lambda: None,
        memGetInfo=lambda: (1000, 2000),
    )
    cache = SimpleNamespace(set_size=lambda size: None)
    device = SimpleNamespace(get_cublas_handle=lambda: None)
    cupy = SimpleNamespace(
        cuda=SimpleNamespace(
            runtime=calls, MemoryPool=lambda: pool, set_allocator=lambda f: None, device=device
        ),
        fft=SimpleNamespace(config=SimpleNamespace(get_plan_cache=lambda: cache)),
    )
    runtime = cuda.CupyRuntime(cupy)

    runtime.warm_up()

    assert runtime.memory() == Memory(free=1000, total=2000, reusable=300)


CUPY = pytest.mark.skipif(importlib.util.find_spec("cupy") is None, reason="CuPy isn't installed")


@CUPY
def test_cupys_arrays_lie_where_the_block_says() -> None:
    import cupy  # its pointers work without a driver

    block = cuda._CupyBlock.__new__(cuda._CupyBlock)
    block._cupy, block.address, block.nbytes = cupy, 0x7000, 4096
    block.memory = cupy.cuda.UnownedMemory(0x7000, 4096, None, device_id=0)

    queue = cuda._CupyQueue.__new__(cuda._CupyQueue)
    queue._cupy = cupy
    array = queue.array(block, 512, (2, 8), "complex64")

    assert array.data.ptr == 0x7000 + 512
    assert (array.shape, array.nbytes) == ((2, 8), 128)


@CUPY
def test_cupy_without_a_driver_is_unavailable_in_one_line() -> None:
    code = textwrap.dedent("""
        from hetsched.device import DeviceInfo
        from hetsched.devices.cuda.device import open_cupy
        from hetsched.errors import Unavailable
        details = {"visible": "GPU-none"}
        try:
            open_cupy(DeviceInfo(name="gpu0", kind="cuda", identity="", details=details), "")
        except Unavailable as error:
            print(error)
    """)

    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60
    )

    assert done.stdout.startswith("gpu0 can't be used: cudaError")
    assert done.stderr == ""
