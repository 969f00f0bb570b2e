from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hetsched.errors import UsageError
from hetsched.models import Constant, DeviceModel
from hetsched.plans import (
    DevicePlan,
    MemoryDemand,
    Mode,
    Overlap,
    best_plan,
    check,
    factoring,
    lower_bound,
    multi_installment,
    timeline,
)

NAN = float("nan")
MEMORY = MemoryDemand(input_bytes=1, work_bytes=0, output_bytes=0, limit=40)
CURVE = Constant(10.0)
MODEL = DeviceModel(CURVE, CURVE, CURVE, CURVE)
Planner = Callable[[Any, Any, Any, Any], object]

PLANNERS: dict[str, Planner] = {
    "best": lambda share, model, memory, over: best_plan(share, model, memory, overlap=over),
    "installments": lambda share, model, memory, over: multi_installment(
        share, model, memory, overlap=over
    ),
    "bound": lower_bound,
}
planners = pytest.mark.parametrize("planner", PLANNERS.values(), ids=PLANNERS.keys())


class Odd:
    """A curve that says one thing, or raises it."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def time(self, x: Any) -> Any:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    speed = time


def refused(call: Callable[[], object], says: str) -> None:
    with pytest.raises(UsageError, match=says) as caught:
        call()
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


BAD_SHARES = [2.0, NAN, "a", None, True, [1], np.int64(-2)]


@planners
@pytest.mark.parametrize("share", BAD_SHARES, ids=repr)
def test_a_share_is_a_whole_number(planner: Planner, share: Any) -> None:
    refused(lambda: planner(share, MODEL, MEMORY, Overlap.FULL), "share")
    refused(lambda: factoring(share, MEMORY), "share")


@planners
@pytest.mark.parametrize("share", [0, 50])
@pytest.mark.parametrize("bad", [None, "full"])
def test_a_planner_needs_a_model_a_memory_an_overlap(
    planner: Planner, share: int, bad: Any
) -> None:
    refused(lambda: planner(share, bad, MEMORY, Overlap.FULL), "model: .* DeviceModel")
    refused(lambda: planner(share, MODEL, bad, Overlap.FULL), "memory: .* MemoryDemand")
    refused(lambda: planner(share, MODEL, MEMORY, bad), "overlap: .* Overlap")


@pytest.mark.parametrize("bad", [None, "full"])
def test_factoring_timeline_and_check_need_what_they_work_on(bad: Any) -> None:
    plan = DevicePlan(((1,),))
    refused(lambda: factoring(0, bad), "memory: ")
    refused(lambda: timeline(bad, MODEL, Overlap.FULL), "plan: ")
    refused(lambda: timeline(plan, bad, Overlap.FULL), "model: ")
    refused(lambda: timeline(plan, MODEL, bad), "overlap: ")
    refused(lambda: check(bad, MEMORY), "plan: ")
    refused(lambda: check(plan, bad), "memory: ")


@pytest.mark.parametrize(
    "answer", [-1, NAN, None, [1, 2, 3], ZeroDivisionError("no\nunits")], ids=repr
)
@pytest.mark.parametrize("phase", ["compute", "h2d", "d2h"])
def test_a_model_must_return_times(phase: str, answer: Any) -> None:
    curves = {"total": CURVE, "compute": CURVE, "h2d": CURVE, "d2h": CURVE, phase: Odd(answer)}
    model = DeviceModel(**curves)  # type: ignore[arg-type]
    for planner in PLANNERS.values():
        refused(lambda plan=planner: plan(50, model, MEMORY, Overlap.FULL), "model: ")  # type: ignore[misc]
    refused(lambda: timeline(DevicePlan(((2, 1),)), model, Overlap.NONE), "model: ")


@pytest.mark.parametrize(
    "sub_distributions",
    [5, None, "ab", (1, 2), ("ab",), ((1.5,),), ((2, True),), {1: 2}, ((),), ((0,),), ((2, -1),)],
    ids=repr,
)
def test_a_plan_is_tuples_of_whole_units(sub_distributions: Any) -> None:
    refused(lambda: DevicePlan(sub_distributions), "sub-distribution")


@pytest.mark.parametrize(("mode", "slots"), [("ring", 1), (None, 0), (Mode.RING, 1.5)])
def test_a_plan_has_a_mode_and_whole_slots(mode: Any, slots: Any) -> None:
    refused(lambda: DevicePlan(((1,),), mode, slots), "mode|slots")
    refused(lambda: DevicePlan(((1,),), slots="a"), "slots")  # type: ignore[arg-type]


@pytest.mark.parametrize("engines", [-1, 1.5, None, "two"])
def test_copy_engines_are_counted(engines: Any) -> None:
    refused(lambda: Overlap.of(engines), "copy engines")


def test_lists_and_whole_numbers_of_numpy_are_as_good() -> None:
    sub_distributions: Any = [[np.int64(3), 2], (np.int32(4),)]
    plan = DevicePlan(sub_distributions)

    assert plan == DevicePlan(((3, 2), (4,)))
    assert {type(size) for size in plan.chunks} == {int}
    check(plan, MEMORY)


@planners
def test_a_share_of_numpy_is_as_good(planner: Planner) -> None:
    share: Any = np.int64(50)

    assert planner(share, MODEL, MEMORY, Overlap.FULL) == planner(50, MODEL, MEMORY, Overlap.FULL)
    assert factoring(share, MEMORY) == factoring(50, MEMORY)
