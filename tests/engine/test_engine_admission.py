from __future__ import annotations

import pytest

from hetsched.device import DeviceInfo
from hetsched.engine.admission.check import select_devices
from hetsched.errors import UsageError

KNOWN = (
    DeviceInfo(name="cpu0", kind="cpu", identity="x"),
    DeviceInfo(name="cpu1", kind="cpu", identity="x"),
    DeviceInfo(name="team0", kind="cpu", identity="x x2", members=("cpu0", "cpu1")),
    DeviceInfo(name="emu0", kind="emulated", identity="e"),
)


@pytest.mark.parametrize(
    ("requested", "chosen"),
    [
        ((), ("cpu0", "cpu1", "team0", "emu0")),
        (("cpu",), ("cpu0", "cpu1", "team0")),
        (("team",), ("team0",)),
        (("team0", "emu"), ("team0", "emu0")),
        (("cpu1", "cpu0"), ("cpu0", "cpu1")),
    ],
)
def test_cpu_is_all_cores_one_by_one_or_as_a_team(
    requested: tuple[str, ...], chosen: tuple[str, ...]
) -> None:
    assert select_devices(requested, KNOWN, {}) == chosen


def test_a_group_without_devices_here_is_not_suggested_for_itself() -> None:
    with pytest.raises(UsageError) as caught:
        select_devices(["emu"], KNOWN[:2], {})

    assert str(caught.value) == "no device 'emu'; devices here: cpu0, cpu1"
