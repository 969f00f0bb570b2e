"""Measurements: which job is next, when a size is accurate, and each device's share."""

from __future__ import annotations

import itertools
import math
import random

import msgspec
import pytest

from hetsched.device import DeviceInfo
from hetsched.engine.planning.measure import MeasurementCase, MeasurementSchedule, equal_plan
from hetsched.errors import Unavailable, UsageError
from hetsched.job import DeviceReport, JobReport
from hetsched.memory import MemoryDemand
from hetsched.plans.device_plan import Mode
from hetsched.workload import Workload, find

CORE = DeviceInfo(name="cpu0", kind="cpu", identity="c")
LINKED = DeviceInfo(name="emu0", kind="emulated", identity="e", link=True, memory=20480, engines=2)
DEMAND = MemoryDemand(input_bytes=512, work_bytes=0, output_bytes=512)
SMALL = MemoryDemand(input_bytes=512, work_bytes=0, output_bytes=512, limit=20480)


def device(name: str, units: int, seconds: float, copies: float = 0.0) -> DeviceReport:
    return DeviceReport(
        device=name,
        kind="cpu",
        variant="v",
        share=units,
        seconds=seconds + 2 * copies,
        chunks=(units,),
        copy_in_seconds=copies,
        compute_seconds=seconds,
        copy_out_seconds=copies,
    )


def report(*devices: DeviceReport) -> JobReport:
    return JobReport(job=1, state="done", workload="w", load=1, devices=devices)


def run(measuring: MeasurementSchedule, noise: float = 0.0) -> list[MeasurementCase]:
    """Measure until there is enough, a second a unit; the cases in their order."""
    draw, ran = random.Random(7), []
    while (case := measuring.ask()) is not None:
        ran.append(case)
        reports = [
            device(name, case.units, case.units * math.exp(draw.gauss(0, noise)))
            for name in case.variants
        ]
        measuring.tell(case, report(*reports))
    return ran


def test_sizes_take_turns_until_each_is_accurate() -> None:
    ran = run(MeasurementSchedule([4, 8], {"cpu0": ["v"]}, until=0.025))

    assert [case.units for case in ran] == [4, 8, 4, 8, 4, 8]
    assert all(case.load == case.units for case in ran)


def test_every_variant_is_measured_and_all_devices_go_on_meanwhile() -> None:
    ran = run(MeasurementSchedule([4], {"cpu0": ["a", "b"], "emu0": ["a"]}, until=0.025))

    assert {tuple(case.variants.items()) for case in ran} == {
        (("cpu0", "a"), ("emu0", "a")),
        (("cpu0", "b"), ("emu0", "a")),
    }
    assert all(case.load == 8 for case in ran)


def test_a_team_is_measured_apart_from_its_cores() -> None:
    variants = {"cpu0": ["a", "b"], "cpu1": ["a", "b"], "team0": ["b"]}

    ran = run(MeasurementSchedule([4], variants, until=0.025, separate=["team0"]))

    assert {tuple(case.variants.items()) for case in ran} == {
        (("cpu0", "a"), ("cpu1", "a")),
        (("cpu0", "b"), ("cpu1", "b")),
        (("team0", "b"),),
    }


@pytest.mark.parametrize(("noise", "least"), [(0.0, 3), (0.02, 3), (0.2, 4)])
def test_more_noise_takes_more_repeats_within_the_most(noise: float, least: int) -> None:
    measuring = MeasurementSchedule([4], {"cpu0": ["v"]}, until=0.025, max_repeats=12)

    repeats = len(run(measuring, noise))

    (found,) = measuring.measured()
    assert least <= repeats
    assert found.half_width <= 0.025 or repeats == 12


def test_what_cannot_be_run_is_dropped() -> None:
    measuring = MeasurementSchedule([4, 8], {"cpu0": ["a", "b"]}, until=0.025)
    while (case := measuring.ask()) is not None:
        if case.variants["cpu0"] == "a":
            measuring.drop(case)
        else:
            measuring.tell(case, report(device("cpu0", case.units, 1.0)))

    assert {one.variant for one in measuring.measured()} == {"b"}
    assert [progress.repeats for progress in measuring.progress()] == [3, 3]


@pytest.mark.parametrize(
    ("sizes", "variants", "until", "max_repeats"),
    [
        ([], {"cpu0": ["v"]}, 0.1, 3),
        ([4, 0], {"cpu0": ["v"]}, 0.1, 3),
        ([4], {}, 0.1, 3),
        ([4], {"cpu0": []}, 0.1, 3),
        ([4], {"cpu0": ["v"]}, 0.0, 3),
        ([4], {"cpu0": ["v"]}, math.nan, 3),
        ([4], {"cpu0": ["v"]}, 0.1, 0),
    ],
)
def test_nothing_to_measure_is_refused(
    sizes: list[int], variants: dict[str, list[str]], until: float, max_repeats: int
) -> None:
    with pytest.raises(UsageError):
        MeasurementSchedule(sizes, variants, until, max_repeats)


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
