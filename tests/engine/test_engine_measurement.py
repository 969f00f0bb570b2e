"""The plan of a measuring job: the same share for every device."""

from __future__ import annotations

import itertools

import msgspec
import pytest

from hetsched.device import DeviceInfo
from hetsched.engine.planning.job_plan import equal_plan
from hetsched.errors import Unavailable, UsageError
from hetsched.memory import MemoryDemand
from hetsched.plans.device_plan import Mode
from hetsched.workload import Workload, find

CORE = DeviceInfo(name="cpu0", kind="cpu", identity="c")
LINKED = DeviceInfo(name="emu0", kind="emulated", identity="e", link=True, memory=20480, engines=2)
DEMAND = MemoryDemand(input_bytes=512, work_bytes=0, output_bytes=512)
SMALL = MemoryDemand(input_bytes=512, work_bytes=0, output_bytes=512, limit=20480)


def test_every_device_gets_the_same_in_one_chunk() -> None:
    devices = [(CORE, DEMAND), (LINKED, SMALL)]
    plan = equal_plan(32, devices, {"cpu0": "a", "emu0": "b"}, lambda info: ["a", "b"])

    core, linked = plan.assignments
    assert [(c.first, c.count, c.barrier, c.last) for c in core.chunks] == [(0, 16, False, True)]
    assert [(c.first, c.count, c.barrier, c.last) for c in linked.chunks] == [
        (16, 16, False, True)
    ]
    assert (core.variant, core.slot_memory) == ("a", 0)
    assert (linked.variant, linked.slot_memory) == ("b", 16384)
    assert (plan.predicted_seconds, linked.slots, linked.plan.mode) == (
        None, 1, Mode.INSTALLMENTS,
    )  # fmt: skip


def test_a_share_larger_than_memory_runs_chunk_by_chunk() -> None:
    plan = equal_plan(50, [(LINKED, SMALL)], {"emu0": "a"}, lambda info: ["a"])

    (linked,) = plan.assignments
    assert linked.plan.sub_distributions == ((17,), (17,), (16,))
    assert [c.barrier for c in linked.chunks] == [False, True, True]
    assert [c.first for c in linked.chunks] == list(itertools.accumulate((0, 17, 17)))
    assert [c.id for c in linked.chunks] == [0, 1, 2]


@pytest.mark.parametrize(
    ("variants", "why"),
    [({"gpu0": "a"}, "gpu0.*no longer available"), ({"cpu0": "b"}, "cpu0.*with b.*doesn't work")],
)
def test_missing_devices_and_variants_are_errors(variants: dict[str, str], why: str) -> None:
    with pytest.raises(Unavailable, match=why):
        equal_plan(8, [(CORE, DEMAND)], variants, lambda info: ["a"])


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("fft", {"batch": "3x16x16", "direction": "inverse"}),
        ("matrix_update", {"rows": 3, "cols": 7, "inner": 3}),
        ("matrix_update", {"rows": 7, "cols": 7, "inner": 7}),
    ],
)
def test_a_workload_keeps_its_speed_when_its_load_is_changed(name: str, given: object) -> None:
    workload = find(name)
    before = workload.infer(given, {})  # type: ignore[arg-type]

    for load in (1, 3, 7, 500):
        after = workload.resized(before, load)
        assert workload.load(after) == load
        assert workload.speed_key(after) == workload.speed_key(before)


class Fixed(msgspec.Struct, frozen=True):
    cells: int = 8
    steps: int = 8
    name: str = "x"


def test_a_workload_whose_load_cannot_be_changed_is_an_error() -> None:
    class Rigid(find("fft").__class__):  # type: ignore[misc]
        name = "rigid"

        def load(self, p: Fixed) -> int:
            return 8

        def speed_key(self, p: Fixed) -> str:
            return "always"

        resized = Workload.resized

    with pytest.raises(UsageError, match="rigid can't be measured: no parameter is its load"):
        Rigid().resized(Fixed(), 8)
