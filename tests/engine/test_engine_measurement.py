"""The plan of a measuring job: the same share for every device."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from device_toys import Affine, AffineParams

from hetsched.device import DeviceInfo
from hetsched.engine.planning.job_plan import equal_plan
from hetsched.errors import Unavailable, UsageError
from hetsched.memory import MemoryDemand
from hetsched.plans.device_plan import Mode

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


class Fixed(Affine):
    def load(self, p: Any) -> int:
        return 8


def test_a_workload_without_a_parameter_for_its_load_cannot_be_measured() -> None:
    with pytest.raises(UsageError, match="affine can't be measured: no parameter is its load"):
        Fixed().resized(AffineParams(), 8)
