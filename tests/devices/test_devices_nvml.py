"""NVML's results and errors: each query is independent."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from hetsched.devices.cuda.nvml import snapshot


class NVMLError(Exception):
    def __init__(self, value: int) -> None:
        super().__init__(f"NVML error {value}")
        self.value = value


class FakeNvml:
    """Two GPUs, not in the order of their addresses. `fails`: query -> status."""

    NVMLError = NVMLError

    def __init__(self, **fails: int) -> None:
        self.fails = fails
        self.open = 0
        self.inits = 0

    def __getattribute__(self, name: str) -> Any:
        fails = object.__getattribute__(self, "fails") if name != "fails" else {}
        if name in fails:
            raise_it = NVMLError(fails[name])

            def failing(*arguments: Any) -> Any:
                raise raise_it

            return failing
        return object.__getattribute__(self, name)

    def nvmlInit(self) -> None:
        self.open += 1
        self.inits += 1

    def nvmlShutdown(self) -> None:
        self.open -= 1

    def nvmlDeviceGetCount(self) -> int:
        return 2

    def nvmlSystemGetDriverVersion(self) -> bytes:
        return b"580.95"

    def nvmlSystemGetCudaDriverVersion(self) -> int:
        return 13000

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetName(self, handle: int) -> str:
        return ["NVIDIA T4", "NVIDIA H200"][handle]

    def nvmlDeviceGetUUID(self, handle: int) -> str:
        return f"GPU-{handle}"

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> SimpleNamespace:
        return SimpleNamespace(free=10 << 30, total=16 << 30)

    def nvmlDeviceGetPciInfo(self, handle: int) -> SimpleNamespace:
        return SimpleNamespace(busId=["0000:09:00.0", "0000:01:00.0"][handle])

    def nvmlDeviceGetMigMode(self, handle: int) -> list[int]:
        return [0, 0]

    def nvmlDeviceGetDisplayActive(self, handle: int) -> int:
        return 0


def test_gpus_come_in_the_order_of_their_addresses() -> None:
    state = snapshot(FakeNvml())

    assert [gpu.name for gpu in state.gpus] == ["NVIDIA H200", "NVIDIA T4"]
    assert (state.driver, state.cuda, state.problem) == ("580.95", 13000, "")


@pytest.mark.parametrize(
    "query",
    ["nvmlDeviceGetMemoryInfo", "nvmlDeviceGetMigMode", "nvmlDeviceGetDisplayActive"],
)
@pytest.mark.parametrize("status", [3, 4], ids=["not supported", "no permission"])
def test_a_query_that_is_refused_affects_no_other(query: str, status: int) -> None:
    state = snapshot(FakeNvml(**{query: status}))

    assert len(state.gpus) == 2
    assert state.gpus[0].uuid == "GPU-1"
    assert not state.gpus[0].lost


class DividedNvml(FakeNvml):
    """The second GPU, at the first address, has MIG on, and two instances of three are there."""

    def nvmlDeviceGetMigMode(self, handle: int) -> list[int]:
        return [handle, handle]

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: int) -> int:
        return 3

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: int, number: int) -> int:
        if number == 1:
            raise NVMLError(6)
        return 10 * handle + number

    def nvmlDeviceGetName(self, handle: int) -> str:
        return f"H200 part {handle}" if handle >= 10 else super().nvmlDeviceGetName(handle)

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> SimpleNamespace:
        free = (1 if handle >= 10 else 100) << 30
        return SimpleNamespace(free=free, total=2 * free)


def test_instances_of_a_divided_gpu_stand_in_its_place() -> None:
    gpus = snapshot(DividedNvml()).gpus

    assert [(gpu.index, gpu.uuid) for gpu in gpus] == [(0, "GPU-10"), (0, "GPU-12"), (1, "GPU-0")]
    assert [gpu.name for gpu in gpus] == ["H200 part 10", "H200 part 12", "NVIDIA T4"]
    assert [gpu.memory_free for gpu in gpus] == [1 << 30, 1 << 30, 100 << 30]
    assert gpus[0].pci == "0000:01:00.0"
    assert not any(gpu.mig for gpu in gpus)


def test_a_gpu_off_the_bus_is_lost() -> None:
    assert snapshot(FakeNvml(nvmlDeviceGetMemoryInfo=15)).gpus[0].lost


@pytest.mark.parametrize(
    ("status", "words"),
    [(12, "no NVIDIA driver"), (9, "no NVIDIA driver"), (18, "different versions"), (999, "999")],
)
def test_without_a_driver_there_is_one_line(status: int, words: str) -> None:
    state = snapshot(FakeNvml(nvmlInit=status))

    assert state.gpus == ()
    assert words in state.problem


def test_each_snapshot_has_a_session_of_its_own() -> None:
    """One doesn't see GPUs that came later."""
    nvml = FakeNvml()

    snapshot(nvml)
    snapshot(nvml)

    assert (nvml.open, nvml.inits) == (0, 2)


def test_a_driver_that_does_not_respond_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hetsched.devices.cuda.nvml.SNAPSHOT_SECONDS", 0.05)
    nvml, returns = FakeNvml(), threading.Event()
    nvml.nvmlDeviceGetCount = lambda: int(returns.wait())  # type: ignore[method-assign]

    assert snapshot(nvml).problem == "the NVIDIA driver doesn't respond"
    returns.set()
