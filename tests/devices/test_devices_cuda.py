from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from hetsched.config import DeviceConfig
from hetsched.device import DeviceInfo
from hetsched.devices.accelerator.runtime import Fault, translated
from hetsched.devices.base import DeviceFault, DeviceOutOfMemory
from hetsched.devices.cuda.device import classify, sleep_while_waiting
from hetsched.devices.cuda.nvml import Gpu, Snapshot, snapshot
from hetsched.devices.cuda.probe import CONTEXT_BYTES, select_gpus, visible
from hetsched.errors import JobFailed, Unavailable

# ---- errors


def vendor_error(name: str, attribute: str = "status") -> Callable[[int], Exception]:
    def make(number: int) -> Exception:
        error = type(name, (RuntimeError,), {})(f"{name} {number}")
        setattr(error, attribute, number)
        return error

    return make


CudaError, CuFFT = vendor_error("CUDARuntimeError"), vendor_error("CuFFTError", "result")
CuBLAS, CuSparse = vendor_error("CUBLASError"), vendor_error("CuSparseError")
CuSolver, CuRand = vendor_error("CUSOLVERError"), vendor_error("CURANDError")
Nvrtc = vendor_error("NVRTCError")

CLASSES: dict[Fault, list[Exception]] = {
    Fault.MEMORY: [CudaError(2), MemoryError(), CuFFT(2), CuBLAS(3), CuSparse(2), CuSparse(11),
                   CuSolver(2), CuRand(102), Nvrtc(1)],
    Fault.STICKY: [CudaError(700), CudaError(719), CudaError(999), CuFFT(6), CuBLAS(13),
                   CuSparse(6), CuSolver(7), CuRand(201)],
    Fault.USAGE: [CuSparse(3), Nvrtc(6), CudaError(1), CudaError(712), CuFFT(8), ValueError("?")],
    Fault.PLAN: [CuFFT(5)],
}  # fmt: skip


def test_each_error_has_its_class() -> None:
    for fault, errors in CLASSES.items():
        assert [classify(error) for error in errors] == [fault] * len(errors)


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (Fault.ABSENT, Unavailable),
        (Fault.STICKY, DeviceFault),
        (Fault.PLAN, DeviceFault),
        (Fault.MEMORY, DeviceOutOfMemory),
        (Fault.USAGE, JobFailed),
    ],
)
def test_errors_become_ours_in_one_line(fault: Fault, expected: type[Exception]) -> None:
    with pytest.raises(expected, match=r"gpu0.* two lines"), translated("gpu0", lambda _: fault):
        raise ValueError("two\nlines")


# ---- which GPUs are used

GIB = 1 << 30
H200 = Gpu(0, "NVIDIA H200", "GPU-aaaa", "0000:01", 140 * GIB, 141 * GIB)
T4 = Gpu(1, "NVIDIA T4", "GPU-bbbb", "0000:02", 15 * GIB, 16 * GIB)
WITHOUT_CUPY = "is present but CuPy isn't installed: pip install 'hetsched[cuda13]'"
SEEN = Snapshot((H200, T4), "580.1", 13000)


def select(
    machine: Snapshot, *tables: DeviceConfig, allowed: str | None = None, cupy: bool = True
) -> tuple[list[DeviceInfo], dict[str, str]]:
    found = select_gpus(list(enumerate(tables)), machine, allowed, cupy)
    return [process.device for process in found.processes], found.absent


def gpu_table(**settings: Any) -> DeviceConfig:
    return DeviceConfig(kind="gpu", optional=True, **settings)


def test_the_probe_describes_every_gpu() -> None:
    infos, absent = select(SEEN, gpu_table(memory="1GiB"))

    assert ([info.name for info in infos], absent) == (["gpu0", "gpu1"], {})
    first = infos[0]
    assert (first.kind, first.identity, first.link) == ("cuda", "NVIDIA H200", True)
    assert (first.details["visible"], first.details["cuda"]) == ("GPU-aaaa", "13.0")
    assert [info.memory for info in infos] == [GIB, GIB]


@pytest.mark.parametrize(
    ("machine", "allowed", "cupy", "count", "absent"),
    [
        (SEEN, None, False, None,
         {"gpu0": f"NVIDIA H200 {WITHOUT_CUPY}", "gpu1": f"NVIDIA T4 {WITHOUT_CUPY}"}),
        (Snapshot(problem="no NVIDIA driver"), None, True, None, {"gpu0": "no NVIDIA driver"}),
        (SEEN, None, True, 3, {"gpu2": "this machine has only 2 GPUs"}),
        (SEEN, "", True, None, {"gpu0": "CUDA_VISIBLE_DEVICES='' hides every GPU"}),
        (Snapshot((Gpu(0, "NVIDIA H100", "GPU-a", mig=True),)), None, True, None,
         {"gpu0": "NVIDIA H100 has MIG on but no instance: create one, or turn MIG off"}),
        (Snapshot((Gpu(0, "NVIDIA H100", "GPU-a", lost=True),)), None, True, None,
         {"gpu0": "NVIDIA H100 is lost or needs a reset: ask the machine's administrator"}),
    ],
)  # fmt: skip
def test_the_probe_says_in_one_line_why_a_gpu_is_absent(
    machine: Snapshot, allowed: str | None, cupy: bool, count: int | None, absent: dict[str, str]
) -> None:
    assert select(machine, gpu_table(count=count), allowed=allowed, cupy=cupy)[1] == absent


def test_a_second_table_gets_the_gpus_that_the_first_has_left() -> None:
    one = gpu_table(count=1)

    infos, absent = select(SEEN, one, one, one)

    assert [(info.name, info.identity) for info in infos] == [
        ("gpu0", "NVIDIA H200"),
        ("gpu1", "NVIDIA T4"),
    ]
    assert absent == {"gpu2": "this machine has only 2 GPUs"}


def test_gpus_without_a_uuid_are_told_apart_by_their_number() -> None:
    machine = Snapshot((Gpu(0, "GRID T4", ""), Gpu(1, "GRID T4", "")), "580.1", 13000)

    infos, _ = select(machine, gpu_table())

    assert [info.details["visible"] for info in infos] == ["0", "1"]


@pytest.mark.parametrize(
    ("free", "display", "limit", "memory"),
    [
        (24 * GIB, False, None, 24 * GIB - (512 << 20)),
        (24 * GIB, True, None, 24 * GIB - int(0.1 * 24 * GIB)),
        (24 * GIB, False, "1GiB", GIB),
        (100, False, None, 0),
    ],
)
def test_a_reserve_is_left_and_more_for_a_desktop(
    free: int, display: bool, limit: str | None, memory: int
) -> None:
    gpu = Gpu(0, "T4", "GPU-a", "", free + CONTEXT_BYTES, 24 * GIB, display)

    (info,), _ = select(Snapshot((gpu,)), gpu_table(memory=limit))

    assert info.memory == memory


SLICES = (Gpu(0, "1g.10gb", "MIG-1111"), Gpu(0, "3g.40gb", "MIG-2222"), Gpu(1, "T4", "GPU-bbbb"))


@pytest.mark.parametrize(
    ("gpus", "allowed", "uuids"),
    [
        (SEEN.gpus, None, ["GPU-aaaa", "GPU-bbbb"]),
        (SEEN.gpus, "1,0", ["GPU-bbbb", "GPU-aaaa"]),
        (SEEN.gpus, "GPU-b", ["GPU-bbbb"]),
        (SEEN.gpus, "0,-1,1", ["GPU-aaaa"]),
        (SEEN.gpus, "", []),
        (SEEN.gpus, "7", []),
        (SLICES, "MIG-2", ["MIG-2222"]),
        (SLICES, "MIG-", []),
        (SLICES, "1,0", ["GPU-bbbb", "MIG-1111"]),
        (SLICES, None, ["MIG-1111", "MIG-2222", "GPU-bbbb"]),
    ],
)
def test_visible_devices_are_those_of_cuda(
    gpus: tuple[Gpu, ...], allowed: str | None, uuids: list[str]
) -> None:
    assert [gpu.uuid for gpu in visible(gpus, allowed)] == uuids


# ---- NVML: each query is independent


class NVMLError(Exception):
    def __init__(self, value: int) -> None:
        super().__init__(f"NVML error {value}")
        self.value = value


def fake_nvml(fails: dict[str, int] | None = None, **queries: Any) -> Any:
    """Two GPUs, not in the order of their addresses; some queries fail with a status."""
    addresses = ["0000:09:00.0", "0000:01:00.0"]
    answers: dict[str, Any] = {
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlDeviceGetCount": lambda: 2,
        "nvmlSystemGetDriverVersion": lambda: b"580.95",
        "nvmlSystemGetCudaDriverVersion": lambda: 13000,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetName": lambda handle: ["NVIDIA T4", "NVIDIA H200"][handle % 10],
        "nvmlDeviceGetUUID": lambda handle: f"GPU-{handle}",
        "nvmlDeviceGetMemoryInfo": lambda handle: SimpleNamespace(free=GIB, total=2 * GIB),
        "nvmlDeviceGetPciInfo": lambda handle: SimpleNamespace(busId=addresses[handle]),
        "nvmlDeviceGetMigMode": lambda handle: [0, 0],
        "nvmlDeviceGetDisplayActive": lambda handle: 0,
        **queries,
    }

    def failing(status: int) -> Callable[..., Any]:
        def fail(*arguments: Any) -> Any:
            raise NVMLError(status)

        return fail

    answers |= {query: failing(status) for query, status in (fails or {}).items()}
    return SimpleNamespace(NVMLError=NVMLError, **answers)


def test_gpus_come_in_the_order_of_their_addresses() -> None:
    state = snapshot(fake_nvml())

    assert [gpu.name for gpu in state.gpus] == ["NVIDIA H200", "NVIDIA T4"]
    assert (state.driver, state.cuda, state.problem) == ("580.95", 13000, "")


@pytest.mark.parametrize("query", ["MemoryInfo", "MigMode", "DisplayActive"])
@pytest.mark.parametrize("status", [3, 4, 15], ids=["not supported", "no permission", "lost"])
def test_a_query_that_is_refused_affects_no_other(query: str, status: int) -> None:
    state = snapshot(fake_nvml({f"nvmlDeviceGet{query}": status}))

    assert [gpu.uuid for gpu in state.gpus] == ["GPU-1", "GPU-0"]
    assert state.gpus[0].lost == (status == 15)


def test_instances_of_a_divided_gpu_stand_in_its_place() -> None:
    def instance(handle: int, number: int) -> int:
        if number == 1:
            raise NVMLError(6)
        return 10 * handle + number

    gpus = snapshot(
        fake_nvml(
            nvmlDeviceGetMigMode=lambda handle: [handle, handle],
            nvmlDeviceGetMaxMigDeviceCount=lambda handle: 3,
            nvmlDeviceGetMigDeviceHandleByIndex=instance,
            nvmlDeviceGetName=lambda handle: f"part {handle}",
        )
    ).gpus

    assert [(gpu.index, gpu.uuid) for gpu in gpus] == [(0, "GPU-10"), (0, "GPU-12"), (1, "GPU-0")]
    assert [gpu.name for gpu in gpus] == ["part 10", "part 12", "part 0"]
    assert gpus[0].pci == "0000:01:00.0"
    assert not any(gpu.mig for gpu in gpus)


@pytest.mark.parametrize(
    ("status", "words"),
    [(12, "no NVIDIA driver"), (9, "no NVIDIA driver"), (18, "different versions"), (999, "999")],
)
def test_without_a_driver_there_is_one_line(status: int, words: str) -> None:
    state = snapshot(fake_nvml({"nvmlInit": status}))

    assert state.gpus == ()
    assert words in state.problem


def test_a_driver_that_does_not_respond_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hetsched.devices.cuda.nvml.SNAPSHOT_SECONDS", 0.05)
    returns = threading.Event()

    state = snapshot(fake_nvml(nvmlDeviceGetCount=lambda: int(returns.wait())))

    assert state.problem == "the NVIDIA driver doesn't respond"
    returns.set()


# ---- calls of the driver and of CuPy


@pytest.mark.parametrize(
    ("statuses", "sleeps"),
    [
        ({}, True),
        ({"cuDevicePrimaryCtxSetFlags_v2": -1}, False),  # an older driver has no such call
        ({"cuInit": 100}, False),
        ({"cuDeviceGet": 100}, False),
        ({"cuDevicePrimaryCtxSetFlags_v2": 100}, False),
    ],
)
def test_waits_of_the_context_sleep_if_the_driver_can(
    statuses: dict[str, int], sleeps: bool
) -> None:
    flags = []

    class Driver:
        def __getattr__(self, name: str) -> Callable[..., int]:
            if statuses.get(name, 0) < 0:
                raise AttributeError(name)

            def call(*arguments: Any) -> int:
                flags.extend([arguments[1]] if "SetFlags" in name else [])
                return statuses.get(name, 0)

            return call

    assert sleep_while_waiting(Driver()) is sleeps
    assert not sleeps or flags == [4]
