"""NVML's results and errors: each query is independent."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from hetsched.devices.cuda.nvml import snapshot, throttled


class NVMLError(Exception):
    def __init__(self, value: int) -> None:
        super().__init__(f"NVML error {value}")
        self.value = value


class FakeNvml:
    """Two GPUs, not in the order of their addresses. `fails`: query -> status."""

    NVMLError = NVMLError

    def __init__(self, **fails: int) -> None:
        self._fails = fails
        self.open = 0

    def __getattribute__(self, name: str) -> Any:
        fails = object.__getattribute__(self, "_fails") if name != "_fails" else {}
        if name in fails:
            raise_it = NVMLError(fails[name])

            def failing(*arguments: Any) -> Any:
                raise raise_it

            return failing
        return object.__getattribute__(self, name)

    def nvmlInit(self) -> None:
        self.open += 1

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

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> int:
        return 0

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

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle: int) -> int:
        return 0x4 | 0x40

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: int) -> int:
        return 0x8


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


def test_the_session_is_always_closed() -> None:
    nvml = FakeNvml(nvmlDeviceGetCount=3)

    snapshot(nvml)

    assert nvml.open == 0


def test_throttling_is_reported_in_words_and_a_power_cap_is_not_reported() -> None:
    assert throttled("GPU-0", FakeNvml()) == ("too hot (hardware)",)


def test_older_drivers_are_asked_by_the_older_name() -> None:
    nvml = FakeNvml(nvmlDeviceGetCurrentClocksEventReasons=3)

    assert throttled("GPU-0", nvml) == ("hardware slowdown",)


def test_unknown_throttling_is_none() -> None:
    assert throttled("GPU-0", FakeNvml(nvmlInit=12)) == ()
